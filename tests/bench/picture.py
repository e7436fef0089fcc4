"""Make docs/watch.png: `orch watch` at a terminal, late in a sweep that it watches.

`python -m tests.bench.picture` measures the sweep on a local testbed, into a folder that goes, in three minutes.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from pathlib import Path

import yaml
from PIL import Image
from rich.console import Console
from rich.text import Text

from tests.bench.commands import INVALID, ROOT, CommandError, call, orch_argv, training
from tests.helpers.browser import browser
from tests.helpers.terminals import on_a_terminal

OUTPUT = ROOT / "docs" / "watch.png"
COLUMNS, ROWS = 100, 60
_WITHIN_S = 900.0
_DRAWN_ANEW = re.compile(r"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")  # how a view is drawn over the one before it
SWEEP = {
    "name": "load",
    "mode": "windows",
    "until": {"interval": "2%", "least": 2, "most": 4},
    "axes": {"traffic.0.iperf.load": {"values": [0, 8, 12, 14, 16, 18], "unit": "gbit"}},
    "experiment": training(
        5,
        name=None,
        workload={"ddp": {"model": "resnet50", "compute": "emulated", "hosts": ["h1", "h2", "h3", "h4"]}},
        traffic=[{"iperf": {"from": "h1", "to": "h5", "load": "8gbit", "streams": 4}}],
        measure={"warmup": 5, "iterations": 40, "at_most": "60s"},
    ),
}


def main() -> int:
    """Measure, watch, and write the picture; return the exit status."""
    with tempfile.TemporaryDirectory(prefix="orch-picture-") as scratch:
        views = _watched(Path(scratch))
    late = [view for view in views if "Sweep load" in view and "Hosts" in view and _share(view) > 0.5]
    if not late:
        raise CommandError(f"none of {len(views)} views is late in a window of the sweep's second run")
    _draw(late[-1], OUTPUT)
    print(OUTPUT)
    return 0


def _watched(scratch: Path) -> list[str]:
    """Measure the sweep while `orch watch` looks on; return its views, as it wrote them to its terminal."""
    file, results, log = scratch / "load.yaml", scratch / "results", scratch / "terminal"
    file.write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    results.mkdir()
    terminal = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    with on_a_terminal(orch_argv("watch", "--results", str(results)), log, env=terminal, cwd=ROOT) as (watch, _):
        argv = orch_argv("sweep", str(file), "--results", str(results), "--wait", "10min")
        call(argv, ok=(0, INVALID), within_s=_WITHIN_S, cwd=ROOT)
        watch.wait(60)
    return _DRAWN_ANEW.split(log.read_bytes().decode())


def _share(view: str) -> float:
    """Return how much of a window is measured, as a view says; 0 outside of windows, and at their end."""
    found = re.search(r"(\d+) of (\d+) iterations", view)
    share = int(found[1]) / int(found[2]) if found else 0.0
    return share if share < 1 else 0.0


def _draw(view: str, output: Path) -> None:
    """Draw what was written to a terminal as a picture of one."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), legacy_windows=False)
    console.print(Text.from_ansi(view.replace("\r\n", "\n").rstrip()))
    svg = console.export_svg(title="orch watch")
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 1000, "height": 800}, offline=True)  # rich names fonts of the web
        page.set_content(f'<body style="margin: 0">{svg}</body>')
        page.locator("svg").first.screenshot(path=output)
    Image.open(output).quantize(64).save(output, optimize=True)


if __name__ == "__main__":
    sys.exit(main())
