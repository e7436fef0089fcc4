"""What predictions take for granted of ranks: which buckets DDP reduces, and who is in a group of a benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.parts.topology import Job
from tests.helpers.rank_processes import loopback, running, topology
from tests.helpers.skipping import needs_torch
from workloads import collective, ddp
from workloads.common.collective_traffic import bus_factor
from workloads.common.placement import ranks

pytestmark = [pytest.mark.testbed, needs_torch]

SETTLED = 2  # iterations after which DDP has made its buckets anew, in the order in which gradients come


@pytest.mark.parametrize("first", [None, "1mib"])
def test_ddp_reduces_the_buckets_that_are_predicted(first: str | None, tmp_path: Path) -> None:
    options: dict[str, object] = {"model": "resnet50", "compute_time": "20ms"} | (
        {"first_bucket": first} if first else {}
    )
    with running(loopback(ddp, 2, **options), tmp_path) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(SETTLED + 3)
        assert started.end() == [0, 0]
        spans = started.read(ddp, 0, "spans")
    where = topology(100)
    config = ddp.Config.model_validate({"hosts": ["h1", "h1"], **options})
    work = ddp.work(config, Job(name="job0", index=0, ranks=ranks(config.hosts, where)), where)
    assert not isinstance(work, str)
    found = {
        what: size
        for what, size, name, iteration in zip(
            spans["what"], spans["bytes"], spans["span"], spans["iteration"], strict=True
        )
        if name == "all-reduce" and iteration >= SETTLED
    }
    assert found == {f"bucket {number}": bucket.size for number, bucket in enumerate(work.buckets)}
    assert len(found) == (4 if first is None else 5)


def test_groups_work_at_the_same_time_and_each_on_its_own(tmp_path: Path) -> None:
    operations = ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send-receive"]
    launches = loopback(collective, 4, operations=operations, sizes=["1mb"], groups=2)
    with running(launches, tmp_path) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(3)
        assert started.end() == [0] * 4
        rows = [started.read(collective, rank, "collectives") for rank in range(4)]
    for table in rows:
        assert set(table["operation"]) == set(operations)
        assert set(table["bytes"]) == {10_000}
        for operation, bus, algorithm in zip(table["operation"], table["bus_bps"], table["algorithm_bps"], strict=True):
            assert bus / algorithm == pytest.approx(bus_factor(operation, 2)), "a group has two ranks"
