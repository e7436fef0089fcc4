"""nccl-tests under `collective`: what is launched, and what our program makes of what the real ones print."""

from __future__ import annotations

import json

import pytest

from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from workloads import collective, nccl_tests
from workloads.common.placement import ranks
from workloads.rank.external.nccl_tests import Passes, row_of

HEAD = """# nThread 1 nGpus 1 minBytes 1024 maxBytes 4096 step: 4(factor) warmup iters: 1 iters: 3 agg iters: 1
# Using devices
#  Rank  0 Group  0 Pid   8021 on    rack-1 device  2 [0x07] NVIDIA H100
#  Rank  1 Group  0 Pid   8044 on    rack-2 device  2 [0x07] NVIDIA H100
#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)"""
FIRST = "  1024     256     float     sum      -1    20.00    0.05    0.05      0    10.00    0.10    0.10      0"
SECOND = "  4096    1024     float     sum      -1   1.2e+05    0.05    0.05      0    40.50    0.10    0.10    N/A"
TOLD = {"operation": "all-reduce", "sizes": [1024, 4096], "repeats": 3, "world": 2, "link_bps": 25e9}


def topology(*, gpus: int = 4, scale: int = 1) -> Topology:
    nodes = tuple(
        Node(name=f"h{i}", rails=(Rail(address=f"10.0.0.{i}", device=f"eth{i}"),), python=f"/py{i}", gpus=gpus)
        for i in (1, 2)
    )
    links = tuple(Link(host=node.name, device=node.first.device, rate=i * 25e9) for i, node in enumerate(nodes, 1))
    return Topology(kind="inventory", nodes=nodes, links=links, scale=scale)


def made(**options: object):
    given = {"backend": "nccl-tests", "hosts": ["h1", "h1", "h2"], "sizes": ["1mb", "4mb"], **options}
    config = collective.Config.model_validate(given)
    return config, Job(name="job0", index=1, ranks=ranks(config.hosts, topology()))


def test_each_rank_starts_the_program_on_its_gpu_with_what_it_shall_send_over() -> None:
    config, job = made(nccl_tests="/opt/nccl-tests/build/", transport="rdma", rdma_device="=mlx5_0:1", repeats=20)
    assert collective.problems(config, topology()) == []
    found = {launch.name: launch for launch in collective.launches(config, job, topology(), 7)}
    assert list(found) == ["job0-mpirun", "job0-daemon-h2", "job0-rank0", "job0-rank1", "job0-rank2"]
    told = json.loads(found["job0-rank1"].files["config.json"])
    assert told["argv"] == [
        "/opt/nccl-tests/build/all_reduce_perf",
        "-b",
        "1000032",
        "-e",
        "4000128",
        "-f",
        "4",
        "-n",
        "20",
        "-w",
        "1",
        "-g",
        "1",
        "-d",
        "float",
        "-c",
        "1",
        "-a",
        "1",
        "-N",
        "0",
    ]
    assert told["link_bps"] == 25e9, "the slowest: the time is a mean over ranks"
    assert [found[f"job0-rank{rank}"].env["NCCL_TESTS_DEVICE"] for rank in range(3)] == ["0", "1", "0"]
    assert [found[f"job0-rank{rank}"].follow for rank in range(3)] == ["iterations.jsonl", None, None]
    env = found["job0-rank2"].env
    assert (env["NCCL_SOCKET_IFNAME"], env["NCCL_NET"], env["NCCL_IB_HCA"]) == ("=eth2", "IB", "=mlx5_0:1")
    assert env["OMPI_MCA_pml"] == "ob1", "ranks meet over TCP whatever NCCL sends over"


def test_what_ranks_meet_by_is_control_and_what_else_hosts_send_is_training() -> None:
    config, job = made()
    flows = collective.launches(config, job, topology(), 7)[0].flows
    assert {flow.port for flow in flows if flow.kind == "control"} >= {20100, 20198, 20199}
    (training,) = (flow for flow in flows if flow.kind == "training")
    assert (training.src, training.dst, training.port) == ("10.0.0.1", "10.0.0.2", None)


def test_what_has_to_be_there_is_told_with_how_to_get_it() -> None:
    config, job = made(nccl_tests="/opt/t", mpirun="/opt/ompi/bin/mpirun")
    needed = {(need.node, need.what): need.remedy for need in collective.requirements(config, job, topology())}
    assert {what for _, what in needed} == {
        "/opt/t/all_reduce_perf",
        "eth1",
        "eth2",
        "/opt/ompi/bin/mpirun",
        "/opt/ompi/bin/orted",
    }
    assert "MPI=1" in needed["h2", "/opt/t/all_reduce_perf"]


