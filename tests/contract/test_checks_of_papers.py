"""Every check of a paper can fail: it agrees with what is right, and with no input that its `fails` names.

A check is a line of `checks` in a paper's published.yaml. One without inputs that must not agree, or whose inputs
agree, or that nothing makes agree, fails here; so does a line of a page whose verdict no check gives.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path

import pytest
import yaml

from orchestrator.analysis.stats.agreement import AGREES, CANNOT_TELL
from orchestrator.papers import registry
from orchestrator.report.study.content import NOT_JUDGED, Comparison
from orchestrator.report.study.printed import Check
from tests.helpers.checked import GOOD, NOISE, ONE_RUN

ROOT = Path(__file__).parents[2]
PAPERS = registry.names()
SEEDS = 20
LUCK = 3  # of 20 draws of noise; a right interval is one-sidedly wrong in 1 of 40


def checks_of(paper: str) -> list[Check]:
    data = yaml.safe_load((ROOT / f"orchestrator/papers/{paper}/published.yaml").read_text())
    return [Check.model_validate(one) for one in data["checks"]]


CHECKS = [(paper, check) for paper in PAPERS for check in checks_of(paper)]
NAMES = [f"{paper}-{check.name}" for paper, check in CHECKS]


def made(paper: str):
    return importlib.import_module(f"tests.helpers.checked.{paper}")


@cache
def lines(paper: str, twist: str, seed: int = 1) -> tuple[Comparison, ...]:
    return tuple(made(paper).lines(twist, seed))


def of(paper: str, check: Check, twist: str, seed: int = 1) -> list[Comparison]:
    return [line for line in lines(paper, twist, seed) if line.check == check.name and line.ours != "-"]


@pytest.mark.parametrize("paper", PAPERS)
def test_no_line_has_a_verdict_without_a_check(paper):
    names = {check.name for check in checks_of(paper)}
    for line in lines(paper, GOOD):
        assert (line.check in names) if line.check else line.verdict == NOT_JUDGED, line


@pytest.mark.parametrize(("paper", "check"), CHECKS, ids=NAMES)
def test_a_check_agrees_with_what_is_right(paper, check):
    found = of(paper, check, GOOD)
    assert {line.verdict for line in found} == {AGREES}, found


@pytest.mark.parametrize(
    ("paper", "check", "twist"),
    [(paper, check, twist) for paper, check in CHECKS for twist in check.fails],
    ids=[f"{name}-{twist}" for name, (_, check) in zip(NAMES, CHECKS, strict=True) for twist in check.fails],
)
def test_a_check_does_not_agree_with_what_must_fail(paper, check, twist):
    assert twist in made(paper).TWISTS
    found = of(paper, check, twist)
    assert found
    agreed = [line.what for line in found if line.verdict == AGREES]
    assert len(agreed) <= len(found) / 2, agreed  # of some lines it may be the truth: all pairs is what a clique is


@pytest.mark.parametrize(("paper", "check"), CHECKS, ids=NAMES)
def test_a_single_run_tells_nothing(paper, check):
    found = of(paper, check, ONE_RUN)
    assert found
    assert {line.verdict for line in found} == {CANNOT_TELL}, found


@pytest.mark.parametrize(("paper", "check"), CHECKS, ids=NAMES)
def test_noise_does_not_agree(paper, check):
    """Whole lines agree by luck alone: draws that know nothing of their settings."""
    agreed = [all(line.verdict == AGREES for line in of(paper, check, NOISE, seed)) for seed in range(SEEDS)]
    assert sum(agreed) <= LUCK, agreed


@pytest.mark.parametrize("paper", PAPERS)
def test_every_twist_is_of_use(paper):
    used = {twist for check in checks_of(paper) for twist in check.fails}
    assert used == set(made(paper).TWISTS)
