"""Every kind of page in a real browser, as wide as a laptop's and as a telephone's: nothing is cut off or too small."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_over_runs import repeated

from orchestrator.analysis.traffic import view
from orchestrator.cli.main import main
from orchestrator.papers import page as paper_page
from orchestrator.papers import reading
from orchestrator.report import page, style, traffic_section
from orchestrator.report.run.report_page import render
from orchestrator.report.site import page as site
from orchestrator.report.style import Picture
from tests.helpers import manifests
from tests.helpers.browser import browser, is_here
from tests.helpers.made_traffic import made
from tests.helpers.night_runs import write_night
from tests.helpers.sealed_run import loose, make_run

pytestmark = pytest.mark.skipif(not is_here(), reason="chromium-headless-shell is not installed")

WIDTHS = (1280, 390)
HEIGHT = 800
LEAST_TEXT_PX = 8.9  # a browser rounds
LONG = "processors were kept by other work for a sentence that is much longer than any telephone is wide " * 2
PCAP = Path(__file__).parents[2] / "data" / "pcap"

# What is cut off: text that ends beyond its window and cannot be scrolled to, and text that its box hides.
MEASURE = """() => {
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  const found = {wide: document.documentElement.scrollWidth, cut: [], small: []};
  const scrolls = (one) => { for (let up = one; up; up = up.parentElement) {
    if (["auto", "scroll"].includes(getComputedStyle(up).overflowX)) return true; } return false; };
  const unseen = (one) => one.closest(".hidden, .skip, script, style, thead") !== null;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const [text, box] = [walk.currentNode.data.trim(), walk.currentNode.parentElement];
    if (!text || unseen(box) || !box.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(walk.currentNode);
    const place = range.getBoundingClientRect();
    if ((place.right > innerWidth + 1 || place.left < -1) && !scrolls(box)) found.cut.push(text.slice(0, 60));
    if (box.closest(".caption, figcaption, summary, p, li, dd, h1, h2, h3") && place.right > innerWidth + 1)
      found.cut.push("below the edge: " + text.slice(0, 60));
  }
  for (const box of document.body.querySelectorAll("*")) {
    const way = getComputedStyle(box).overflowX;
    const narrow = box.scrollWidth > box.clientWidth + 1;
    if (["hidden", "clip"].includes(way) && narrow && !unseen(box) && !box.closest("svg"))
      found.cut.push(`hidden in ${box.tagName} ${box.className}`);
  }
  for (const drawing of document.querySelectorAll("svg[viewBox]")) {
    const scale = drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width;
    for (const text of drawing.querySelectorAll("text")) {
      const size = parseFloat(getComputedStyle(text).fontSize) * scale;
      if (text.textContent.trim() && !text.querySelector("tspan")) found.small.push(size);
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


def told(manifest):
    """A run of much text: a long reason, a long name of a job's model, and many notes."""
    manifest["notes"] = [LONG] * 3
    manifest["experiment"] = "a-name-of-an-experiment-as-long-as-they-may-be"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A page of each kind, by name."""
    folder = tmp_path_factory.mktemp("pages")
    results = folder / "results"
    for night in range(4):
        write_night(results, night, slower=1.2 if night == 3 else 1.0)
    orch = ["--results", str(results)]
    verdict = folder / "verdict.html"
    main(["compare", "nightly@2026-11-18", "nightly@2026-11-21", "--html", str(verdict), *orch])
    manifests.left(results / "odd" / "r9", run="r9", outcome="failed", error=LONG, reasons=[LONG])
    site.write(results)
    capture = folder / "capture.html"
    main(["capture", *(f"{path.stem}={path}" for path in sorted(PCAP.glob("*.pcap"))), "--report", str(capture)])
    run = make_run(folder / "e", tolerances=loose(), achieved=0.8, iterations=60, windows_count=3, change=told)
    return {
        "run": render([run], folder / "run.html"),
        "runs": render(repeated(folder / "r", 1.0, 1.02, 0.99, 1.01, 1.0), folder / "runs.html"),
        "compare": verdict,
        "capture": capture,
        "traffic": traffic(folder),
        "study": paper_page.render(paper(folder), [], folder / "study.html").path,
        **{
            f"site{part}": Path(f"{results / site.FILE}{part}")
            for part in ("", "#sweeps", "#history", "#run?id=r9", "#compare?a=r9&b=r9")
        },
    }


def traffic(folder: Path) -> Path:
    """All figures and tables of captured traffic, as the report of a run has them."""
    seen = view.look(made(), ranks={}, logs=[])

    def shown(figures: Path) -> page.Values:
        with style.look():
            pictures = [
                Picture(name=name, title=title, caption=caption, saved=style.save(drawing, figures / name))
                for name, title, drawing, caption in traffic_section.figures(seen)
            ]
        return {
            "title": "traffic",
            "points": [],
            "notes": [LONG] * 5,
            "tables": [],
            "pictures": pictures,
            "traffic": traffic_section.section([("w1", seen), ("w2", seen)], scale=100),
        }

    return page.write("capture_page.html", folder / "traffic.html", shown)


PAPER = """
name: p
title: "A. Author, A title of a paper that is as long as titles of papers are, 2021"
shows: A study
sweeps: {quick: [q.yaml]}
limits: ['LONG']
contradictions: ['LONG']
figures:
  - title: "Fig 3: volume"
    text: 'LONG'
    ask: [answers.made: {}]
    draw: [{kind: bars, x: model, y: gb, series: framework}]
    table: {model: model, framework: framework, gb: GB}
    holds:
      - {what: "LONG {model}", by: [model], value: gb, says: 'LONG', place: Fig 3, least: 1, because: 'LONG',
         fails: {none: [{sql: "select * replace (0.0 as gb) from answer"}]}}
    not_compared:
      - {says: 'LONG', place: Table I, why: 'LONG'}
""".replace("LONG", LONG)
ANSWERS = """
from orchestrator.questions.registry import source

@source
def made(measured):
    return [
        {"model": f"model number {m}", "framework": f"framework {f}", "repetition": r, "gb": m + f + 0.01 * r}
        for m in range(12) for f in range(4) for r in (1, 2, 3)
    ]
"""


def paper(folder: Path):
    (folder / "paper.yaml").write_text(PAPER)
    (folder / "answers.py").write_text(ANSWERS)
    return reading.paper(folder / "paper.yaml")


KINDS = (
    "run",
    "runs",
    "compare",
    "capture",
    "traffic",
    "study",
    "site",
    "site#sweeps",
    "site#history",
    "site#run?id=r9",
    "site#compare?a=r9&b=r9",
)


def address(path: Path) -> str:
    file, mark, view_of = str(path).partition("#")
    return Path(file).as_uri() + mark + view_of


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_cut_off_and_figures_can_be_read(chromium, pages, kind, width):
    shown = chromium.new_page(viewport={"width": width, "height": HEIGHT})
    shown.goto(address(pages[kind]))
    if kind.startswith("site"):
        shown.wait_for_selector("html[data-ready]")
    found = shown.evaluate(MEASURE)
    shown.close()
    assert found["wide"] <= width
    assert found["cut"] == []
    assert min(found["small"], default=LEAST_TEXT_PX) >= LEAST_TEXT_PX


@pytest.mark.parametrize(("kind", "screens"), [("run", 5), ("runs", 5)])
def test_a_report_opens_with_its_verdict_and_a_figure_and_has_a_readers_length(chromium, pages, kind, screens):
    shown = chromium.new_page(viewport={"width": WIDTHS[0], "height": HEIGHT})
    shown.goto(address(pages[kind]))
    verdict, figure = (shown.locator(what).first.bounding_box() for what in (".verdict", "figure svg"))
    assert verdict["y"] < figure["y"]
    assert figure["y"] + figure["height"] <= HEIGHT, "the first figure is in the first screen"
    assert shown.evaluate("document.documentElement.scrollHeight") <= screens * HEIGHT
    shown.close()


def test_the_measure_finds_what_is_cut_off(chromium):
    """A check that cannot fail checks nothing."""
    shown = chromium.new_page(viewport={"width": 390, "height": HEIGHT})
    shown.set_content(
        f'<table><caption style="white-space: nowrap">{LONG}</caption></table>'
        f'<div class="x" style="overflow: hidden; white-space: nowrap">{LONG}</div>'
        '<svg viewBox="0 0 547 100" width="100%"><text style="font-size: 9px">small</text></svg>'
    )
    found = shown.evaluate(MEASURE)
    shown.close()
    assert found["wide"] > 390
    assert any(text.startswith("processors were") for text in found["cut"])
    assert "hidden in DIV x" in found["cut"]
    assert min(found["small"]) < LEAST_TEXT_PX
