"""The TensorFlow workload: who is told what, who sends what to whom in theory, and what is refused."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from orchestrator.parts.launch import Launch, Listening
from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from workloads import tensorflow
from workloads.common import trained_model
from workloads.common.placement import ranks
from workloads.rank.tensorflow.parameter_server import transfers

HOSTS = ("h1", "h2", "h3", "h4")
MIRRORED = {"strategy": "multi-worker-mirrored"}
SERVED = {"strategy": "parameter-server", "hosts": ["h3", "h4"], "servers": ["h1", "h2"]}


def topology(*, scale: int = 1) -> Topology:
    nodes = tuple(
        Node(name=name, rails=(Rail(address=f"10.0.0.{name[1]}", device="eth0"),), python="/opt/py") for name in HOSTS
    )
    links = tuple(Link(host=node.name, device=node.first.device, rate=25e9) for node in nodes)
    return Topology(kind="inventory", nodes=nodes, links=links, scale=scale)


def made(where: Topology, options: dict[str, object]) -> tuple[tensorflow.Config, Job]:
    config = tensorflow.Config.model_validate({"model": "resnet50", **options})
    return config, Job(name="job0", index=1, ranks=ranks(config.hosts, where))


def told(launch: Launch) -> dict[str, object]:
    found: dict[str, object] = json.loads(launch.env["TF_CONFIG"])
    return found


def test_every_task_knows_the_cluster_and_itself() -> None:
    where = topology()
    config, job = made(where, {**SERVED, "hosts": ["h3", "h3", "h1"]})
    started = tensorflow.launches(config, job, where, seed=1)
    cluster = {
        "ps": ["10.0.0.1:29700", "10.0.0.2:29700"],
        "worker": ["10.0.0.3:29700", "10.0.0.3:29701", "10.0.0.1:29701"],
    }
    assert [told(launch) for launch in started] == [
        {"cluster": cluster, "task": {"type": kind, "index": index}}
        for kind, index in (("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1), ("worker", 2))
    ]
    servers, workers = started[:2], started[2:]
    assert [(one.node, one.rank, one.gate, one.ready) for one in servers] == [
        ("h1", None, False, Listening(29700)),
        ("h2", None, False, Listening(29700)),
    ]
    assert [(one.node, one.rank, one.gate) for one in workers] == [("h3", 0, True), ("h3", 1, True), ("h1", 2, True)]
    assert max(one.order for one in servers) < min(one.order for one in workers)
    ends = {(flow.src, flow.dst) for launch in started for flow in launch.flows}
    assert ("10.0.0.3", "10.0.0.2") in ends, "what a worker and a server send each other is training, too"


def test_transfers_are_told_by_tensorflows_labels() -> None:
    """As 2.15.1 writes them: of two variables one arrived and one gradient left, and a control edge is no transfer."""
    worker, server = "/job:worker/replica:0/task:1/device:CPU:0", "/job:ps/replica:0/task:2/device:CPU:0"

    def node(label: str, size: int, name: str = "RecvTensor") -> SimpleNamespace:
        allocated = SimpleNamespace(allocation_description=SimpleNamespace(requested_bytes=size))
        return SimpleNamespace(
            node_name=name,
            timeline_label=label,
            all_start_micros=1_000,
            all_end_rel_micros=28,
            output=[SimpleNamespace(tensor_description=allocated)],
        )

    stats = SimpleNamespace(
        dev_stats=[
            SimpleNamespace(
                device=worker,
                node_stats=[
                    node(f"[0.8MB] [5.2Gb/s] edge_9_Read/ReadVariableOp from {server} to {worker}", 800_000),
                    node(f"[0B] [0.000000Mb/s] edge_36_GroupControlEdges_0/Identity_2 from {server} to {worker}", 0),
                    node("mul = Mul(Identity, Const)", 800_000, "mul"),
                ],
            ),
            SimpleNamespace(
                device=server, node_stats=[node(f"[1.1MB] [23.7Gb/s] edge_32_mul_1 from {worker} to {server}", 9)]
            ),
        ]
    )
    assert list(transfers(stats)) == [
        ("receive", "Read/ReadVariableOp, server 2", 800_000, 1_000, 1_028),
        ("send", "mul_1, server 2", 9, 1_000, 1_028),
    ]


def test_a_trace_takes_parameter_servers() -> None:
    where = topology()
    config, _ = made(where, {**MIRRORED, "trace": True})
    assert [problem.at for problem in tensorflow.problems(config, where)] == [("trace",)]
    config, job = made(where, {**SERVED, "trace": True})
    assert tensorflow.problems(config, where) == []
    worker = tensorflow.launches(config, job, where, seed=1)[-1]
    assert json.loads(worker.files["config.json"])["trace"] is True


def test_an_order_takes_parameter_servers() -> None:
    where = topology()
    config, _ = made(where, {**MIRRORED, "order": "layer"})
    assert [problem.at for problem in tensorflow.problems(config, where)] == [("order",)]
    for order in (None, "any", "layer", "reverse"):
        config, job = made(where, {**SERVED, "order": order})
        assert tensorflow.problems(config, where) == []
        worker = tensorflow.launches(config, job, where, seed=1)[-1]
        assert json.loads(worker.files["config.json"])["order"] == order


def test_without_servers_there_are_workers_alone() -> None:
    where = topology(scale=100)
    config, job = made(where, {**MIRRORED, "pack": "25MB", "communication": "ring", "checksum": True})
    started = tensorflow.launches(config, job, where, seed=1)
    assert [launch.rank for launch in started] == [0, 1, 2, 3]
    assert set(told(started[0])["cluster"]) == {"worker"}  # type: ignore[call-overload]
    assert all(launch.argv[-1] == "--checksum" for launch in started)
    content = started[0].files["config.json"]
    assert isinstance(content, bytes)
    settings = json.loads(content)
    assert (settings["communication"], settings["pack_bytes"]) == ("ring", 250_000)


def test_the_ring_turns_with_the_ranks() -> None:
    where = topology()
    config, job = made(where, MIRRORED)
    found = tensorflow.theory(config, job, where)
    edge = 2 * 3 / 4 * 4 * 25_557_032
    assert found.bytes_per_iteration == pytest.approx(edge)
    assert found.spread == "first", "gRPC knows one address a host"
    assert set(found.pairs) == {("h1", "h2", edge), ("h2", "h3", edge), ("h3", "h4", edge), ("h4", "h1", edge)}


def test_every_worker_fetches_and_sends_the_whole_model_by_way_of_all_servers() -> None:
    where = topology(scale=100)
    config, job = made(where, SERVED)
    found = tensorflow.theory(config, job, where)
    sizes = {(src, dst): size for src, dst, size in found.pairs}
    model = 4 * 255_570
    assert (found.bytes_per_iteration, found.spread) == (model, "first")
    for worker in ("h3", "h4"):
        assert sizes["h1", worker] + sizes["h2", worker] == model
        assert all(sizes[server, worker] == sizes[worker, server] for server in ("h1", "h2"))
    variables = [size for _, _, layer in trained_model.layers(config, where) for size in layer]
    assert sizes["h1", "h3"] == 4 * sum(variables[::2]), "variables are placed in turn"
    assert len(sizes) == 8


def test_what_a_worker_and_a_server_of_one_host_exchange_crosses_no_network() -> None:
    where = topology(scale=100)
    config, job = made(where, {**SERVED, "hosts": ["h1", "h2"], "servers": ["h1"]})
    found = tensorflow.theory(config, job, where)
    model = 4 * 255_570
    assert set(found.pairs) == {("h1", "h2", model), ("h2", "h1", model)}
    assert found.bytes_per_iteration == model, "the mean over the ranks' hosts, of which one is a server's, too"


@pytest.mark.parametrize(
    ("options", "at", "said"),
    [
        ({**MIRRORED, "communication": "nccl"}, ("communication",), "GPU"),
        ({**MIRRORED, "servers": ["h1"]}, ("servers",), "no servers"),
        ({**SERVED, "servers": ["h9"]}, ("servers", 0), "no host 'h9'"),
        ({**SERVED, "servers": ["h3", "h4"]}, ("servers",), "every worker's host"),
        ({**SERVED, "checksum": True}, ("checksum",), "weights of its own"),
        ({**SERVED, "pack": "1MB"}, ("pack",), "by itself"),
        ({**SERVED, "communication": "ring"}, ("communication",), "among themselves"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, object], at: tuple[str | int, ...], said: str) -> None:
    where = topology()
    config, _ = made(where, options)
    problem = tensorflow.problems(config, where)[0]
    assert problem.at == at
    assert said in problem.message
    assert problem.accepted


def test_servers_need_the_framework_like_workers() -> None:
    where = topology()
    config, job = made(where, SERVED)
    needed = tensorflow.requirements(config, job, where)
    assert {need.node for need in needed if need.what == "tensorflow"} == set(HOSTS)
    assert all("--only tensorflow" in need.remedy for need in needed if need.kind == "module")
