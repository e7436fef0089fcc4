"""The rows of the fault matrix that take seconds, once each; `python -m tests.faults` carries out all, and often."""

from __future__ import annotations

import pytest
from orch_runs import as_root

from tests.faults.__main__ import told
from tests.faults.carrying import carry_out
from tests.faults.matrix import cases
from tests.faults.record import seed_of

pytestmark = pytest.mark.testbed
ROWS = [case for case in cases() if case.ci]


@pytest.mark.parametrize("case", ROWS, ids=[case.name for case in ROWS])
def test_a_row_holds(case, tmp_path):
    if case.root and not as_root():
        pytest.skip("hosts are broken as root")
    folder = tmp_path / "row"
    result = carry_out(case, folder, number=0, seed=seed_of(case.name, 0))
    assert result.held, told(result, folder)
