"""Graphs of tasks: every workload's send what its theory says, and ranks compute as long as its model does."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.experiment import fitting, loading
from orchestrator.parts import registry
from orchestrator.parts.taskgraph import NOWHERE, TaskGraph
from orchestrator.parts.topology import Job
from workloads.common import collective_tasks, placement

MODEL = {"model": "resnet50", "compute_time": "100ms"}
SHAPE = {"layers": 4, "hidden": 512, "sequence": 256, "vocabulary": 1000}
RECORDED = Path(__file__).parents[3] / "playbooks/recordings/resnet50-ddp"
PAIRED = ["h1", "h1", "h2", "h2", "h3", "h3", "h4", "h4"]

WORKLOADS: dict[str, dict[str, Any]] = {
    "ddp": {"ddp": MODEL},
    "ddp, two ranks a host": {"ddp": {**MODEL, "hosts": PAIRED}},
    "ptd": {
        "ptd": {
            "model": SHAPE,
            "pipeline": 2,
            "tensor": 2,
            "data": 2,
            "batch": 4,
            "microbatches": 4,
            "compute_time": "100ms",
            "hosts": PAIRED,
        }
    },
    "fsdp": {"fsdp": MODEL},
    "fsdp, gathered once": {"fsdp": {**MODEL, "reshard": False}},
    "zero 1": {"deepspeed": {**MODEL, "zero_stage": 1}},
    "zero 2": {"deepspeed": {**MODEL, "zero_stage": 2, "microbatches": 2}},
    "zero 3": {"deepspeed": {**MODEL, "zero_stage": 3}},
    "a pipeline": {"deepspeed": {**MODEL, "zero_stage": 0, "pipeline_stages": 2, "activation": "1mb"}},
    "a recording": {"chakra": {"traces": str(RECORDED), "hosts": ["h1", "h2", "h3"]}},
    "moe": {"moe": {"model": SHAPE, "experts": 8, "compute_time": "100ms"}},
    "horovod": {"horovod": MODEL},
    "horovod on mpi": {"horovod": {**MODEL, "controller": "mpi", "algorithm": "rabenseifner"}},
    "horovod on mpi by doubling": {"horovod": {**MODEL, "controller": "mpi", "algorithm": "recursive-doubling"}},
    "mirrored": {"tensorflow": {**MODEL, "strategy": "multi-worker-mirrored"}},
    "kungfu": {"kungfu": {**MODEL, "strategy": "CLIQUE"}},
    "collectives": {
        "collective": {
            "operations": ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send-receive"],
            "sizes": ["1mb"],
            "repeats": 2,
        }
    },
    "servers": {
        "tensorflow": {**MODEL, "strategy": "parameter-server", "servers": ["h1", "h2"], "hosts": ["h3", "h4"]}
    },
    "servers by layer": {
        "tensorflow": {**MODEL, "strategy": "parameter-server", "order": "layer", "hosts": ["h2", "h3", "h4"]}
    },
    **{
        f"p2p in order {order}": {"p2p": {**MODEL, "strategy": "parameter-server", "servers": 2, "order": order}}
        for order in ("ready", "layer", "random", "tic")
    },
    "p2p by a graph": {
        "p2p": {**MODEL, "model": "inception_v3", "strategy": "parameter-server", "order": "tac", "graph": True}
    },
    "p2p round-robin": {"p2p": {**MODEL, "strategy": "pair-averaging", "peers": "round-robin"}},
    **{
        f"p2p {strategy}": {"p2p": {**MODEL, "strategy": strategy}}
        for strategy in ("ring", "halving-doubling", "parameter-server", "star", "tree", "binary-tree-star", "clique")
    },
}
OTHERWISE = ("moe", "a recording", "collectives", "p2p parameter-server", "a pipeline")
COMPUTES = {name for name in WORKLOADS if name not in OTHERWISE and not name.startswith(("p2p in order", "p2p by"))}


def graph_of(tmp_path: Path, workload: dict[str, Any]) -> tuple[TaskGraph, Job, Any]:
    file = tmp_path / "e.yaml"
    testbed = {"local": {"hosts": 4, "link": "25gbit", "scale": 100}}
    made = {"name": "t", "testbed": testbed, "workload": workload, "measure": {"iterations": 10}}
    file.write_text(yaml.safe_dump(made))
    experiment, _ = loading.checked(file, [], local=False)
    topology = fitting.topology_of(experiment)
    choice = experiment.all_jobs()[0].workload
    job = Job(name="training", index=0, ranks=placement.ranks(choice.config.hosts, topology))
    module: Any = registry.workload(choice.name)
    return module.tasks(choice.config, job, topology), job, module.theory(choice.config, job, topology)


def between_hosts(graph: TaskGraph, job: Job) -> dict[tuple[str, str], float]:
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    nodes = [*(rank.node for rank in job.ranks), *graph.servers]
    for owner, peer, size, times in zip(graph.owners, graph.peers, graph.sizes, graph.times, strict=True):
        if peer != NOWHERE:
            src, dst = (nodes[place % graph.width] for place in (owner, peer))
            if src != dst:
                found[src, dst] += size * times / graph.cycle
    return found


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_graph_sends_what_the_workloads_theory_says(name: str, tmp_path: Path) -> None:
    graph, job, theory = graph_of(tmp_path, WORKLOADS[name])
    sent = between_hosts(graph, job)
    assert sum(size for (src, _), size in sent.items() if src in job.nodes) / len(job.ranks) == pytest.approx(
        theory.bytes_per_iteration, rel=0.01
    )
    for src, dst, size in theory.pairs:
        assert sent[src, dst] == pytest.approx(size, rel=0.02), f"{src} to {dst}"


@pytest.mark.parametrize("name", sorted(COMPUTES))
def test_a_graph_computes_as_long_as_its_model(name: str, tmp_path: Path) -> None:
    graph, _, _ = graph_of(tmp_path, WORKLOADS[name])
    assert graph.computed_s[0] == pytest.approx(0.1, rel=0.05)
    assert sum(graph.seconds[end] for end in graph.ends) == 0.0, "emulated compute has no step of its own"


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_graph_has_no_circle_but_that_of_iterations(name: str, tmp_path: Path) -> None:
    graph, _, _ = graph_of(tmp_path, WORKLOADS[name])
    left = [len(waits) for waits in graph.waits]
    then: defaultdict[int, list[int]] = defaultdict(list)
    for task, waits in enumerate(graph.waits):
        for other in waits:
            then[other].append(task)
    ready = [task for task, count in enumerate(left) if not count]
    assert set(ready) == set(graph.begins), "only the beginnings wait for nothing"
    done = 0
    while ready:
        done += 1
        for task in then[ready.pop()]:
            left[task] -= 1
            if not left[task]:
                ready.append(task)
    assert done == len(graph.owners)


@pytest.mark.parametrize("world", [2, 3, 5])
def test_a_ring_sends_twice_its_share_from_each_rank_to_the_one_before(world: int) -> None:
    graph = TaskGraph(ranks=world)
    done = collective_tasks.ring_all_reduce(graph, range(world), 1e6, {r: (graph.begins[r],) for r in range(world)})
    graph.end([done[rank] for rank in range(world)])
    sent: defaultdict[tuple[int, int], float] = defaultdict(float)
    for owner, peer, size, times in zip(graph.owners, graph.peers, graph.sizes, graph.times, strict=True):
        if peer != NOWHERE:
            sent[owner, peer] += size * times
    wanted = {(rank, (rank - 1) % world): 2 * (world - 1) / world * 1e6 for rank in range(world)}
    assert sent == pytest.approx(wanted)


def test_what_has_no_model_says_why(tmp_path: Path) -> None:
    for workload, words in (({"deepspeed": {**MODEL, "zero_stage": 3, "prefetch": "1mb"}}, "prefetch"),):
        found, _, _ = graph_of(tmp_path, workload)
        assert isinstance(found, str)
        assert words in found
