"""Real ranks of a recorded training on loopback: every operation of a trace, in its group and of its size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.made_traces import all_reduce, node, written
from tests.helpers.rank_processes import loopback, others_end_with_one_line, running
from tests.helpers.skipping import needs_torch
from workloads import chakra
from workloads.readers.chakra_traces import COLLECTIVE, COLLECTIVES, COMPUTATION, RECEIVE, SEND

pytestmark = [pytest.mark.testbed, needs_torch]

KB = 1000
SIZES = {"all-gather": 3 * 40 * KB, "barrier": 0}  # others have that of the trace
ALSO = 30  # number of the collective of two ranks


def nodes(rank: int) -> list[bytes]:
    """A computation, every collective one behind the other, one of two ranks beside these, and a message onwards."""
    found = [node(0, COMPUTATION, took_us=20_000)]
    for number, kind in enumerate(COLLECTIVES.values(), start=1):
        found.append(node(number, COLLECTIVE, number - 1, comm_type=kind, comm_size=40 * KB, root=1))
    if rank < 2:
        found.append(all_reduce(ALSO, 0, size=80 * KB, pg_name="1"))
    last = len(COLLECTIVES)
    after, before = (rank + 1) % 3, (rank - 1) % 3
    found.append(node(40, SEND, last, comm_size=16 * KB, comm_dst=after))
    return [*found, node(41, RECEIVE, last, comm_size=16 * KB, comm_src=before)]


def test_ranks_send_what_the_traces_say(tmp_path: Path) -> None:
    traces = written(tmp_path / "traces", *map(nodes, range(3)))
    groups = tmp_path / "groups.json"
    groups.write_text('{"1": [0, 1]}')
    folder = tmp_path / "ranks"
    folder.mkdir()
    with running(loopback(chakra, 3, scale=1, traces=str(traces), groups=str(groups)), folder) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(3)
        assert started.end() == [0] * 3
        spans = [started.read(chakra, rank, "spans") for rank in range(3)]
        iterations = started.read(chakra, 0)
    assert min(iterations["wait_s"][:3]) > 0
    assert min(iterations["seconds"][:3]) > 0.02
    for rank, table in enumerate(spans):
        rows = list(
            zip(*(table[name] for name in ("iteration", "span", "bytes", "process_group", "peer")), strict=True)
        )
        for number in range(3):
            told = [row[1:] for row in rows if row[0] == number]
            assert told[0][0] == "n0", "the computation comes first"
            everyone = [row for row in told[1:] if not row[2] and row[3] == -1]
            assert sorted(everyone) == sorted((name, _bytes(name), "", -1) for name in COLLECTIVES)
            others = sorted(row for row in told[1:] if row not in everyone)
            mine = [("all-reduce", 80 * KB, "0 1", -1)] if rank < 2 else []
            received = ("receive", 16 * KB, "", (rank - 1) % 3)
            assert others == sorted([*mine, received, ("send", 16 * KB, "", (rank + 1) % 3)])


def _bytes(name: str) -> int:
    """What a span tells of it: all that ranks contribute, in whole floats of each."""
    if name in SIZES:
        return SIZES[name]
    return 3 * 4 * 3334 if name in ("reduce-scatter", "all-to-all", "scatter") else 40 * KB


def test_ranks_that_all_send_first_do_not_wait_for_ever(tmp_path: Path) -> None:
    def rank(own: int) -> list[bytes]:
        before, after = (own - 1) % 3, (own + 1) % 3
        return [node(0, SEND, comm_size=KB, comm_dst=after), node(1, RECEIVE, 0, comm_size=KB, comm_src=before)]

    traces = written(tmp_path / "traces", *map(rank, range(3)))
    with running(loopback(chakra, 3, scale=1, traces=str(traces)), tmp_path) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(2)


def test_a_rank_that_is_killed_ends_the_others_with_one_line(tmp_path: Path) -> None:
    traces = written(tmp_path / "traces", *([all_reduce(0, size=KB)] for _ in range(3)))
    others_end_with_one_line(loopback(chakra, 3, traces=str(traces)), tmp_path)
