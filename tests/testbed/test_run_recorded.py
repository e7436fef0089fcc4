"""A run, exported as Chakra execution traces, and the run that replays them."""

from __future__ import annotations

import pytest

from tests.helpers.orch_runs import alone, orch, sealed
from tests.helpers.skipping import needs_torch

pytestmark = [pytest.mark.testbed, needs_torch]

DDP = {"model": "mobilenet_v2", "compute_time": "40ms", "bucket": "4mb"}


def test_an_export_replays_with_the_same_bytes(tmp_path):
    for name in ("first", "again"):
        (tmp_path / name).mkdir()
    first = sealed(tmp_path / "first", alone({"ddp": {**DDP, "hosts": ["h1", "h2"]}}, hosts=2))
    traces = tmp_path / "traces"
    status, _, err = orch("export", "chakra", first.path.name, "--results", first.path.parents[1], "-o", traces)
    assert status == 0, err
    (recorded,) = first.rows("training")
    workload = {"chakra": {"traces": str(traces / recorded["job"]), "hosts": ["h1", "h2"]}}
    again = sealed(tmp_path / "again", alone(workload, hosts=2))
    (replayed,) = again.rows("training")
    assert replayed["sent_bytes"] == pytest.approx(recorded["sent_bytes"], rel=0.03)
    assert replayed["theory_bytes"] == pytest.approx(recorded["theory_bytes"], rel=0.01)
    assert {row["span"] for row in again.rows("spans")} == {"forward", "backward", "step", "all-reduce"}
