"""Verdicts are in colour on a terminal, and nowhere else; what comes from elsewhere brings none of its own."""

from __future__ import annotations

import io

import pytest

from orchestrator.core.screen import colour, console


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def told(text, stream):
    console.tell_verdicts(text, stream=stream)
    return stream.getvalue()


def test_verdicts_are_coloured_on_a_terminal_and_names_keep_their_control_characters_spelled_out():
    assert told("#1 run\x1b[5m: valid", Screen()) == "#1 run\\u001b[5m: \x1b[32mvalid\x1b[0m\n"


@pytest.mark.parametrize("settings", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_switched_off(monkeypatch, settings):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert told("#1 run: INVALID", Screen()) == "#1 run: INVALID\n"


def test_an_empty_no_color_and_a_file_are_as_they_say(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "")
    assert "\x1b" in told("#1 run: INVALID", Screen())
    assert told("#1 run: INVALID", io.StringIO()) == "#1 run: INVALID\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("b against a: 1 worse, 2 same, 1 cannot tell (of 4 points)", 2),
        ("worse: load 8gbit: mean +5 %", 1),
        ("load 8gbit  worse  mean", 1),
        ("of equal nights 5 % are called worse or better wrongly", 0),
        ("2 of 3 runs are valid.", 0),
        ("failed (window)", 1),
    ],
)
def test_verdicts_are_told_from_prose(text, count):
    assert colour.verdicts(text).count("\x1b[0m") == count
