"""Traces of recorded trainings: what is read of them, which are refused, and what ranks then do and when."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.errors import ConfigError
from orchestrator.parts.taskgraph import NOWHERE
from orchestrator.parts.topology import Job
from orchestrator.report.traces import chakra as exported
from orchestrator.report.traces.activity import COMMUNICATION, COMPUTE, Activity, Iteration, RankActivities
from tests.helpers.made_traces import all_reduce, node, written
from tests.helpers.rank_processes import topology
from workloads import chakra
from workloads.common import placement, recordings
from workloads.rank.torch.replay import Activity as Step
from workloads.rank.torch.replay import Course
from workloads.readers.chakra_traces import COLLECTIVE, COMPUTATION, RECEIVE, SEND, read_trace


def read(folder: Path, **more: Any) -> recordings.Recording:
    return recordings.recorded(folder, **{"groups": None, "ranks": None, "tags": True, **more})


def refused(folder: Path, **more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, **more)
    assert "\n" not in caught.value.message
    return caught.value.message


# What is read


def activity(lane: str, name: str, begin: int, end: int, **more: Any) -> Activity:
    """Instants in microseconds."""
    told = {"what": "", "peer": -1, "size": 0, "iteration": 0, **more}
    return Activity(lane=lane, name=name, start_ns=begin * 1000, end_ns=end * 1000, **told)


def test_an_export_is_read_back_with_its_groups_times_and_sizes(tmp_path: Path) -> None:
    groups = {"0 1": "1", "2 3": "2"}
    for rank in range(4):
        own = "0 1" if rank < 2 else "2 3"
        activities = [
            activity(COMPUTE, "forward", 100, 150),
            activity(COMMUNICATION, "all-gather", 160, 190, size=4000, group=own, what="unit 0"),
            activity(COMMUNICATION, "all-reduce", 200, 300, size=8000),
            activity(COMPUTE, "forward", 320, 330, iteration=1),
            activity(COMMUNICATION, "all-reduce", 340, 350, size=8000, iteration=1),
        ]
        told = RankActivities("job0", rank, 4, [Iteration(0, 0, 1)], activities)
        (tmp_path / f"trace.{rank}.et").write_bytes(exported.encoded(told, {"run": "r"}, groups))
    found = read(tmp_path)
    assert found.groups == ((0, 1), (2, 3))
    first, second = (parts[3] for parts in found.iterations)
    gathers = [one for one in first if one.node.operation == "all-gather"]
    assert [(one.size, found.members(one.group), one.node.what) for one in gathers] == [(2000, (2, 3), "unit 0")]
    computed = {one.node.name: (one.node.took_us, one.lag_us) for one in first if one.node.took_us}
    assert computed["forward"] == (50, 0)
    assert [(one.node.name, one.lag_us) for one in second] == [("forward", 20), ("all-reduce", 10)]


def test_a_rank_sends_what_the_file_says_in_the_testbeds_scale(tmp_path: Path) -> None:
    gather = node(1, COLLECTIVE, 0, comm_type=2, comm_size=1_000_000)
    ranks = [
        [all_reduce(0), gather, node(2, SEND, 1, comm_size=80_000, comm_dst=1)],
        [all_reduce(0), gather, node(2, RECEIVE, 1, comm_size=80_000, comm_src=0)],
    ]
    config = chakra.Config.model_validate({"hosts": ["h1"] * 2, "traces": str(written(tmp_path, *ranks))})
    where = topology(10)
    job = Job(name="job0", index=0, ranks=placement.ranks(config.hosts, where))
    assert chakra.problems(config, where) == []
    settings = json.loads(bytes(chakra.launches(config, job, where, 7)[0].files["config.json"]))
    steps = settings["iterations"][0]
    assert [(one["kind"], 4 * one["elements"], one["size"]) for one in steps] == [
        ("all-reduce", 400_000, 400_000),
        ("all-gather", 100_000, 200_000),
        ("send", 8_000, 8_000),
    ]
    graph = chakra.tasks(config, job, where)
    assert not isinstance(graph, str)
    sent: Counter[tuple[int, int]] = Counter()
    for owner, peer, size, times in zip(graph.owners, graph.peers, graph.sizes, graph.times, strict=True):
        if peer != NOWHERE:
            sent[owner, peer] += round(size * times)
    assert sent == {(0, 1): 400_000 + 100_000 + 8_000, (1, 0): 400_000 + 100_000}


def test_an_uneven_all_to_all_keeps_what_each_rank_sends(tmp_path: Path) -> None:
    ranks = [[node(0, COLLECTIVE, comm_type=6, comm_size=size)] for size in (1200, 2400, 0)]
    found = read(written(tmp_path, *ranks))
    assert [one.gets for parts in found.iterations[0] for one in parts] == [[1200, 2400, 0]] * 3


def test_one_trace_is_for_all_ranks(tmp_path: Path) -> None:
    written(tmp_path, [all_reduce(0)])
    assert len(read(tmp_path, ranks=4).iterations[0]) == 4
    written(tmp_path, [all_reduce(0)], [all_reduce(0)])
    assert "not one for all" in refused(tmp_path, ranks=4)


def test_what_the_processor_does_to_begin_a_collective_is_computing(tmp_path: Path) -> None:
    begun = node(0, COLLECTIVE, took_us=85, comm_type=0, comm_size=8, is_cpu_op=True)
    found = read(written(tmp_path, [begun, all_reduce(1, 0)], [all_reduce(1)]))
    assert [one.node.kind for one in found.iterations[0][0]] == ["compute", "collective"]
    assert "sends nothing" in refused(written(tmp_path, [begun], [begun]))


def test_groups_may_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    traces = written(tmp_path / "t", *([all_reduce(0, pg_name=name)] for name in ("1", "1", "2", "2")))
    assert "nothing says which ranks its process group 1 has" in refused(traces)
    groups = tmp_path / "groups.json"
    groups.write_text('{"1": [0, 1], "2": [2, 3]}')
    assert read(traces, groups=groups).groups == ((0, 1), (2, 3))
    groups.write_text('{"1": [0, 2], "2": [2, 3]}')
    assert "has the ranks (0, 2), and this is 1" in refused(traces, groups=groups)
    for text in ("[]", "{", '{"1": [0, 0]}', '{"1": [0, -1]}'):
        groups.write_text(text)
        assert str(groups) in refused(traces, groups=groups)


def test_sends_that_all_come_first_wait_for_no_receiver(tmp_path: Path) -> None:
    def rank(own: int) -> list[bytes]:
        before, after = (own - 1) % 3, (own + 1) % 3
        return [node(0, SEND, comm_size=8, comm_dst=after), node(1, RECEIVE, 0, comm_size=8, comm_src=before)]

    assert read(written(tmp_path, *map(rank, range(3)))).buffered
    ranks = [[node(0, SEND, comm_size=8, comm_dst=1)], [node(0, RECEIVE, comm_size=8, comm_src=0)]]
    assert not read(written(tmp_path / "two", *ranks)).buffered


# What is refused


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        (
            [[all_reduce(0)], [all_reduce(0, size=8)]],
            "of 8 bytes, which is all-reduce of 4000000 bytes in node 0 of tr",
        ),
        ([[all_reduce(0)], [node(0, COLLECTIVE, comm_type=5, comm_size=4_000_000)]], "broadcast of 4000000 bytes"),
        ([[all_reduce(0)], [node(0, COMPUTATION)]], "trace.0.et: node 0 (n0): no other rank takes part in it"),
        ([[all_reduce(0), all_reduce(1, 0)], [all_reduce(0)]], "trace.0.et: node 1 (n1): no other rank"),
        ([[all_reduce(0, 1), all_reduce(1, 0)], [all_reduce(0)]], "node 0 (n0) waits for itself"),
        ([[all_reduce(0, 0)], [all_reduce(0)]], "node 0 (n0) waits for itself"),
        ([[node(0, SEND, comm_size=8, comm_dst=0)], [all_reduce(0)]], "rank 0 is not among"),
        ([[node(0, SEND, comm_size=8, comm_dst=9)], [all_reduce(0)]], "rank 9 is not among"),
        ([[node(0, SEND, comm_size=8)], [all_reduce(0)], [all_reduce(0)]], "does not say with which rank"),
        (
            [[node(0, SEND, comm_dst=1)], [all_reduce(0)]],
            "node 1 of the file: it sends or receives without a comm_size",
        ),
        ([[node(0, COLLECTIVE, comm_type=77, comm_size=8)], []], "comm_type 77 is no collective"),
        ([[node(0, COLLECTIVE, comm_type=0)], []], "a collective (all-reduce) without a comm_size"),
        ([[all_reduce(0), all_reduce(0)], []], "its number 0 is that of another one"),
        ([[node(0, COMPUTATION)], [node(0, COMPUTATION)]], "sends nothing"),
        ([[]], "it has no nodes"),
        ([[node(0, COMPUTATION, took_us=1 << 50)]], "lasts 1125899906842624 us"),
    ],
)
def test_traces_that_no_ranks_could_follow_are_refused(ranks: list[list[bytes]], words: str, tmp_path: Path) -> None:
    assert words in refused(written(tmp_path, *ranks))


def test_a_folder_has_the_file_of_each_rank(tmp_path: Path) -> None:
    assert "no file of a rank" in refused(tmp_path)
    written(tmp_path, [all_reduce(0)], [all_reduce(0)], [all_reduce(0)])
    (tmp_path / "trace.1.et").unlink()
    assert "none of rank 1" in refused(tmp_path)
    (tmp_path / "other.2.et").touch()
    assert "other.2.et and trace.2.et are both of rank 2" in refused(tmp_path)


def test_ranks_without_a_trace_are_a_problem(tmp_path: Path) -> None:
    traces = written(tmp_path, [all_reduce(0)], [all_reduce(0)])
    config = chakra.Config.model_validate({"hosts": ["h1"] * 3, "traces": str(traces)})
    (found,) = chakra.problems(config, topology(10))
    assert (found.at, found.accepted.split(";")[0]) == (("hosts",), "2 hosts")
    assert "the traces of 2 ranks, and here are 3" in found.message


def reads(path: Path) -> str:
    """Whether a file is read, or refused in a line that names it."""
    try:
        read_trace(path)
    except ConfigError as error:
        return "refused" if str(path) in error.message and "\n" not in error.message else error.message
    return "read"


def test_damaged_files_are_told_in_one_line_or_read(tmp_path: Path) -> None:
    """Every cut, and bytes that are changed at random: nothing but ConfigError comes out."""
    nodes = [node(0, COMPUTATION, took_us=9), all_reduce(1, 0, pg_name="0"), node(2, SEND, 1, comm_size=8, comm_dst=1)]
    whole = (written(tmp_path, nodes) / "trace.0.et").read_bytes()
    source = random.Random(7)  # noqa: S311
    changed = [bytearray(whole) for _ in range(2000)]
    for one in changed:
        for _ in range(source.randint(1, 4)):
            one[source.randrange(len(one))] = source.randrange(256)
    outcomes: Counter[str] = Counter()
    for content in [whole[:cut] for cut in range(len(whole))] + [bytes(one) for one in changed]:
        (tmp_path / "trace.0.et").write_bytes(content)
        outcomes[reads(tmp_path / "trace.0.et")] += 1
    assert set(outcomes) == {"read", "refused"}
    assert min(outcomes.values()) > 100


# What is due when


def computing(*after: int, ms: int, lane: int = 0) -> Step:
    told: Step = {"kind": "compute", "name": "c", "after": list(after), "lag_s": 0.0, "what": ""}
    return {**told, "seconds": ms / 1e3, "lane": lane}


def sending(*after: int, lag_ms: int = 0, **more: Any) -> Step:
    told: Step = {"kind": "all-reduce", "name": "r", "after": list(after), "lag_s": lag_ms / 1e3, "what": ""}
    return {**told, "group": -1, **more}  # type: ignore[typeddict-item]


def course(*steps: Step, buffered: bool = False) -> Course:
    return Course(list(steps), begin_ns=0, ended_ns=-5_000_000, buffered=buffered)


def due(found: Course, ms: int) -> list[int]:
    """The places of the communications that are due by then."""
    places = []
    while (place := found.due(ms * 1_000_000)) is not None:
        places.append(place)
    return places


def test_a_message_is_due_when_what_it_waits_for_has_ended_and_not_before() -> None:
    found = course(computing(ms=10), sending(0), computing(0, ms=10), sending(2, lag_ms=3), computing(1, 3, ms=1))
    assert due(found, 9) == []
    assert found.next_ns == 10_000_000
    assert due(found, 10) == [1]
    assert due(found, 22) == []
    assert due(found, 23) == [3]
    found.ended(1, 24_000_000)
    assert found.next_ns is None
    found.ended(3, 40_000_000)
    assert due(found, 100) == []
    assert found.left == 0
    assert [(one.begin_ns, one.end_ns) for one in found.computed][-1] == (40_000_000, 41_000_000)


def test_computations_of_one_lane_follow_one_another_and_late_calls_delay_none() -> None:
    found = course(computing(ms=10), computing(ms=10), computing(ms=4, lane=1), sending(1))
    assert due(found, 95) == [3]
    assert [(one.place, one.begin_ns // 10**6, one.end_ns // 10**6) for one in found.computed] == [
        (0, 0, 10),
        (1, 10, 20),
        (2, 0, 4),
    ]


def test_what_waits_for_nothing_begins_as_long_after_the_last_iteration_as_it_did() -> None:
    found = course(sending(lag_ms=4), sending(lag_ms=7))
    assert due(found, 0) == [0]
    assert due(found, 1) == []
    assert due(found, 2) == [1]


def test_collectives_of_a_group_keep_their_order() -> None:
    found = course(computing(ms=10), sending(0), sending(behind=1))
    assert due(found, 9) == []
    assert due(found, 10) == [1, 2]


def test_a_buffered_send_holds_up_nothing() -> None:
    message: Step = {**sending(), "kind": "send", "peer": 1, "tag": 0}
    for buffered, first in ((True, [0, 1]), (False, [0])):
        found = course(message, sending(0), buffered=buffered)
        assert due(found, 1) == first
        found.ended(0, 2_000_000)
        assert due(found, 2) == [1][len(first) - 1 :]
        found.ended(1, 3_000_000)
        assert found.left == 0
