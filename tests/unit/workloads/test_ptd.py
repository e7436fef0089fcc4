"""Tensor, pipeline and data parallel: who works with whom, in which order, and how much travels."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.parts.topology import Job, Link, Node, Rail, Topology
from workloads import ptd
from workloads.common.placement import ranks
from workloads.models import catalog, gpt
from workloads.rank.torch.parallel import ends, groups, one_forward_one_backward, places

MIB = 2**20


def topology(hosts: int = 4, *, scale: int = 1) -> Topology:
    nodes = tuple(Node(name=f"h{i}", rails=(Rail(address=f"10.0.0.{i}", device="eth0"),)) for i in range(1, hosts + 1))
    links = tuple(Link(host=node.name, device="eth0", rate=25e9) for node in nodes)
    return Topology(kind="local", nodes=nodes, links=links, scale=scale)


def config(**options: object) -> ptd.Config:
    return ptd.Config.model_validate({"model": "gpt-3b", "compute_time": "1s", **options})


def li(**options: object) -> ptd.Config:
    """The GPT of Li's table 3 on 32 GPUs, eight a host."""
    hosts = [f"h{1 + rank // 8}" for rank in range(32)]
    return config(pipeline=4, tensor=2, data=4, recompute=True, hosts=hosts, **options)


def theory(chosen: ptd.Config, where: Topology):
    assert ptd.problems(chosen, where) == []
    return ptd.theory(chosen, Job(name="j", index=0, ranks=ranks(chosen.hosts, where)), where)


@given(stages=st.integers(1, 8), microbatches=st.integers(1, 12))
def test_1f1b_ends_and_passes_every_microbatch_once(stages: int, microbatches: int) -> None:
    todo = [one_forward_one_backward(stage, stages, microbatches) for stage in range(stages)]
    for stage, steps in enumerate(todo):
        for kind in ("forward", "backward"):
            assert [number for what, number in steps if what == kind] == list(range(microbatches))
        held = most = 0
        for what, _ in steps:
            held += 1 if what == "forward" else -1
            most = max(most, held)
        assert most == min(stages - stage, microbatches), "activations that a stage keeps"
    done: set[tuple[int, str, int]] = set()
    while any(todo):
        moved = False
        for stage, steps in enumerate(todo):
            if not steps:
                continue
            kind, number = steps[0]
            if kind == "forward":
                needs = None if stage == 0 else (stage - 1, "forward", number)
            else:
                needs = (stage, "forward", number) if stage == stages - 1 else (stage + 1, "backward", number)
            if needs is None or needs in done:
                done.add((stage, *steps.pop(0)))
                moved = True
        assert moved, "every stage waits for another"


@given(
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)),
    order=st.permutations(["pipeline", "tensor", "data"]),
)
def test_groups_cover_all_ranks_and_cross_in_one(sizes: tuple[int, int, int], order: list[str]) -> None:
    where = places(sizes, order)
    assert sorted(where) == sorted(places(sizes, ["data", "tensor", "pipeline"]))
    for dimension in range(3):
        found = groups(where, dimension)
        assert sorted(rank for members in found for rank in members) == list(range(len(where)))
        for members in found:
            assert [where[rank][dimension] for rank in members] == list(range(sizes[dimension]))
    assert len(ends(where)) == (sizes[1] * sizes[2] if sizes[0] > 1 else 0)


@pytest.mark.parametrize("name", gpt.names())
@pytest.mark.parametrize("pipeline", [1, 4])
def test_stages_together_hold_the_model(name: str, pipeline: int) -> None:
    stages = gpt.stages(gpt.shape_of(name), pipeline=pipeline, tensor=1)
    twice = stages[-1].embedding if pipeline > 1 else 0
    assert sum(stage.parameters for stage in stages) - twice == catalog.load(name).parameters
    assert sum(stage.flops for stage in stages) == sum(layer.flops for layer in catalog.load(name).layers)


def test_rank_0_sends_what_li_measured() -> None:
    """Table 3 of Li: 680 messages of 125 MB, 16 of 125 MB, one of 741 MB, one of 96 MB (their MB are MiB)."""
    chosen = li()
    sizes = ptd.messages(chosen, 1)
    first = gpt.stages(gpt.shape_of("gpt-3b"), pipeline=4, tensor=2)[0]
    assert chosen.microbatches * first.all_reduces(recompute=True) == 680
    assert sizes.activation * 2 / MIB == 125
    assert sizes.gradients[0] * 2 / MIB == pytest.approx(741, abs=0.5)
    assert sizes.embedding * 2 / MIB == pytest.approx(96, abs=0.5)
    sent = {
        kind: sum(size for (src, _), size in pairs.items() if src == 0)
        for kind, pairs in ptd.traffic(chosen, 1).items()
    }
    # A ring of two sends as much as the message is, one of four half as much again.
    assert sent["tensor"] / MIB == 680 * 125
    assert sent["pipeline"] / MIB == 8 * 125
    assert sent["data"] / MIB == pytest.approx(741 * 1.5, abs=1)
    assert sent["embedding"] / MIB == pytest.approx(96, abs=0.5)


