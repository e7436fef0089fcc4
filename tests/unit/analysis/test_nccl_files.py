"""What NCCL Inspector's and the flight recorder's files say of ranks: who is last, what hangs, and what is refused."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path

import pytest

from orchestrator.analysis.causes import nccl
from orchestrator.core.errors import ConfigError


def inspector(rank: int, number: int, took_us: int, bus: float = 40.0) -> str:
    """One object, as the README of `ext-profiler/inspector` in NCCL prints it."""
    return json.dumps(
        {
            "header": {"id": "0x7f8c496ae9f661", "rank": rank, "n_ranks": 4, "nnodes": 2},
            "metadata": {"inspector_output_format_version": "v4.0", "hostname": f"n{rank // 2}", "pid": 7},
            "coll_perf": {
                "coll": "AllReduce",
                "coll_sn": number,
                "coll_msg_size_bytes": 2147483648,
                "coll_exec_time_us": took_us,
                "coll_timing_source": "kernel_gpu",
                "coll_algobw_gbs": bus / 1.5,
                "coll_busbw_gbs": bus,
            },
        }
    )


def recorded(folder: Path, rank: int, *entries: dict[str, object]) -> None:
    (folder / f"trace_rank_{rank}.json").write_text(json.dumps({"version": "2.4", "entries": list(entries)}))


def entry(number: int, created_ns: int, state: str = "completed", **more: object) -> dict[str, object]:
    """An entry as `_dump_nccl_trace_json` of PyTorch 2.5 on has it."""
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": created_ns,
        "state": state,
        "is_p2p": False,
        **more,
    }


def test_the_rank_that_spends_least_time_in_a_collective_is_the_one_that_others_wait_for(tmp_path):
    for rank in range(4):
        took = [9_000 if rank == 2 else 21_000] * 5
        (tmp_path / f"n{rank}.log").write_text("\n".join(inspector(rank, at, us) for at, us in enumerate(took)))
    found = nccl.read(tmp_path)
    assert found.compared == 5
    (late,) = found.late
    assert (late.rank, late.host, late.times, late.wait_s) == (2, "n1", 5, pytest.approx(0.012))
    lines = nccl.text(found)
    assert lines[1] == "last     rank 2 on n1 in 5 of 5 collectives; others waited 12 ms for it (median)"
    assert lines[2].startswith("longest  AllReduce 0 of 2.147 GB: 21 ms on rank 0")
    assert "40 GB/s" in lines[3]


def test_ranks_that_join_together_are_not_late(tmp_path):
    for rank in range(4):
        (tmp_path / f"n{rank}.log").write_text(inspector(rank, 0, 20_000 + rank))
    assert nccl.read(tmp_path).late == ()
    assert "nobody" in nccl.text(nccl.read(tmp_path))[1]


def test_a_flight_recorder_tells_the_collective_that_hangs_and_who_never_began_it(tmp_path):
    for rank in range(3):
        recorded(
            tmp_path,
            rank,
            entry(1, 1_000_000_000),
            entry(2, 2_000_000_000, "started"),
            entry(3, 3_000_000_000, "scheduled"),
        )
    recorded(tmp_path, 3, entry(1, 1_020_000_000))
    found = nccl.read(tmp_path)
    (stuck,) = found.stuck
    assert (stuck.number, stuck.kind, stuck.waiting, stuck.absent) == (2, "all_reduce", (0, 1, 2), (3,))
    assert (
        nccl.text(found)[1]
        == "stuck    all_reduce 2 of group 0: ranks 0, 1, 2 did not finish it; rank 3 never began it"
    )
    assert (found.late[0].rank, found.late[0].wait_s) == (3, pytest.approx(0.02))


def test_durations_tell_more_than_clocks(tmp_path):
    recorded(tmp_path, 0, entry(1, 9_000_000_000, duration_ms=30.0))  # a clock that is 8 s ahead
    recorded(tmp_path, 1, entry(1, 1_000_000_000, duration_ms=5.0))
    assert [(one.rank, one.wait_s) for one in nccl.read(tmp_path).late] == [(1, pytest.approx(0.025))]


def test_a_pickle_is_never_read(tmp_path):
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"entries": []}))
    with pytest.raises(ConfigError, match="no operation of NCCL"):
        nccl.read(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[" * 100_000,
        '{"entries": [{"collective_seq_id": -1}]}',
        '{"entries": [{"collective_seq_id": true, "time_created_ns": 1}]}',
        '{"entries": [{"collective_seq_id": ' + "9" * 5000 + "}]}",
        '{"coll_perf": {"coll_sn": 1.5}, "header": 3}',
    ],
)
def test_a_damaged_file_is_left_out_with_the_reason(tmp_path, text):
    (tmp_path / "a_0.json").write_text(text)
    with pytest.raises(ConfigError, match=r"left out: a_0\.json"):
        nccl.read(tmp_path)
    (tmp_path / "b_1.log").write_text(inspector(1, 0, 5))
    assert nccl.read(tmp_path).left_out[0].startswith("a_0.json: ")


def test_of_a_long_file_the_first_part_is_read(tmp_path, monkeypatch):
    line = inspector(0, 0, 5)
    monkeypatch.setattr(nccl, "MOST_BYTES", len(line) + 20)
    (tmp_path / "a.log").write_text(line + "\n" + inspector(0, 1, 5))
    found = nccl.read(tmp_path)
    assert found.longest is not None
    assert found.longest.number == 0
    assert not math.isnan(found.longest.seconds)
