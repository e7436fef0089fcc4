"""The frame of a study's page: printed values beside ours with verdicts, and what stands first of them."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError

from orchestrator.analysis.stats.agreement import AGREES, CANNOT_TELL, DIFFERS
from orchestrator.analysis.stats.statistics import UNKNOWN, Estimate
from orchestrator.report.study import content, study_page
from orchestrator.report.study.content import NOT_JUDGED, Content, Section, Table
from orchestrator.report.study.printed import Check

SOURCE = {"source": "Fig 3"}


def check(**margin: float) -> Check:
    return Check(name="c", because="a reason", fails=("theory",), **margin)


SHARE, BY, BOUND, EACH = check(share=0.05), check(by=0.02), check(least=1.25, rival=0.8), check()


def judged(ours: Estimate, *, of: Check = SHARE, printed: float = 100.0, what: str = "v", **more):
    return content.judged(of, what, ours, printed, **SOURCE, **more)


def claimed(ours: Estimate, *, of: Check = BOUND):
    return content.claimed(of, "claim", ours, printed="grows", **SOURCE)


def counted(*points: list[bool]):
    return content.counted(EACH, "ring", points, ours="h1-h2", printed="a ring", **SOURCE)


@pytest.mark.parametrize(
    ("made", "verdict", "difference"),
    [
        (judged(Estimate(103, 101, 105)), AGREES, "+3.0 % (+1.0 to +5.0)"),
        (judged(Estimate(112, 109, 115)), DIFFERS, "+12 % (+9.0 to +15)"),
        (judged(Estimate(100, 80, 120)), CANNOT_TELL, "+0.0 % (-20 to +20)"),
        (judged(Estimate(100, math.nan, math.nan)), CANNOT_TELL, "+0.0 %"),
        (judged(UNKNOWN), CANNOT_TELL, ""),
        (judged(Estimate(112, 109, 114), also=(110.0,)), AGREES, "+12 % (+9.0 to +14)"),
        (judged(Estimate(0.71, 0.7, 0.715), of=BY, printed=0.7), AGREES, "+0.01 (+0 to +0.015)"),
        (claimed(Estimate(2, 1.3, 3)), AGREES, ""),
        (claimed(Estimate(1, 0.9, 1.1)), CANNOT_TELL, ""),
        (claimed(Estimate(0.5, 0.4, 0.7)), DIFFERS, ""),
        (claimed(Estimate(1, 0.9, 1.1), of=check(least=1.25)), DIFFERS, ""),
        (counted([True, True], [True, True]), AGREES, ""),
        (counted([True, True], [False, False]), DIFFERS, ""),
        (counted([True], [True]), CANNOT_TELL, ""),
        (counted(), CANNOT_TELL, ""),
        (content.cannot_tell(SHARE, "v", "2", **SOURCE), CANNOT_TELL, ""),
        (content.remark("v", "1", "2", why="it is set", **SOURCE), NOT_JUDGED, ""),
        (content.apart("v", 4.0, 2.0, why="other processors", **SOURCE), NOT_JUDGED, "+100 %"),
        (content.apart("v", math.nan, 2.0, why="other processors", **SOURCE), NOT_JUDGED, ""),
        (content.not_measured("v", "2", **SOURCE), NOT_JUDGED, ""),
    ],
)
def test_a_printed_value_beside_ours_has_a_verdict(made, verdict, difference):
    assert (made.verdict, made.difference, made.source) == (verdict, difference, "Fig 3")
    assert made.why
    assert bool(made.check) == (verdict != NOT_JUDGED)


def test_the_margin_and_its_reason_are_told_and_why_nothing_can_be():
    assert judged(Estimate(103, 101, 105)).why == "margin 5 %: a reason"
    assert judged(Estimate(0.7, 0.7, 0.7), of=BY, printed=0.7).why == "margin 0.02: a reason"
    once = judged(Estimate(100, math.nan, math.nan))
    assert once.why == "one run has no interval: measure repetitions; margin 5 %: a reason"
    assert claimed(Estimate(1, 0.9, 1.1)).why == "another explanation does as well; at least 1.25: a reason"
    assert counted([True, True]).why == "each time: a reason"
    assert counted([True, True]).ours == "h1-h2; in 2 of 2 repetitions"


def test_an_interval_and_a_unit_are_shown():
    one = content.apart("v", Estimate(4.914, 4.82, 5.0), Estimate(4.91, 4.82, 5.0), unit="Gbit/s", why="w", **SOURCE)
    assert (one.ours, one.printed) == ("4.914 (4.82 to 5) Gbit/s", "4.91 (4.82 to 5) Gbit/s")


def test_a_check_has_one_kind_of_margin_and_says_what_must_fail():
    with pytest.raises(ValidationError, match="one of share, by, and least or most"):
        check(share=0.1, by=0.2)
    with pytest.raises(ValidationError, match="fails"):
        Check(name="c", because="a reason", fails=())
    assert check(most=3).bounds(math.nan) == (-math.inf, 3)
    assert SHARE.bounds(-100.0) == (-105.0, -95.0)


def section(*found, title="Fig 3: volume"):
    return Section(title=title, comparisons=found)


OFF = Estimate(112, 109, 115)


def test_the_top_says_what_agrees_what_differs_and_what_cannot_be_told():
    found = [
        section(
            judged(Estimate(101, 100, 102), what="a"),
            judged(OFF, what="b"),
            judged(UNKNOWN, what="c"),
            content.remark("e", "1", "2", why="it is set", **SOURCE),
        ),
        section(counted([True, True]), title="Fig 5: flows"),
    ]
    lines = study_page.verdict_lines(found)
    told = {verdict: [f"{line.section}: {line.text}" for line in lines] for verdict, lines in lines.items()}
    assert told == {
        AGREES: [
            "Fig 3: volume: a: +1.0 % (+0.0 to +2.0) (margin 5 %: a reason)",
            "Fig 5: flows: ring: h1-h2; in 2 of 2 repetitions against a ring (each time: a reason)",
        ],
        DIFFERS: ["Fig 3: volume: b: +12 % (+9.0 to +15) (margin 5 %: a reason)"],
        CANNOT_TELL: ["Fig 3: volume: c (nothing measured in these runs)"],
        NOT_JUDGED: ["Fig 3: volume: e (it is set)"],
    }
    assert study_page.headline(found) == "1 differs, 2 agree, 1 cannot tell, 1 not judged"


def test_many_that_cannot_be_told_are_counted_and_those_that_differ_are_all_named():
    unknown = [judged(UNKNOWN, what=f"v{place}") for place in range(9)]
    off = [judged(OFF, what=f"w{place}") for place in range(9)]
    found = study_page.verdict_lines([section(*unknown, *off)])
    assert "v4 and 4 more (nothing measured" in found[CANNOT_TELL][0].text
    assert "w8: +12 %" in found[DIFFERS][0].text


class _Paper:
    NAME, TITLE, SHOWS = "p", "A. Author, A title, 2021", "Volumes of <three> frameworks"

    def content(self, entries, folder):
        return Content(
            made_of=f"{len(entries)} runs",
            limits=("Packets do not scale.",),
            contradictions=("Table I errs.",),
            sections=(
                section(judged(OFF, what="a & b")),
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
            "<strong>Differs",
            "a &amp; b: +12 % (+9.0 to +15) (margin 5 %: a reason)",
            "Packets do not scale.",
            "<h2>Fig 3: volume</h2>",
            "<h2>Table I</h2>",
            "&lt;1&gt;",
            "Table I errs.",
        )
    ]
    assert places == sorted(places)
    assert "<strong>Agrees</strong>" not in text
    assert "Empty" not in text
    assert "none" not in text.partition("<h2>Table I</h2>")[2]
