"""Text for a screen: what is alike is said once and loses nothing that matters, and lines keep to the width."""

from __future__ import annotations

import math

import pytest

from orchestrator.core.screen import alike, layout
from orchestrator.core.units import bytes_text, span_text


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["h1", "h2", "h3", "h4", "h5"], "h1..h5"),
        (["h5", "h3", "h1", "h4", "h2", "h2"], "h1..h5"),
        (["h1", "h2"], "h1, h2"),
        (["h1", "h3", "h5"], "h1, h3, h5"),
        (["h9", "h10", "h11", "switch"], "h9..h11, switch"),
        (["n08", "n09", "n10"], "n08..n10"),
        (["n8", "n9", "n10", "n012"], "n8..n10, n012"),
        (["10.0.0.9", "10.0.0.10", "10.0.0.11"], "10.0.0.9..10.0.0.11"),
        (["r1h1", "r1h2", "r1h3", "r2h1", "r2h2"], "r1h1..r1h3, r2h1, r2h2"),
        (["r1h1", "r2h1", "r3h1"], "r1h1..r3h1"),
        (["a1", "a2", "b3"], "a1, a2, b3"),
        (["alpha", "beta"], "alpha, beta"),
        (["1", "2", "3"], "1..3"),
        ([], ""),
    ],
)
def test_names_become_ranges(given, told):
    assert alike.names(given) == told


def test_sentences_of_one_form_are_one():
    said = alike.sentences(
        [f"capture at h{i}:eth0 dropped 0 of {100 * i} packets (0.0{i}%)" for i in (1, 2, 3)]
        + ["capture at h4:eth0 said nothing"]
        + ["h1 in: -0.1 of 2.50 MB", "h1 out: +0.2 of 12.5 MB"]
    )
    assert said == [
        "capture at h1..h3:eth0 dropped 0 of 100..300 packets (0.01..0.03%)",
        "capture at h4:eth0 said nothing",
        "h1 in, out: -0.1..+0.2 of 2.50..12.5 MB",
    ]


def test_sentences_that_say_different_things_stay_apart():
    said = ["rank one waited long", "every host answered soon"]
    assert alike.sentences(said) == said
    assert alike.sentences(["the same", "the same"]) == ["the same"]
    assert alike.sentences([]) == []


def test_a_version_or_a_name_with_digits_is_no_number():
    assert alike.sentences(["kernel v5.10 at h1", "kernel v6.1 at h2"]) == ["kernel v5.10, v6.1 at h1, h2"]


def test_paragraphs_hang_and_are_whole_where_nobody_looks():
    text = "one two three " + "x" * 30
    assert layout.hanging(text, None, indent="  a ") == f"  a {text}"
    assert layout.hanging(text, 16, indent="  a ").splitlines() == ["  a one two", "    three", "    " + "x" * 30]
    assert layout.hanging(text, 16, indent="  a ", rest="  ").splitlines()[1] == "  three"


def test_no_terminal_has_no_width(monkeypatch):
    assert layout.columns() is None
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "97")
    assert layout.columns() == 97


def test_columns_line_up_numbers_to_the_right():
    text = layout.table(("name", "n"), [["a", "1"], ["long name", "1000"]], indent="  ")
    assert text.splitlines() == ["  name          n", "  ---------  ----", "  a             1", "  long name  1000"]
    assert layout.table(("name", "n"), []).splitlines() == ["name  n", "----  -"]


def test_a_head_of_two_lines_stands_at_the_bottom():
    text = layout.table(("run", "sent/\ntheory", "n"), [["r1", "0.98", "1"]])
    assert text.splitlines() == ["      sent/", "run  theory  n", "---  ------  -", "r1     0.98  1"]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (4.628e-2, "46.3 ms"),
        (1e-2, "10 ms"),
        (1.15, "1.15 s"),
        (1234.5, "1230 s"),
        (9.999e-4, "1 ms"),
        (0, "0 ns"),
        (9.96e-4, "996 us"),
        (2.5e-8, "25 ns"),
        (math.nan, "unknown"),
        (0.00106, "1.06 ms"),
    ],
)
def test_times_come_in_the_unit_that_fits(seconds, told):
    assert span_text(seconds) == told


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (13_472_094, "13.47 MB"),
        (1_533_420, "1.533 MB"),
        (0, "0 bytes"),
        (999, "999 bytes"),
        (999_960, "1 MB"),
        (3.2e12, "3.2 TB"),
        (5e15, "5000 TB"),
    ],
)
def test_sizes_come_in_the_unit_that_fits(size, told):
    assert bytes_text(size) == told
