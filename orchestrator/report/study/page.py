"""The page of a study: what was kept, missed and cannot be compared, then ours beside the printed, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.report import page
from orchestrator.report.study import summary
from orchestrator.report.study.paper import Paper
from orchestrator.store.rundir import Entry


def render(paper: Paper, entries: Sequence[Entry], output: Path) -> Path:
    """Write the page of these runs, its figures into `<output's stem>-figures` beside it; StoreError when it cannot."""

    def shown(folder: Path) -> page.Values:
        content = paper.content(entries, folder)
        sections = [section for section in content.sections if not section.empty]
        return {"title": paper.SHOWS, "source": paper.TITLE, "content": content, "sections": sections,
                "summary": summary.lines(sections), "headline": summary.headline(sections)}  # fmt: skip

    return page.write("study.html", output, shown)
