"""What the person at the terminal sees: one line that never wraps, or plain lines where there is no terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import termios

import pytest

from orchestrator.execution.observers import progress
from orchestrator.execution.observers.progress import Progress


class Terminal:
    def __init__(self, columns):
        self.master, self.slave = pty.openpty()
        attributes = termios.tcgetattr(self.slave)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(self.slave, termios.TCSANOW, attributes)
        self.resize(columns)
        self.stream = os.fdopen(self.slave, "w", encoding="utf-8")

    def resize(self, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def said(self):
        self.stream.flush()
        os.set_blocking(self.master, False)
        told = b""
        try:
            while part := os.read(self.master, 1 << 16):
                told += part
        except BlockingIOError:
            return told.decode()
        return told.decode()

    def close(self):
        self.stream.close()
        os.close(self.master)


@pytest.fixture
def terminal():
    opened = []

    def make(columns):
        opened.append(Terminal(columns))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def screen(text):
    """The rows that a terminal shows for this text."""
    rows = []
    for line in text.split("\n"):
        row = ""
        for part in line.split("\r"):
            row = part + row[len(part) :]
        rows.append(row.rstrip())
    return rows


def iterate(shown, done=7, of=100, **more):
    shown._last = 0.0
    shown.iterations(done, of, **{"last_s": 0.151, "left_s": 14.2, "rate_bps": 7.98765e9, **more})


def test_a_terminal_has_one_line_that_is_rewritten_and_cleared(terminal):
    tty = terminal(120)
    shown = Progress(tty.stream)
    shown.run("run 1 of 3: r1")
    shown.phase("connecting to the nodes")
    assert screen(tty.said())[:2] == ["run 1 of 3: r1", "  connecting to the nodes ... [0 s]"]
    shown.phase("window w1")
    assert screen(tty.said()) == ["  window w1 ... [0 s]"]
    iterate(shown)
    told = tty.said()
    assert "\n" not in told
    assert screen(told) == ["  window w1: iteration 7/100, 151 ms each, about 14s left, receivers get 7.99gbit/s [0 s]"]
    shown.say("a note")
    assert screen("x" * 100 + "\r" + tty.said())[0].startswith("a note")
    iterate(shown, of=None)
    shown.done()
    told = tty.said()
    assert screen(told) == [""]
    assert told.endswith("\r")
    shown.done()
    assert tty.said() == ""


def test_a_usual_terminal_shows_the_time_that_is_left(terminal):
    tty = terminal(80)
    shown = Progress(tty.stream)
    shown.phase("window w2-10gbit")
    iterate(shown, done=123, of=1_000)
    assert "about 14s left" in screen(tty.said())[0]


@pytest.mark.parametrize("columns", [1, 5, 12, 20, 40, 79])
def test_a_line_is_never_as_long_as_the_terminal_is_wide(terminal, columns):
    tty = terminal(columns)
    shown = Progress(tty.stream)
    shown.phase("a phase with a long name that goes on")
    iterate(shown)
    iterate(shown, done=8, left_s=None, rate_bps=None)
    shown.done()
    told = tty.said()
    assert "\n" not in told
    assert all(len(part) < max(columns, 1) for part in told.split("\r"))
    assert columns < 12 or "... [0 s]" in told
    assert screen(told) == [""]


def test_a_terminal_that_becomes_narrower_is_not_overwritten_wider(terminal):
    tty = terminal(100)
    shown = Progress(tty.stream)
    iterate(shown)
    tty.said()
    tty.resize(30)
    iterate(shown)
    shown.done()
    assert all(len(part) < 30 for part in tty.said().split("\r"))


def test_a_terminal_of_no_known_size_is_taken_for_a_usual_one(terminal):
    tty = terminal(0)
    shown = Progress(tty.stream)
    shown.phase("x" * 300)
    assert max(len(part) for part in tty.said().split("\r")) == 79


def test_without_a_terminal_there_is_a_line_a_phase_and_one_now_and_then(monkeypatch):
    stream = io.StringIO()
    shown = Progress(stream)
    shown.run("run 1 of 3: r1")
    for phase in ("connecting", "window w1"):
        shown.phase(phase)
    for done in range(1, 50):
        shown.iterations(done, 100, last_s=0.1, left_s=None, rate_bps=None)
    monkeypatch.setattr(progress, "PLAIN_EVERY_S", 0.0)
    shown.iterations(50, None, last_s=0.1, left_s=0.2, rate_bps=None)
    shown.say("a note")
    shown.done()
    assert stream.getvalue().splitlines() == [
        "run 1 of 3: r1",
        "  connecting",
        "  window w1",
        "    window w1: iteration 1/100, 100 ms each",
        "    window w1: iteration 50, 100 ms each, about 1s left",
        "a note",
    ]
    assert not re.search(r"[\r\x1b]", stream.getvalue())


def test_a_bar_shows_the_bytes_that_are_done_and_the_time_left(terminal):
    tty = terminal(120)
    shown = Progress(tty.stream)
    shown.share(1_500_000, 3_000_000, "iterations/2026-01.parquet")
    (row,) = screen(tty.said())
    assert row.startswith(f"  [{'#' * 10}{'-' * 10}] 50%, 1.5 MB of 3 MB, about ")
    assert " left: iterations/2026-01.parquet" in row
    shown.share(3_000_000, 3_000_000, "runs/2026-01.parquet")
    assert screen(tty.said())[0].startswith(f"  [{'#' * 20}] 100%, 3 MB of 3 MB: runs/")
    quiet = io.StringIO()
    Progress(quiet).share(1, 2, "elsewhere than on a terminal")
    assert quiet.getvalue() == ""
