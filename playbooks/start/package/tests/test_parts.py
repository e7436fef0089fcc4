"""The contract of orch's parts, held by those of this package."""

from pathlib import Path

import pytest

from orchestrator.testing import Case, checks

DATA = Path(__file__).parent / "data"
CASES = [
    Case(kind="workload", name="ping-pong", samples=DATA / "ping-pong"),
    Case(kind="collector", name="load-average", samples=DATA / "load-average"),
]


@pytest.mark.parametrize("check", [pytest.param(one, id=f"{case}-{one}") for case in CASES for one in checks(case)])
def test_a_part_keeps_its_contract(check, tmp_path):
    check(tmp_path)
