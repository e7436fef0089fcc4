"""The front page of 10,000 runs: its size, what writing it takes, and opening and filtering it in headless Chromium."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from orchestrator.report.site import page as site
from orchestrator.store.stamps import MANIFEST
from tests.bench import store
from tests.bench.commands import call, orch_argv
from tests.bench.figure import Figure, Settings
from tests.helpers.browser import browser

GOAL_S = 1.0
GOAL_BYTES = 3e6
_SEEN = ("first paint", "all runs listed", "a filter", "a filter that nothing meets")
_FILTER = """(text) => {
  const box = document.getElementById("q");
  const began = performance.now();
  box.value = text;
  box.dispatchEvent(new Event("input", {bubbles: true}));
  document.getElementById("runs-table").getBoundingClientRect(); // laid out
  return (performance.now() - began) / 1e3;
}"""


def measure(settings: Settings) -> Iterator[Figure]:
    """Write the page of generated runs, by the command and again, then open it as a user does."""
    count, times = settings.times(10_000, 1_000), settings.times(5, 2)
    results = settings.scratch / "results"
    _make_store(results, count)
    write = orch_argv("site", "--results", str(results))
    first = call(write, within_s=600.0)
    yield Figure(what="orch site, the first time", unit="s", values=(first.seconds,), note=f"{count:,} runs")
    again = tuple(call([*write, "--refresh"], within_s=120.0).seconds for _ in range(times))
    yield Figure(what="orch site --refresh, as after a run", unit="s", values=again)
    output = results / site.FILE
    size = output.stat().st_size
    yield Figure(what="index.html", unit="byte", values=(size,), against="goal", reference=(GOAL_BYTES,))
    opened = [_opened(output) for _ in range(times)]
    for what, values in zip(_SEEN, zip(*opened, strict=True), strict=True):
        label = f"{what}, in headless Chromium"
        yield Figure(what=label, unit="s", values=values, against="goal", reference=(GOAL_S,))
    shutil.rmtree(results)


def _make_store(results: Path, count: int) -> None:
    """Runs as `store` makes them, but no two alike: what repeats itself is packed to nothing."""
    random = np.random.default_rng(1)
    for number in range(count):
        manifest = store.manifest_of(number)
        for window in manifest["windows"]:
            for row in window["training"]:
                row |= {key: 0.2 * float(random.lognormal(0, 0.2)) for key in row if key.endswith("_s")}
            for load in window["loads"]:
                load["achieved_bps"] *= float(random.normal(1, 0.02))
        folder = results / manifest["experiment"] / manifest["run"]
        folder.mkdir(parents=True)
        (folder / MANIFEST).write_text(json.dumps(manifest))


def _opened(output: Path) -> tuple[float, float, float, float]:
    """Seconds until something is to be seen and until the list is there, and those that two filters take."""
    with browser() as chromium:
        page = chromium.new_page()
        began = time.perf_counter()
        page.goto(output.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        page.evaluate("() => new Promise(requestAnimationFrame)")
        listed = time.perf_counter() - began
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1e3
        return paint, listed, page.evaluate(_FILTER, "e7 resnet50 invalid"), page.evaluate(_FILTER, "no such run")