def crossing(chosen: ptd.Config) -> dict[str, float]:
    """Bytes of each kind that leave a host."""
    host = [rank.node for rank in ranks(chosen.hosts, topology())]
    return {
        kind: sum(size for (src, dst), size in pairs.items() if host[src] != host[dst])
        for kind, pairs in ptd.traffic(chosen, 1).items()
    }


def test_the_mapping_decides_what_crosses_the_network() -> None:
    """Figures 3 and 12 of Li: stages apart and replicas together, or the other way round."""
    default, customized = crossing(li()), crossing(li(mapping="customized"))
    assert default["tensor"] == customized["tensor"] == 0
    assert default["data"] == customized["pipeline"] == 0
    assert default["pipeline"] > 0
    assert customized["data"] > 0
    tensor_apart = crossing(li(mapping=["data", "pipeline", "tensor"]))
    assert tensor_apart["tensor"] > 10 * (default["pipeline"] + customized["data"])


def test_an_explicit_mapping_is_that_of_its_order() -> None:
    given_list = [list(place) for place in places((4, 2, 4), ["tensor", "pipeline", "data"])]
    assert ptd.placed(li(mapping=given_list)) == ptd.placed(li(mapping="customized"))
    assert theory(li(mapping=given_list), topology()) == theory(li(mapping="customized"), topology())


def test_pairs_of_hosts_add_up_to_the_mean_over_ranks() -> None:
    found = theory(li(), topology())
    assert found.bytes_per_iteration == pytest.approx(sum(size for *_, size in found.pairs) / 32)
    # Stages are hosts here, and only neighbours talk, but for the embedding table between the first and the last.
    assert {pair[:2] for pair in found.pairs} == {
        (a, b) for a, b in (("h1", "h2"), ("h2", "h3"), ("h3", "h4"), ("h1", "h4"))
    } | {(b, a) for a, b in (("h1", "h2"), ("h2", "h3"), ("h3", "h4"), ("h1", "h4"))}


def test_compute_time_is_what_a_rank_computes_in_the_mean_over_stages() -> None:
    for recompute in (False, True):
        chosen = config(pipeline=4, recompute=recompute, microbatches=5)
        where = topology()
        (launch, *_) = ptd.launches(chosen, Job(name="j", index=0, ranks=ranks(None, where)), where, 7)
        told = json.loads(launch.files["config.json"])  # type: ignore[arg-type]
        spent: defaultdict[int, float] = defaultdict(float)
        for number, stage in enumerate(told["stages"]):
            once = stage["blocks"] * (stage["attention_s"] + stage["feed_forward_s"])
            spent[number] = 5 * ((once + stage["head_s"]) * (1 + stage["backward"]) + recompute * once)
        # What is done again are the blocks, not the projection on words.
        expected = 1.0 - (0.25 * 4 * _head_share(told) if recompute else 0) / 4
        assert sum(spent.values()) / 4 == pytest.approx(expected, rel=1e-6)


def _head_share(told: dict) -> float:
    forward = sum(s["blocks"] * (s["attention_s"] + s["feed_forward_s"]) + s["head_s"] for s in told["stages"])
    return sum(s["head_s"] for s in told["stages"]) / forward


@pytest.mark.parametrize(
    ("options", "at"),
    [
        ({"pipeline": 2}, "hosts"),
        ({"pipeline": 4, "model": {"layers": 3, "hidden": 8, "sequence": 8, "vocabulary": 8}}, "pipeline"),
        ({"tensor": 4, "model": {"layers": 4, "hidden": 6, "sequence": 8, "vocabulary": 8}}, "tensor"),
        ({"pipeline": 4, "mapping": ["tensor", "tensor", "data"]}, "mapping"),
        ({"pipeline": 4, "mapping": [[0, 0, 0], [1, 0, 0], [2, 0, 0], [2, 0, 0]]}, "mapping"),
        ({"pipeline": 4, "backend": "nccl"}, "backend"),
        ({"pipeline": 4, "transport": "rdma"}, "transport"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], at: str) -> None:
    (problem,) = ptd.problems(config(**options), topology())
    assert problem.at == (at,)
    assert problem.accepted
