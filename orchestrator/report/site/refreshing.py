"""Rewrite the front page of a store where it is kept fresh, in this process or in one of its own.

`python -m orchestrator.report.site.refreshing RESULTS` is that process, whose memory goes with it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from orchestrator.core.errors import StoreError, last_lines
from orchestrator.core.screen import console
from orchestrator.execution.observers.progress import Progress
from orchestrator.store import front_page

FRONT_PAGE_S = 60.0


def refresh(results: Path) -> None:
    """Rewrite the page of a store where it is kept fresh; a failure is printed, and fails nothing."""
    if not front_page.kept_fresh(results):
        return
    from orchestrator.report.site import page

    try:
        page.write(results)
    except StoreError as error:
        console.tell(f"orch: {error}", stream=sys.stderr)


def refresh_apart(results: Path, progress: Progress) -> None:
    """Rewrite the page in a process of its own; a failure is told by `progress`, and fails nothing."""
    if not front_page.kept_fresh(results):
        return
    argv = [sys.executable, "-m", "orchestrator.report.site.refreshing", str(results)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=FRONT_PAGE_S, check=False)
    except subprocess.TimeoutExpired:
        progress.say(f"  no front page: not written in {FRONT_PAGE_S:.0f} s")
        return
    if done.returncode != 0 or done.stderr:
        progress.say(f"  no front page: {last_lines(done.stderr)}")


if __name__ == "__main__":
    refresh(Path(sys.argv[1]))