@pytest.mark.parametrize(
    ("options", "at"),
    [
        ({"operations": ["all-reduce", "broadcast"]}, "operations"),
        ({"sizes": ["1mb", "3mb", "6mb"]}, "sizes"),
        ({"sizes": ["1mb", "1mb"]}, "sizes"),
        ({"sizes": ["2mb", "1mb"]}, "sizes"),
        ({"algorithm": "ring"}, "algorithm"),
        ({"python": "/py"}, "python"),
        ({"rdma_device": "mlx5_0"}, "rdma_device"),
        ({"backend": "nccl", "nccl_tests": "/opt/t"}, "nccl_tests"),
        ({"backend": "nccl", "mpirun": "mpirun"}, "mpirun"),
    ],
)
def test_what_it_cannot_do_is_a_problem(options: dict[str, object], at: str) -> None:
    config, _ = made(**options)
    assert [problem.at for problem in collective.problems(config, topology())] == [(at,)]


def test_without_gpus_there_is_nothing_to_measure() -> None:
    config, _ = made(hosts=["h1", "h2"])
    (first, _) = collective.problems(config, topology(gpus=0))
    assert first.message == "nccl-tests needs a GPU for each rank, and rank 0 on h1 has none"


def test_sizes_are_whole_shares_of_all_ranks() -> None:
    assert nccl_tests.sizes([1000.0, 8000.0], 3, 1) == (1008, 8064)
    assert nccl_tests.sizes([5.0], 4, 1) == (64,)


def test_theory_counts_what_the_programs_do_beside_what_they_time() -> None:
    config, job = made(hosts=["h1", "h2"], sizes=["1mb"], repeats=3)
    found = collective.theory(config, job, topology())
    assert found.bytes_per_iteration == 2 * (1 + 3 + 1) * 1e6  # of an all-reduce of two, each sends as much as it has


def test_a_line_of_results_has_two_times() -> None:
    size, (beside, in_place) = row_of(SECOND)
    assert size == 4096
    assert beside == (pytest.approx(0.12), 0)
    assert in_place == (pytest.approx(40.5e-6), 0)
    assert all(row_of(line) is None for line in HEAD.splitlines())
    assert row_of("rack-1:8021:8021 [0] NCCL INFO Channel 00/02 : 0 1 and so on, until it has thirteen words") is None


def logged(folder, lines):
    passes = Passes(TOLD)
    passes.take(lines, "stdout")
    return passes, *(
        [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for name in ("iterations.jsonl", "collectives.jsonl")
    )


def test_an_iteration_is_a_pass_over_all_sizes(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    passes, iterations, rows = logged(
        tmp_path, [*HEAD.splitlines(), FIRST, SECOND, FIRST, "NCCL INFO x", SECOND, FIRST]
    )
    assert (passes.matched, passes.count) == (5, 2)
    assert [record["iteration"] for record in iterations] == [0, 1]
    assert iterations[0]["mono_end_ns"] == iterations[1]["mono_start_ns"]
    assert iterations[0]["samples"] == 12
    assert [(row["iteration"], row["bytes"]) for row in rows] == [
        (0, 1024),
        (0, 1024),
        (0, 4096),
        (0, 4096),
        (1, 1024),
        (1, 1024),
        (1, 4096),
        (1, 4096),
        (2, 1024),
        (2, 1024),
    ]
    assert [row["seconds"] for row in rows[:2]] == [pytest.approx(20e-6), pytest.approx(10e-6)]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["invalid option 'N'"], "too old"),
        ([*HEAD.splitlines()[:3], FIRST], "runs with 1 of 2 ranks: was it built with MPI=1"),
        ([*HEAD.splitlines(), FIRST.replace("0.05      0", "0.05      7")], "7 wrong values after all-reduce of 1024"),
        ([*HEAD.splitlines(), FIRST, FIRST], "measured 1024 bytes where 4096 were due"),
    ],
)
def test_what_would_be_a_wrong_result_ends_it(tmp_path, monkeypatch, lines, reason) -> None:
    monkeypatch.chdir(tmp_path)
    passes = Passes(TOLD)
    with pytest.raises(SystemExit, match=reason):
        passes.take(lines, "stdout")
