"""`orch watch` at a terminal and behind a pipe: text and never markup, colours unless they are not wanted."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.core.screen import terminal
from orchestrator.watching import screen
from orchestrator.watching.view import Curve, Judged, Shown, View
from tests.helpers.experiments import orch

STORE = Path(__file__).parents[2] / "data" / "store"
SHOWN = View(
    title="e: r1",
    phase="window w1",
    progress="20 of 40 iterations",
    elapsed_s=7,
    share=0.5,
    curves=(Curve(name="training", text="100 ms", values=(0.1, 0.2)),),
    failures=("h1: [red]\x1b[31m failed",),
    gates=(Judged(name="load", mark="FAIL", text="3gbit of 5gbit arrived"),),
    tables=(Shown(title="Hosts", head=("host", "receives"), rows=(("h1", "1gbit"),)),),
)


def drawn(shown, width=100):
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True).print(screen.drawn(shown, width))
    return out.getvalue()


def test_a_view_is_drawn_with_all_that_it_has(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    text = drawn(SHOWN)
    for part in (
        "e: r1",
        "window w1 [7 s]",
        "━" * 15 + "─" * 15,
        "20 of 40 iterations",
        "▁█",
        "FAIL",
        "h1       1gbit",
    ):
        assert part in text
    assert r"h1: [red]\u001b[31m failed" in text


def test_colours_unless_they_are_not_wanted(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[1;31mFAIL" in drawn(SHOWN).replace("  FAIL", "FAIL")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "[1;31m" not in drawn(SHOWN)


def test_the_last_view_stays_on_the_terminal(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with terminal.guarded(), screen.opened() as opened:
        opened.show(SHOWN)
        opened.show(View(title="too soon", phase="window w1"))
        opened.show(View(title="e: r1", verdict="r1: valid", phase="window w1", ended=True))
    assert "r1: valid" in out.getvalue()
    assert "too soon" not in out.getvalue()


def test_behind_a_pipe_a_run_that_is_over_has_a_line_and_its_verdict():
    run = "20261122T101417120-5f28c7e2"
    status, out, err = orch("watch", run, "--results", str(STORE))
    assert (status, err) == (0, "")
    first, last = out.splitlines()
    assert first.endswith(f": {run}")
    assert last.startswith(f"{run}: failed (")


@pytest.mark.parametrize("argv", [["nothing"], ["--port", "70000", "--web"]])
def test_mistakes_are_told_in_a_line(argv, tmp_path):
    status, out, err = orch("watch", *argv, "--results", str(tmp_path))
    assert status != 0
    assert out == ""
    assert err.startswith(("orch: nothing: no such run", "--port 70000: "))
