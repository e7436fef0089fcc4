"""What NCCL and its Inspector write as tables, which options have it written, and the gate on NCCL's transport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.analysis import launch_outputs
from orchestrator.parts.launch import Launch
from orchestrator.parts.rows import TABLES, LaunchOutput
from orchestrator.parts.topology import Job, Link, Node, Rail, Rank, Topology
from orchestrator.store.manifests import records, summaries
from orchestrator.validity.gates import transport as transport_gate
from tests.helpers import gate_windows
from workloads import collective, command, ddp, horovod
from workloads.common import nccl_evidence
from workloads.common.nccl_evidence import NcclConfig
from workloads.readers.nccl import read_nccl

DATA = Path(__file__).parents[2] / "data" / "nccl"


def rail(number: int) -> Rail:
    return Rail(device=f"ens{number + 1}f0", address=f"10.{number}.0.1", rdma=f"mlx5_{number}:1")


TOPOLOGY = Topology(
    kind="inventory",
    nodes=tuple(Node(name=name, rails=(rail(0), rail(1)), gpus=2) for name in ("h1", "h2")),
    links=tuple(Link(host=name, device=f"ens{n}f0", rate=200e9) for name in ("h1", "h2") for n in (1, 2)),
)


def told(folder: Path, *, offset_ns: int = 0):
    found = read_nccl(
        LaunchOutput(
            folder=folder, node="h1", launch="a-rank0", job="a", rank=0, window=None, source=None, offset_ns=offset_ns
        )
    )
    return {table: {name: list(values) for name, values in rows.items()} for table, rows in found.items()}


def of_log(folder: Path, text: bytes):
    (folder / "nccl.8021.log").write_bytes(text)
    rows = told(folder).get("nccl_connections", {})
    return [dict(zip(rows, one, strict=True)) for one in zip(*rows.values(), strict=True)]


def of_sample(folder: Path, name: str):
    return of_log(folder, (DATA / name).read_bytes())


def ways(rows) -> Counter[tuple[str, str, str]]:
    return Counter((row["transport"], row["detail"], row["device"]) for row in rows)


def test_connections_over_rdma_name_the_device_of_each_rail(tmp_path: Path) -> None:
    rows = of_sample(tmp_path, "rdma.log")
    assert ways(rows) == {
        ("NET/IB", "GDRDMA", "mlx5_0:1"): 2,
        ("NET/IB", "GDRDMA", "mlx5_1:1"): 2,
        ("NET/IB", "GDRDMA(PCI)", "mlx5_0:1"): 2,
        ("NET/IB", "GDRDMA(PCI)", "mlx5_1:1"): 2,
    }
    first = rows[0]
    assert (first["channel"], first["src"], first["dst"], first["direction"]) == (0, 1, 0, "receive")
    assert first["communicator"] == "0x3c1b7f0a91d2e845", "another thread connects than the one that set it up"
    rings = told(tmp_path)["nccl_rings"]
    assert (rings["channel"], rings["previous"], rings["member"], rings["next"]) == (
        [0, 1, 2, 3],
        [1] * 4,
        [0] * 4,
        [1] * 4,
    )
    assert {name: set(TABLES[name]) for name in told(tmp_path)} == {
        name: set(columns) for name, columns in told(tmp_path).items()
    }


def test_connections_over_sockets_name_the_network_device_of_each_rail(tmp_path: Path) -> None:
    rows = of_sample(tmp_path, "sockets.log")
    assert ways(rows) == {("NET/Socket", "", "ens1f0"): 2, ("NET/Socket", "", "ens2f0"): 2}
    assert told(tmp_path)["nccl_rings"]["communicator"] == ["0x5ae77eb5ea4ec1ee"] * 2


def test_connections_as_older_versions_and_other_transports_spell_them(tmp_path: Path) -> None:
    rows = of_sample(tmp_path, "dgx.log")
    assert [(row["transport"], row["detail"], row["device"]) for row in rows] == [
        ("P2P", "IPC/read", ""),
        ("SHM", "direct/direct", ""),
        ("NET/IB", "GDRDMA", "mlx5_0:1"),
        ("NET/IB", "GDRDMA", "mlx5_1:1"),
        ("NET/IB", "GDRDMA/Shared", "mlx5_0+mlx5_1"),
        ("P2P", "indirect/2[2]/read", ""),
        ("P2P", "direct pointer/read", ""),
        ("P2P", "CUMEM/CE", ""),
        ("NET/AWS Libfabric", "GDRDMA", ""),
        ("COLLNET/SHARP", "GDRDMA", ""),
        ("COLLNET/SHARP", "", ""),
    ]
    assert [(row["src"], row["dst"]) for row in rows[-2:]] == [(1, -1), (-1, 1)]
    assert "nccl_rings" not in told(tmp_path), "lines of trees and of channels are no rings"


@pytest.mark.parametrize("name", ["rdma.log", "sockets.log", "dgx.log"])
def test_a_log_that_ends_or_breaks_anywhere_loses_that_line_alone(tmp_path: Path, name: str) -> None:
    whole = (DATA / name).read_bytes()
    expected = of_log(tmp_path, whole)
    for cut in range(0, len(whole), 211):
        rows = of_log(tmp_path, whole[:cut])
        lines = whole[:cut].count(b"\n")
        assert rows == of_log(tmp_path, b"".join(whole.splitlines(keepends=True)[:lines]))
        damaged = of_log(tmp_path, whole[:cut] + b"\xff\0\n" + whole[cut:])
        assert len(expected) - 1 <= len(damaged) <= len(expected)


def test_lines_without_end_and_numbers_beyond_a_column_are_left_out(tmp_path: Path) -> None:
    start = b"h:1:2 [0] NCCL INFO Channel "
    assert of_log(tmp_path, start + b"0" * (1 << 20) + b"/0 : 0[0] -> 1[0] via SHM/direct\n") == []
    assert of_log(tmp_path, start + b"00/0 : 99999999999999999999[0] -> 1[0] via SHM/direct\n") == []
    assert of_log(tmp_path, start + b"00/0 : 0[0] -> 1[0] via NET/\n" + start + b"00/0 : 0[0] -> 1[0] via \n") == []


def test_a_connection_that_the_end_cuts_off_is_told_and_a_thread_without_a_device_counts(tmp_path: Path) -> None:
    """A device that a line ends in may have more digits, as NET/IB/1 of NET/IB/10."""
    begin = "h:1:2 [-1] NCCL INFO "
    (tmp_path / "nccl.h.1.log").write_text(
        f"{begin}Channel 00/0 : 0[0] -> 1[0] via SHM/direct\n" * 2
        + f"{begin}Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/1"
    )
    output = LaunchOutput(
        folder=tmp_path, node="h1", launch="a", job="a", rank=0, window=None, source=None, offset_ns=0
    )
    assert len(read_nccl(output)["nccl_connections"]["channel"]) == 2
    assert (output.unread.rows()["what"], output.unread.rows()["line"]) == (["connections"], [3])
    (tmp_path / "nccl.h.1.log").write_text(f"{begin}Setting affinity for GPU 0")
    whole = LaunchOutput(folder=tmp_path, node="h1", launch="a", job="a", rank=0, window=None, source=None, offset_ns=0)
    read_nccl(whole)
    assert whole.unread.rows()["what"] == []


def test_a_line_of_two_communicators_is_the_one_s_of_its_thread(tmp_path: Path) -> None:
    text = "".join(
        f"h:1:{thread} [0] NCCL INFO {line}\n"
        for thread, line in [
            (5, "ncclCommInitRank comm 0x1f rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xaa - Init START"),
            (6, "ncclCommInitRank comm 0x2f rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0xbb - Init START"),
            (6, "Channel 00/0 : 1[0] -> 0[0] via SHM/direct"),
            (5, "Channel 00/0 : 0[0] -> 3[0] via SHM/direct"),
            (7, "Channel 00/0 : 0[0] -> 3[0] via SHM/direct"),
        ]
    )
    assert [row["communicator"] for row in of_log(tmp_path, text.encode())] == ["0xbb", "0xaa", ""]


def test_communicators_that_one_thread_sets_up_one_after_the_other_are_told_apart(tmp_path: Path) -> None:
    text = "".join(
        f"h:1:5 [0] NCCL INFO {line}\n"
        for name in ("0xaa", "0xbb")
        for line in (
            f"ncclCommInitRank comm 0x1f rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1b000 commId {name} - Init START",
            "Channel 00/0 : 0[0] -> 3[0] via SHM/direct",
        )
    )
    assert [row["communicator"] for row in of_log(tmp_path, text.encode())] == ["0xaa", "0xbb"]


def test_operations_of_the_inspector(tmp_path: Path) -> None:
    whole = (DATA / "inspector.log").read_bytes()
    (tmp_path / "rack-1-pid8021.log").write_bytes(whole)
    rows = told(tmp_path, offset_ns=5)["nccl_operations"]
    assert rows["operation"] == ["all-reduce", "all-reduce", "reduce-scatter", "send", "all-gather"]
    assert (list(rows["sequence"]), list(rows["peer"])) == ([1, 2, 3, 1, 4], [-1, -1, -1, 1, -1])
    assert rows["seconds"][0] == pytest.approx(1164e-6)
    assert rows["bus_bps"] == [pytest.approx(x * 8e9) for x in (22.520962, 20.867184, 19.463128, 20.661596)] + [None]
    assert rows["written_ns"][0] == 1795255720400123005
    for cut in range(0, len(whole), 83):
        (tmp_path / "rack-1-pid8021.log").write_bytes(whole[:cut])
        found = told(tmp_path)
        assert len(found["nccl_operations"]["bytes"] if found else []) in {
            whole[:cut].count(b"\n"),
            whole[: cut + 1].count(b"\n"),
        }
    for broken in (b'"coll_sn":"x"', b'"coll_sn":-1', b'"coll_sn":1e300', b'"coll_sn":null'):
        (tmp_path / "rack-1-pid8021.log").write_bytes(whole.replace(b'"coll_sn":1', broken, 1))
        assert len(told(tmp_path)["nccl_operations"]["bytes"]) == 4


def test_the_rail_is_that_of_the_device_by_the_testbed_s_file() -> None:
    manifest = records.Manifest(run="r", experiment="e", outcome="completed", began_ns=0, topology=TOPOLOGY)
    output = LaunchOutput(folder=Path(), node="h2", launch="x", job="a", rank=1, window=None, source=None, offset_ns=0)
    devices = ["mlx5_1:1", "ens1f0", "mlx5_0+mlx5_1", ""]
    assert launch_outputs.rails_of({"device": devices}, output, manifest) == [1, 0, None, None]


def launched(workload, **options: object) -> list[Launch]:
    config = workload.Config.model_validate({"hosts": ["h1", "h2"], **options})
    assert workload.problems(config, TOPOLOGY) == []
    job = Job(
        name="a", index=0, ranks=tuple(Rank(rank=i, node=f"h{i + 1}", local_rank=0, device="cuda:0") for i in (0, 1))
    )
    return [launch for launch in workload.launches(config, job, TOPOLOGY, 7) if launch.rank is not None]


MODEL = {"model": "resnet50"}
LAUNCHED = [
    (ddp, MODEL),
    (collective, {}),
    (collective, {"backend": "nccl-tests", "sizes": ["1mb"]}),
    (horovod, {**MODEL, "operations": "nccl"}),
    (command, {"argv": ["train"], "iterations": {"pattern": "x"}, "nccl_log": True}),
]


@pytest.mark.parametrize(("workload", "options"), LAUNCHED)
def test_ranks_on_nccl_are_told_to_write(workload, options) -> None:
    env = launched(workload, **options)[0].env
    assert (env["NCCL_DEBUG"], env["NCCL_DEBUG_FILE"]) == ("INFO", "nccl.%p.log")
    assert "NCCL_PROFILER_PLUGIN" not in env
    env = launched(workload, **{**options, "nccl_log": False, "nccl_inspector": "/opt/i.so"})[1].env
    assert "NCCL_DEBUG" not in env
    assert (env["NCCL_PROFILER_PLUGIN"], env["NCCL_INSPECTOR_ENABLE"], env["NCCL_INSPECTOR_DUMP_DIR"]) == (
        "/opt/i.so",
        "1",
        ".",
    )
    env = launched(workload, **options, env={"NCCL_DEBUG": "WARN"})[0].env
    assert env["NCCL_DEBUG"] == "WARN", "what a user sets wins"


def test_ranks_on_gloo_are_not_told_to_write_and_have_no_inspector() -> None:
    assert not [name for name in launched(ddp, **MODEL, backend="gloo")[0].env if name.startswith("NCCL_")]
    config = ddp.Config.model_validate({**MODEL, "backend": "gloo", "nccl_inspector": "/opt/i.so"})
    assert [problem.at for problem in ddp.problems(config, TOPOLOGY)] == [("nccl_inspector",)]
    config = horovod.Config.model_validate({**MODEL, "nccl_inspector": "/opt/i.so"})
    assert [problem.at for problem in horovod.problems(config, TOPOLOGY)] == [("nccl_inspector",)]
    given = {"argv": ["train"], "iterations": {"pattern": "x"}, "nccl_log": True, "cwd": "/data"}
    assert [one.at for one in command.problems(command.Config.model_validate(given), TOPOLOGY)] == [("cwd",)]


def manifest(*env: dict[str, str]) -> records.Manifest:
    ranks = tuple(summaries.Rank(rank=number, node=f"h{number + 1}") for number in range(2))
    launches = tuple(
        records.Launch(
            name=f"a-rank{n}", node=f"h{n + 1}", part="workload.ddp", role="rank", argv=(), env=one, job="a", rank=n
        )
        for n, one in enumerate(env)
    )
    return records.Manifest(
        run="r",
        experiment="e",
        outcome="completed",
        began_ns=0,
        topology=TOPOLOGY,
        launches=launches,
        jobs=(summaries.Job(name="a", workload="ddp", ranks=ranks),),
    )


def judged(env: dict[str, str], *networks: tuple[str, str], unread: Sequence[dict[str, object]] = ()):
    rows = [{"job": "a", "transport": transport, "device": device} for transport, device in networks]
    tables = {"nccl_connections": rows, "unread": unread}
    return gate_windows.judged(transport_gate, manifest=manifest(env), rows=tables)


IB, SOCKET, SHM = ("NET/IB", "mlx5_0:1"), ("NET/Socket", "ens1f0"), ("SHM", "")
BY_RAILS, RDMA, TCP = {"NCCL_IB_HCA": "=mlx5_0:1"}, {"NCCL_NET": "IB"}, {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1"}


def test_sockets_where_rdma_was_asked_for_are_told_and_the_other_way_round() -> None:
    (lost,) = judged(BY_RAILS, IB, SOCKET, SOCKET, SHM)
    assert (lost.name, lost.passed, lost.required, lost.measured) == ("transport", False, False, pytest.approx(2 / 3))
    assert "NET/Socket ens1f0 (2)" in lost.message
    assert "RDMA was asked for (NCCL_IB_HCA==mlx5_0:1)" in lost.message
    assert [(one.passed, one.required) for one in judged(RDMA, SOCKET)] == [(False, True)]
    assert [(one.passed, one.required) for one in judged(TCP, IB)] == [(False, True)]
    for env, way in ((BY_RAILS, IB), (RDMA, ("NET/IBext_v8", "")), (TCP, SOCKET)):
        assert [one.passed for one in judged(env, way, SHM)] == [True]


def test_nothing_is_said_of_what_nobody_asked_for_and_nothing_is_taken_on_trust() -> None:
    assert judged({}, SOCKET) == []
    assert judged(RDMA, SHM) == [], "all on one host"
    (unknown,) = judged(BY_RAILS)
    assert (unknown.passed, unknown.required) == (None, False)
    assert unknown.measured is None
    assert "no rank kept its log" in unknown.message


UNREAD = {"node": "h1", "launch": "a-rank0", "what": "connections", "count": 3, "text": "Channel 00 : 0 -> 1 via X/0"}


@pytest.mark.parametrize(
    ("env", "networks", "passed"),
    [
        (RDMA, [], False),
        (RDMA, [IB], False),
        (BY_RAILS, [IB], None),
        (BY_RAILS, [SOCKET], False),
        (TCP, [SOCKET], False),
    ],
)
def test_connections_that_no_reader_understood_are_told_and_fail_a_forced_transport(env, networks, passed) -> None:
    (one,) = judged(env, *networks, unread=[UNREAD, {**UNREAD, "what": "lines"}])
    assert (one.passed, one.required) == (passed, env is not BY_RAILS)
    assert "3 connections that could not be read (Channel 00 : 0 -> 1 via X/0)" in one.message
    assert judged(env, IB if env is not TCP else SOCKET, unread=[{**UNREAD, "launch": "other"}])[0].passed, "of no rank"


def test_the_log_is_asked_for_unless_it_is_switched_off() -> None:
    assert nccl_evidence.env(NcclConfig(nccl_log=False)) == {}
    assert set(nccl_evidence.env(NcclConfig())) == {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"}
