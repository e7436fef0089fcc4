"""Predictions: Li's equations, DDP's buckets and their overlap, 1F1B on paper, inputs, settings, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from orchestrator.analysis.windows import time_shares
from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.experiment import loading
from orchestrator.parts.theory import Bucket, Replicated
from orchestrator.predict import inputs, messages, predicting, whatif
from orchestrator.predict.network_costs import Costs, Network, Quantity, Rates, all_reduce_s, network, sends_s
from orchestrator.predict.pipeline import Schedule, StageTimes
from tests.helpers.experiments import orch
from tests.helpers.free_rates import FREE
from workloads.common.replicated_tasks import buckets
from workloads.models import catalog, formulation

MIB = 2**20

PTD = """\
name: t
testbed: {local: {hosts: 4, link: 100gbit, scale: 100}}
workload:
  ptd: {model: gpt-3b, pipeline: 4, tensor: 2, data: 4, recompute: true, compute_time: 10s, hosts: HOSTS}
measure: {iterations: 10}
""".replace("HOSTS", str([f"h{1 + rank // 8}" for rank in range(32)]))
DDP = """\
name: t
testbed: {local: {hosts: 4, link: 25gbit, scale: 100}}
workload:
  ddp: {model: resnet50}
measure: {iterations: 10}
"""


def subject(tmp_path: Path, text: str, *overrides: str) -> predicting.Subject:
    file = tmp_path / "e.yaml"
    file.write_text(text)
    experiment, _ = loading.checked(file, overrides, local=False)
    return predicting.subject(experiment, file=str(file))


def exact(value: float) -> Quantity:
    return Quantity(value=value, low=value, high=value, source="a test")


def costs(**values: float) -> Costs:
    return Costs(**{name: exact(values.get(name, 1.0 if name == "link_factor" else 0.0)) for name in Rates.__slots__})


def li() -> formulation.Split:
    return formulation.Split(p=4, t=2, d=4, m=8, b=32)


def test_equations_give_the_numbers_that_the_paper_prints() -> None:
    assert formulation.message_bytes(b=32, s=1024, h=2000) == 125 * MIB
    assert formulation.parameters(layers=54, h=2000, s=1024, vocabulary=50304) == pytest.approx(2_696_060_000)
    assert formulation.bubble_share(li()) == pytest.approx(3 / 11)
    # Equation 2 has 648 messages where table 3 prints 680: those of the words and of their projection are not in it.
    message = 125 * MIB
    assert formulation.tensor_s(li(), layers=54, message=message, c=1.0) == pytest.approx(648 * message)
    assert formulation.pipeline_s(li(), message=message, c=1.0) == pytest.approx(16 * message)
    flops = formulation.iteration_flops(b=1, s=1024, layers=54, h=2000, vocabulary=50304)
    # "each model parameter and input token requires roughly eight": the sequence's and the words' shares come on top.
    assert flops / (formulation.parameters(layers=54, h=2000, s=1024, vocabulary=50304) * 1024) == pytest.approx(
        8, rel=0.1
    )


def test_the_bubble_of_equation_5_is_equation_7s_share_of_the_rest() -> None:
    times = formulation.iteration(
        li(), layers=54, message=1e6, parameters=1e9, compute_s=4.0, c_tensor=1e9, c_pipeline=1e9, c_data=1e9
    )
    assert times.bubble_s / (times.iteration_s - times.data_s) == pytest.approx(3 / 11)


def test_a_dimension_of_one_rank_has_no_traffic() -> None:
    alone = formulation.Split(p=1, t=1, d=1, m=8, b=32)
    times = formulation.iteration(
        alone, layers=54, message=1e6, parameters=1e9, compute_s=4.0, c_tensor=1e3, c_pipeline=1e3, c_data=1e3
    )
    assert times.iteration_s == 4.0


@pytest.mark.parametrize(
    ("first", "sizes"), [(None, [79.6, 392.0, 27.0, 27.0, 2.1]), (1.0, [15.6, 64.0, 392.0, 27.0, 27.0, 2.1])]
)
def test_vgg16s_buckets_are_those_of_pytorch(first: float | None, sizes: list[float]) -> None:
    layers = [
        (layer.forward_s, layer.backward_s, list(layer.sizes))
        for layer in catalog.emulate(catalog.load("vgg16"), compute_s=1.0, scale=1)
    ]
    found = buckets(layers, cap=25 * MIB, first=None if first is None else first * MIB, element_bytes=4)
    assert [round(one.size / MIB, 1) for one in found] == sizes
    assert sum(one.size for one in found) == 4 * catalog.load("vgg16").parameters
    assert [one.ready_s for one in found] == sorted(one.ready_s for one in found)
    assert found[-1].ready_s == pytest.approx(2 / 3)


def test_table_3_comes_out_of_a_prediction(tmp_path: Path) -> None:
    found = {one.kind: one for one in messages.of_rank(subject(tmp_path, PTD), 0)}
    assert {kind: one.count for kind, one in found.items()} == {
        "tensor": 680,
        "pipeline": 16,
        "data": 1,
        "embedding": 1,
    }
    assert {kind: round(one.size / MIB) for kind, one in found.items()} == {
        "tensor": 125,
        "pipeline": 125,
        "data": 741,
        "embedding": 96,
    }
    assert found["tensor"].volume == pytest.approx(85_000 * MIB, rel=1e-6)
    assert found["pipeline"].volume == pytest.approx(1_000 * MIB, rel=1e-6)
    assert found["data"].sent == pytest.approx(1.5 * found["data"].volume)


def test_an_even_pipeline_has_the_bubble_of_equation_7() -> None:
    times = [StageTimes(forward_s=1.0, backward_s=2.0, send_s=0.0, data_s=0.0)] * 4
    for course in Schedule(times, microbatches=8, embedding_s=0.0, step_s=0.0).courses():
        assert course.waited_s / course.period_s == pytest.approx(3 / 11)


def test_a_slow_stage_sets_the_pace_of_all() -> None:
    quick = StageTimes(forward_s=1.0, backward_s=2.0, send_s=0.0, data_s=0.0)
    slow = StageTimes(forward_s=10.0, backward_s=20.0, send_s=0.0, data_s=0.0)
    (first, _, last) = Schedule([quick, quick, slow], microbatches=4, embedding_s=0.0, step_s=0.0).courses()
    assert first.period_s == pytest.approx(4 * 30 + 2 * 3)
    assert first.waited_s == pytest.approx(first.period_s - 4 * 3)
    assert last.waited_s == pytest.approx(6.0)


def test_sends_gradients_and_the_table_add_to_an_iteration() -> None:
    def period(**changes: float) -> float:
        times = StageTimes(**{"forward_s": 1.0, "backward_s": 2.0, "send_s": 0.0, "data_s": 0.0, **changes})
        return Schedule([times] * 2, microbatches=1, embedding_s=0.0, step_s=0.0).courses()[0].period_s

    assert period() == pytest.approx(6.0)
    assert period(send_s=0.5) == pytest.approx(7.0)
    assert period(data_s=0.25) == pytest.approx(6.25)
    times = [StageTimes(forward_s=1.0, backward_s=2.0, send_s=0.0, data_s=0.0)] * 2
    assert Schedule(times, microbatches=1, embedding_s=0.5, step_s=0.1).courses()[0].period_s == pytest.approx(6.6)


def replicated(*ready: tuple[int, float], backward_s: float = 1.0) -> Replicated:
    made = tuple(Bucket(size=size, ready_s=ready_s) for size, ready_s in ready)
    return Replicated(ranks=2, forward_s=0.5, backward_s=backward_s, passes=1, buckets=made)


TWO = Network(node_of=("a", "b"), out_bps={"a": 100.0, "b": 100.0}, in_bps={"a": 100.0, "b": 100.0}, one_machine=True)


@pytest.mark.parametrize(
    ("ready", "exposed_s"),
    [
        ([(10, 0.5)], 0.0),  # done at 0.6
        ([(10, 1.0)], 0.1),
        ([(80, 0.5), (10, 1.0)], 0.4),  # the second one waits for the links
        ([(10, 0.5), (10, 0.5), (100, 0.5)], 0.7),
    ],
)
def test_buckets_go_through_the_links_one_after_the_other(ready: list[tuple[int, float]], exposed_s: float) -> None:
    terms = predicting.replicated_terms(replicated(*ready), TWO, FREE)
    assert terms.data_s == pytest.approx(exposed_s)
    assert terms.iteration_s == pytest.approx(1.5 + exposed_s)


def test_communication_is_hidden_up_to_the_end_of_the_backward_pass() -> None:
    terms = predicting.replicated_terms(replicated((80, 0.5)), TWO, FREE)
    assert (terms.data_s, terms.hidden_s) == (pytest.approx(0.3), pytest.approx(0.5))


def test_accumulated_passes_travel_once(tmp_path: Path) -> None:
    once, twice = (
        predicting.predict(subject(tmp_path, DDP, f"workload.ddp.accumulate={passes}"), costs()) for passes in (1, 2)
    )
    assert twice.terms.data_s == pytest.approx(once.terms.data_s)
    assert twice.terms.compute_s == pytest.approx(2 * once.terms.compute_s)


def test_groups_that_share_a_link_share_its_rate(tmp_path: Path) -> None:
    one = subject(tmp_path, PTD)
    net = network(one.job, one.topology)
    size = 1e6
    across = [[rank, rank + 8] for rank in range(8)]  # eight pairs between the same two hosts
    alone = all_reduce_s(across[:1], size, net=net, rates=FREE)
    assert all_reduce_s(across, size, net=net, rates=FREE) == pytest.approx(8 * alone)
    inside = [[rank, rank + 1] for rank in range(0, 8, 2)]
    assert all_reduce_s(inside, size, net=net, rates=FREE) == 0.0


def test_a_condition_on_a_rate_limits_its_direction(tmp_path: Path) -> None:
    free, limited = (
        predicting.predict(subject(tmp_path, DDP, *overrides), costs())
        for overrides in ((), ("conditions=[{rate: {where: switch-port, host: h2, rate: 5gbit}}]",))
    )
    assert limited.terms.data_s > free.terms.data_s


def test_fitted_inputs_are_those_that_made_the_times() -> None:
    known = {
        "round_s": 2e-4,
        "link_factor": 1.1,
        "inside_round_s": 1e-4,
        "inside_byte_s": 5e-10,
        "message_s": 1e-4,
        "byte_s": 3e-9,
    }
    rates = costs(**known).at("value")
    slow, fast, inner, within = (
        Network(
            node_of=tuple(nodes),
            out_bps=dict.fromkeys(nodes, rate),
            in_bps=dict.fromkeys(nodes, rate),
            one_machine=True,
            behind_s=1.0,
        )
        for nodes, rate in (("abcd", 1e6), ("abcd", 1e9), ("aabb", 1e9), ("aaaa", 1e9))
    )
    timed = []
    for where in (slow, fast, inner, within):
        for size in (1e3, 1e4, 1e5, 1e6):
            pairs, rounds = inputs.all_reduced([range(4)], size)
            seconds = all_reduce_s([range(4)], size, net=where, rates=rates)
            timed.append(inputs.Timed(pairs=pairs, rounds=rounds, network=where, seconds=seconds))
            ways = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3), (2, 0)]
            seconds = sends_s(ways, size, net=where, rates=rates)
            timed.append(inputs.Timed(pairs=dict.fromkeys(ways, size), rounds=1, network=where, seconds=seconds))
    found = inputs.fitted(timed, costs(), source="RUN")
    for name, value in known.items():
        quantity = getattr(found, name)
        assert quantity.value == pytest.approx(value, rel=1e-3)
        assert quantity.low <= quantity.value <= quantity.high
        assert "RUN" in quantity.source
    with pytest.raises(StoreError, match="2 timed messages, and 4 quantities"):
        inputs.fitted(timed[:2], costs(), source="RUN")


def test_what_cannot_be_predicted_is_refused_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    for text, reason in ((DDP + "conditions:\n  - ecn: {where: nic, host: h1, share: 1%}\n", "condition ecn"),):
        file.write_text(text)
        status, out, err = orch("predict", str(file), "--results", str(tmp_path))
        assert (status, out) == (2, ""), text
        assert reason in err
        assert len(err.strip().splitlines()) == 1
        assert str(file) in err


def test_settings_are_predicted_in_every_combination_and_the_quickest_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(DDP)
    quick = ("--draws", "1", "--grain", "flows", "--results", str(tmp_path / "none"))
    options = ("--what-if", "link=10gbit,100gbit", "--what-if", "bucket=5mb,50mb", *quick)
    status, out, _ = orch("predict", str(file), *options, "-o", str(tmp_path / "drawn.svg"))
    assert status == 0
    assert "best: link=100gbit, bucket=5mb" in out
    assert (tmp_path / "drawn.svg").exists()
    status, out, _ = orch("predict", str(file), *options, "--json")
    found = json.loads(out)["settings"]
    assert len(found) == 4
    assert all(one["low_s"] < one["iteration_s"] < one["high_s"] for one in found)
    assert all(
        sum(one["terms"].values()) - one["terms"]["hidden"] == pytest.approx(one["iteration_s"]) for one in found
    )


def test_all_splits_are_those_that_the_model_and_its_ranks_allow(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(PTD.replace("gpt-3b", "{layers: 6, hidden: 1000, sequence: 64, vocabulary: 100}"))
    found = whatif.settings(file, (), whatif.axes(["ptd=all"]), local=False)
    splits = {one.label.removeprefix("ptd=") for one in found}
    assert "4x2x4" in splits
    assert "2x16x1" not in splits  # 1000 is not divided by 16
    assert "8x1x4" not in splits  # six blocks
    with pytest.raises(ConfigError, match="2x2x4"):
        whatif.settings(file, (), whatif.axes(["ptd=2x2"]), local=False)
    file.write_text(DDP)
    with pytest.raises(ConfigError, match="is not split"):
        whatif.settings(file, (), whatif.axes(["ptd=all"]), local=False)
    with pytest.raises(ConfigError, match="not KEY=VALUE"):
        whatif.axes(["mapping"])


def span(rank: int, name: str, what: str, peer: int, ms: tuple[int, int]) -> dict[str, object]:
    begin_ms, end_ms = ms
    lane = "compute" if name in ("forward", "backward") else "communication"
    return {
        "job": "training",
        "rank": rank,
        "window_name": "w1",
        "iteration": 7,
        "lane": lane,
        "span": name,
        "what": what,
        "peer": peer,
        "start_ns": begin_ms * 1_000_000,
        "end_ns": end_ms * 1_000_000,
    }


def test_a_receive_is_moving_from_when_its_sender_has_begun() -> None:
    spans = [
        span(0, "forward", "microbatch 0", -1, (0, 100)),
        span(0, "all-reduce", "tensor, microbatch 0", -1, (100, 110)),
        span(0, "send", "microbatch 0", 1, (110, 130)),
        span(1, "receive", "microbatch 0", 0, (0, 130)),  # waits for 110 ms, receives for 20
        span(1, "backward", "microbatch 0", -1, (130, 180)),
        span(1, "send", "microbatch 0", 0, (180, 240)),  # the receiver came at 200
        span(0, "receive", "microbatch 0", 1, (200, 240)),
        span(0, "all-reduce", "data", -1, (240, 250)),
        span(0, "all-reduce", "embedding", -1, (250, 265)),
        span(1, "all-reduce", "embedding", -1, (245, 265)),
    ]
    rows = [{"job": "training", "rank": rank, "window_name": "w1", "iteration": 7, "seconds": 0.3} for rank in (0, 1)]
    tables = {"spans": pa.Table.from_pylist(spans), "iterations": pa.Table.from_pylist(rows)}
    found = time_shares.of_stages(tables, "training", ends=[[0, 1]])
    assert found[1].pipeline_s == pytest.approx(0.020)
    assert found[1].bubble_s == pytest.approx(0.3 - 0.050 - 0.020 - 0.015)
    assert found[0].pipeline_s == pytest.approx(0.040)
    assert (found[0].compute_s, found[0].tensor_s, found[0].data_s) == pytest.approx((0.1, 0.01, 0.01))
    assert found[0].embedding_s == found[1].embedding_s == pytest.approx(0.015)
    assert all(terms.iteration_s == pytest.approx(0.3) for terms in found.values())


def test_a_split_model_sends_between_stages_and_its_ranks_spend_the_same_period(tmp_path: Path) -> None:
    predicted = predicting.predict(subject(tmp_path, PTD), costs(round_s=1e-3, inside_round_s=1e-3, piece_s=1e-4))
    assert len(predicted.ranks) == 32
    assert all(terms.iteration_s == pytest.approx(predicted.iteration_s, rel=1e-6) for terms in predicted.ranks)
    assert predicted.terms.pipeline_s > 0
    assert predicted.terms.tensor_s == pytest.approx(680 * 2e-3), "within a host: rounds alone"
    free = predicting.predict(subject(tmp_path, PTD), costs())
    assert free.terms.bubble_s / (free.iteration_s - free.terms.data_s - free.terms.embedding_s) == pytest.approx(
        3 / 11, abs=0.06
    )


def test_splits_are_compared_at_the_same_work(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(PTD)  # 8 micro-batches of 4 replicas
    found = {
        one.label: one.experiment.all_jobs()[0].workload.config
        for one in whatif.settings(file, (), whatif.axes(["ptd=4x2x4,8x2x2,1x1x32"]), local=False)
    }
    assert {label: one.microbatches for label, one in found.items()} == {
        "ptd=4x2x4": 8,
        "ptd=8x2x2": 16,
        "ptd=1x1x32": 1,
    }
    assert {one.compute_time for one in found.values()} == {10.0}
    with pytest.raises(ConfigError, match="cannot be divided among 64 replicas"):
        whatif.settings(file, (), whatif.axes(["ptd=1x1x64"]), local=False)


def test_an_accelerator_gives_the_compute_time_of_equation_9(tmp_path: Path) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(PTD)
    slow, quick = (
        one.experiment.all_jobs()[0].workload.config.compute_time
        for one in whatif.settings(file, (), whatif.axes(["accelerator=71tflops@30%,142tflops@30%"]), local=False)
    )
    parameters = formulation.parameters(layers=54, h=2000, s=1024, vocabulary=50304)
    assert slow == pytest.approx(8 * 8 * parameters * 32 * 1024 / (4 * 2 * 0.3 * 71e12))
    assert quick == pytest.approx(slow / 2)
    file.write_text(DDP)
    (one,) = whatif.settings(file, (), whatif.axes(["accelerator=100tflops@50%"]), local=False)
    flops = 3 * 64 * sum(layer.flops for layer in catalog.load("resnet50").layers)
    assert one.experiment.all_jobs()[0].workload.config.compute_time == pytest.approx(flops / 50e12)
    for text in ("71tflops", "71tflops@0%", "71tflops@300%", "fast"):
        with pytest.raises(ConfigError, match="not an accelerator"):
            whatif.settings(file, (), whatif.axes([f"accelerator={text}"]), local=False)


def test_links_of_an_inventory_are_all_of_the_rate_that_is_named(tmp_path: Path) -> None:
    rack = Path(__file__).parents[3] / "playbooks/testbeds/example-rack.yaml"  # one of its links is slower
    file = tmp_path / "e.yaml"
    file.write_text(DDP.replace("{local: {hosts: 4, link: 25gbit, scale: 100}}", f"{{inventory: {rack}}}"))
    as_it_is, named = (
        {
            predicting.subject(one.experiment, file="e").network.out_bps[host]
            for one in whatif.settings(file, (), whatif.axes(options), local=False)
            for host in ("h1", "h4")
        }
        for options in ([], ["link=100gbit"])
    )
    assert as_it_is == {25e9 / 8, 10e9 / 8}
    assert named == {100e9 / 8}


def test_buckets_take_rail_after_rail_with_gloo_and_all_at_once_with_nccl(tmp_path: Path) -> None:
    """Ten buckets that are ready at once, each of a second of a rail."""
    work = Replicated(
        ranks=2,
        buckets=tuple(Bucket(size=100.0, ready_s=0.0) for _ in range(10)),
        forward_s=0.0,
        backward_s=0.0,
        passes=1,
    )
    found = {}
    for rails in (1, 2, 4):
        node_of, rate = ("h1", "h2"), {"h1": 100.0, "h2": 100.0}
        net = Network(node_of=node_of, out_bps=rate, in_bps=rate, one_machine=False, rails=rails)
        found[rails] = predicting.replicated_terms(work, net, FREE).data_s
    assert found == {1: pytest.approx(10.0), 2: pytest.approx(5.0), 4: pytest.approx(5.0)}, "two are under way at most"
    two = DDP.replace("scale: 100", "scale: 100, rails: 2")
    one_rail, of_gloo = subject(tmp_path, DDP).network, subject(tmp_path, two).network
    assert (one_rail.rails, of_gloo.rails, of_gloo.out_bps) == (1, 2, one_rail.out_bps)
    told = subject(tmp_path, two)
    even = network(told.job, told.topology, spread="even")
    assert (even.rails, even.out_bps["h1"]) == (1, 2 * one_rail.out_bps["h1"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (PTD.replace("scale: 100", "scale: 100, rails: 2"), "what each group of ptd sends over which"),
        (
            DDP.replace("scale: 100", "scale: 100, rails: 2")
            + "conditions: [{rate: {host: h1, where: nic, rate: 1gbit, rail: 1}}]\n",
            "rail 1 has a rate of its own; accepted: one for all 2 rails",
        ),
    ],
)
def test_rails_that_no_model_knows_are_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        subject(tmp_path, text)
