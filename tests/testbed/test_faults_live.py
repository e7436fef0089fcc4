"""The rows of the fault matrix that take seconds, once each; `python -m tests.faults` carries out all, and often.

`make test` tries what a person may do at any time, once on this machine; the other rows are variants.
"""

from __future__ import annotations

import pytest

from tests.faults.__main__ import told
from tests.faults.carrying import carry_out
from tests.faults.matrix import cases
from tests.faults.record import seed_of
from tests.helpers.orch_runs import as_root

pytestmark = pytest.mark.testbed
EVERYDAY = {"3@local", "7/window@local", "10/closed@local", "27/revoked@inventory"}
ROWS = [
    pytest.param(case, id=case.name, marks=pytest.mark.rights if case.name in EVERYDAY else pytest.mark.variants)
    for case in cases()
    if case.ci
]


@pytest.mark.parametrize("case", ROWS)
def test_a_row_holds(case, tmp_path):
    if case.root and not as_root():
        pytest.skip("hosts are broken as root")
    folder = tmp_path / "row"
    result = carry_out(case, folder, number=0, seed=seed_of(case.name, 0))
    assert result.held, told(result, folder)
