"""The frame of a study's page: printed values beside ours with verdicts, and what stands first of them."""

from __future__ import annotations

import math

import pytest

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.report.study import content, study_page
from orchestrator.report.study.content import APART, OUTSIDE, WITHIN, Content, Section, Table

SOURCE = {"source": "Fig 3"}


@pytest.mark.parametrize(
    ("made", "verdict", "difference"),
    [
        (content.near("v", 108.0, 100.0, **SOURCE), WITHIN, "+8.0 %"),
        (content.near("v", 111.0, 100.0, **SOURCE), OUTSIDE, "+11 %"),
        (content.near("v", Estimate(95, 90, 100), 100.0, within=0.04, **SOURCE), OUTSIDE, "-5.0 %"),
        (content.near("v", math.nan, 100.0, **SOURCE), APART, ""),
        (content.between("r", 0.68, 0.647, 0.687, printed=0.70, **SOURCE), WITHIN, "-2.9 %"),
        (content.between("r", 0.69, 0.647, 0.687, **SOURCE), OUTSIDE, ""),
        (content.at_least("r", 100, 100, **SOURCE), WITHIN, ""),
        (content.at_least("r", 99.9, 100, **SOURCE), OUTSIDE, ""),
        (content.at_most("r", 1.2, 1, **SOURCE), OUTSIDE, ""),
        (content.same("flows", 24, 24, **SOURCE), WITHIN, "+0.0 %"),
        (content.same("flows", 20, 24, **SOURCE), OUTSIDE, "-17 %"),
        (content.same("order", "1-2-3", "1-2-3", **SOURCE), WITHIN, ""),
        (content.holds("claim", true=False, ours="a", printed="b", **SOURCE), OUTSIDE, ""),
        (content.apart("v", 4.0, 2.0, why="other processors", **SOURCE), APART, "+100 %"),
        (content.apart("v", math.nan, 2.0, why="other processors", **SOURCE), APART, ""),
        (content.not_measured("v", "2", **SOURCE), APART, ""),
    ],
)
def test_a_printed_value_beside_ours_has_a_verdict(made, verdict, difference):
    assert (made.verdict, made.difference, made.source) == (verdict, difference, "Fig 3")
    assert made.why


def test_an_interval_and_a_unit_are_shown():
    one = content.near("v", Estimate(4.914, 4.82, 5.0), Estimate(4.91, 4.82, 5.0), unit="Gbit/s", **SOURCE)
    assert (one.ours, one.printed) == ("4.914 (4.82 to 5) Gbit/s", "4.91 (4.82 to 5) Gbit/s")


def section(*found, title="Fig 3: volume"):
    return Section(title=title, comparisons=found)


def test_the_top_says_what_was_kept_missed_and_cannot_be_compared():
    found = study_page.verdict_lines(
        [
            section(
                content.near("a", 1.0, 1.0, **SOURCE),
                content.near("b", 2.0, 1.0, **SOURCE),
                content.not_measured("c", "1", **SOURCE),
            ),
            section(content.same("d", 4, 4, **SOURCE), title="Fig 5: flows"),
        ]
    )
    told = {verdict: [f"{line.section}: {line.text}" for line in lines] for verdict, lines in found.items()}
    assert told == {
        WITHIN: ["Fig 3: volume: 1 of 2 within 10 %", "Fig 5: flows: d: 4 (the same)"],
        OUTSIDE: ["Fig 3: volume: 1 of 2 not within 10 %: b (+100 %)"],
        APART: ["Fig 3: volume: c: not measured in these runs"],
    }


def test_many_that_cannot_be_compared_are_counted_and_those_missed_are_all_named():
    apart = [content.not_measured(f"v{place}", "1", **SOURCE) for place in range(9)]
    missed = [content.near(f"w{place}", 2.0, 1.0, **SOURCE) for place in range(9)]
    found = study_page.verdict_lines([section(*apart, *missed)])
    assert "v4 and 4 more: not measured" in found[APART][0].text
    assert "w8 (+100 %)" in found[OUTSIDE][0].text


class _Paper:
    NAME, TITLE, SHOWS = "p", "A. Author, A title, 2021", "Volumes of <three> frameworks"

    def content(self, entries, folder):
        return Content(
            made_of=f"{len(entries)} runs",
            limits=("Packets do not scale.",),
            contradictions=("Table I errs.",),
            sections=(
                section(content.near("a & b", 2.0, 1.0, **SOURCE)),
                section(title="Empty"),
                Section(
                    title="Table I", tables=(Table("t", "caption", ("x",), [("<1>",)]), Table("u", "none", (), []))
                ),
            ),
        )


def test_a_page_holds_every_section_with_something_in_it(tmp_path):
    text = study_page.render(_Paper(), [], tmp_path / "p.html").read_text()
    places = [
        text.index(told)
        for told in (
            "0 runs; made",
            "<strong>Missed",
            "1 of 1 not within 10 %: a &amp; b (+100 %)",
            "Packets do not scale.",
            "<h2>Fig 3: volume</h2>",
            "<h2>Table I</h2>",
            "&lt;1&gt;",
            "Table I errs.",
        )
    ]
    assert places == sorted(places)
    assert "<strong>Kept</strong>" not in text
    assert "Empty" not in text
    assert "none" not in text.partition("<h2>Table I</h2>")[2]
