"""Simulations at both grains: closed forms, conservation of bytes, shares, queues, losses, and refusals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from orchestrator.core.errors import ConfigError
from orchestrator.experiment import fitting, loading
from orchestrator.experiment.experiment import Experiment
from orchestrator.parts import registry
from orchestrator.parts.protocols import Sent, Source
from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.topology import Job
from orchestrator.predict import foreseeing, foreseentext, inputs, network_costs, predicting
from orchestrator.predict.foreseeing import How
from orchestrator.predict.foreseentext import ForeseenSetting
from orchestrator.predict.network_costs import Rates
from orchestrator.predict.simulation import links, packets, simulating
from orchestrator.predict.simulation.simulating import Grain, Simulated, SimulatedJob
from tests.helpers.free_rates import FREE
from tests.unit.predict.test_predict import exact
from workloads.common import collective_tasks, placement
from workloads.common.collective_tasks import Done, Ready

GRAINS: tuple[Grain, ...] = ("flows", "packets")
LINK = 250e6 / 8  # bytes a second, scaled
HEADERS = 1514 / 1448


def experiment(tmp_path: Path, **changes: Any) -> Experiment:
    file = tmp_path / "e.yaml"
    made: dict[str, Any] = {
        "name": "t",
        "testbed": {"local": {"hosts": 4, "link": "25gbit", "scale": 100}},
        "workload": {"ddp": {"model": "resnet50", "hosts": ["h1", "h2", "h3"]}},
        "measure": {"iterations": 10, "warmup": 0},
    }
    file.write_text(yaml.safe_dump(made | changes, sort_keys=False))
    return loading.checked(file, [], local=False)[0]


def simulated(
    tmp_path: Path,
    graph: TaskGraph,
    grain: Grain,
    *,
    traffic: list[Sent] | None = None,
    rates: Rates = FREE,
    iterations: int = 5,
    warmup: int = 0,
    seed: int = 1,
    notice: float = packets.NOTICE_BYTES,
    **changes: Any,
) -> Simulated:
    made = experiment(tmp_path, **changes)
    topology = fitting.topology_of(made)
    hosts = [host.name for host in topology.hosts][: graph.ranks]
    job = Job(name="training", index=0, ranks=placement.ranks(hosts, topology))
    return simulating.simulate(
        [SimulatedJob(job=job, graph=graph)],
        links.network(made, topology),
        traffic or [],
        rates,
        warmup=warmup,
        iterations=iterations,
        seed=seed,
        grain=grain,
        notice=notice,
    )


def sends(ranks: int, *ways: tuple[int, int, float]) -> TaskGraph:
    """Messages that all begin at once."""
    graph = TaskGraph(ranks=ranks)
    done: list[list[int]] = [[begin] for begin in graph.begins]
    for src, dst, size in ways:
        done[dst].append(graph.send(src, dst, size, (graph.begins[src], graph.begins[dst])))
    everything = [task for own in done for task in own]
    graph.end([everything for _ in range(ranks)])
    return graph


def ring(ranks: int, size: float) -> TaskGraph:
    graph = TaskGraph(ranks=ranks)
    everyone = range(ranks)
    done = collective_tasks.ring_all_reduce(graph, everyone, size, {rank: (graph.begins[rank],) for rank in everyone})
    graph.end([done[rank] for rank in everyone])
    return graph


def unrolled_pass(
    graph: TaskGraph, ordered: Sequence[int], size: float, ready: Ready, *, step: int, rails: Sequence[int] = (0,)
) -> Done:
    """A pass of a ring with tasks of its own for each segment of each rank."""
    world = len(ordered)
    wanted = max(math.ceil(size / collective_tasks.SEGMENT_BYTES), collective_tasks.LEAST_SEGMENTS * world)
    parts = math.ceil(wanted / world)
    posted = {rank: graph.join(rank, ready[rank]) for rank in ordered}
    received: list[dict[int, tuple[int, ...]]] = []
    for number in range(parts * (world - 1)):
        if number:
            before = received[number - 2] if number > 1 else {}
            posted = {rank: graph.join(rank, (posted[rank], *before.get(rank, ()))) for rank in ordered}
        arriving = {}
        for place, rank in enumerate(ordered):
            to = ordered[(place + step) % world]
            each = size / (parts * world) / len(rails)
            arriving[to] = tuple(graph.send(rank, to, each, (posted[rank], posted[to]), rail=rail) for rail in rails)
        received.append(arriving)
    return {rank: tuple(task for one in received[-2:] for task in one[rank]) for rank in ordered}


@pytest.mark.parametrize(("ranks", "per_host"), [(2, 1), (3, 1), (8, 1), (8, 2), (64, 8)])
def test_a_ring_takes_as_long_as_if_each_segment_were_a_task(
    ranks: int, per_host: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside web search, with delays and costs: the same iterations, two reductions of which share each link.

    Of packets that leave at one instant chance decides which is the first, and so which is dropped.
    """
    hosts = [f"h{1 + rank // per_host}" for rank in range(ranks)]
    last = f"h{1 + ranks // per_host}"
    made = experiment(
        tmp_path,
        testbed={"local": {"hosts": 1 + ranks // per_host, "link": "25gbit", "scale": 100}},
        workload={"ddp": {"model": "resnet50", "hosts": hosts}},
        traffic=[{"websearch": {"from": last, "to": "h1", "load": "16gbit"}}],
        conditions=[{"delay": {"host": "h1", "time": "100us"}}],
        measure={"iterations": 4, "warmup": 0},
    )
    costs = inputs.usual(fitting.topology_of(made))

    def found(grain: Grain) -> list[float]:
        job = foreseeing.foresee(made, costs, file="x", how=How(draws=1, grain=grain))[0].jobs[0]
        return [job.mean.value, job.p50.value, job.p99.value]

    grains = GRAINS if per_host == 1 else ("flows",)  # within a host both segments of a round arrive at one instant
    compact = [found(grain) for grain in grains]
    monkeypatch.setattr(collective_tasks, "ring_pass", unrolled_pass)
    assert [found(grain) for grain in grains] == [pytest.approx(one, rel=1e-9, abs=0.0) for one in compact]


@pytest.mark.parametrize("load", ["0gbit", "16gbit"])
def test_a_ring_of_fewer_segments_takes_about_as_long(
    load: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth of the segments, each of which costs ten rounds, as in a ring of a thousand ranks."""
    made = experiment(
        tmp_path,
        testbed={"local": {"hosts": 49, "link": "25gbit", "scale": 100}},
        workload={"ddp": {"model": "resnet50", "hosts": [f"h{1 + rank}" for rank in range(48)]}},
        traffic=[{"websearch": {"from": "h49", "to": "h1", "load": load}}],
        measure={"iterations": 20, "warmup": 0},
    )
    known = {"round_s": exact(1e-4), "message_s": exact(1e-4), "byte_s": exact(1e-9)}
    costs = replace(inputs.usual(fitting.topology_of(made)), **known)

    def mean_s() -> float:
        found = foreseeing.foresee(made, costs, file="x", how=How(draws=1, grain="flows"))
        return found[0].jobs[0].mean.value

    unrolled_s = mean_s()
    monkeypatch.setattr(collective_tasks, "MOST_MESSAGES", 48 * 94 // 10)
    assert mean_s() == pytest.approx(unrolled_s, rel=0.03)


def test_tasks_of_a_ring_grow_with_its_ranks_and_not_with_their_square() -> None:
    graph = ring(512, 1e6)
    assert len(graph.owners) <= 18 * 512, "two phases of an even and an odd part, of four tasks each, and two ends"
    assert graph.sent == pytest.approx(2 * 511 * 1e6)


def test_tasks_that_take_place_unevenly_are_refused(tmp_path: Path) -> None:
    graph = TaskGraph(ranks=1)
    twice = graph.join(0, (graph.begins[0],), times=2)
    graph.end([(graph.join(0, (twice,), times=3),)])
    with pytest.raises(ValueError, match="3 times"):
        simulated(tmp_path, graph, "flows")


@pytest.mark.parametrize(("grain", "payload"), [("flows", 1.0), ("packets", HEADERS)])
def test_a_message_takes_its_bytes_over_the_links_rate(grain: Grain, payload: float, tmp_path: Path) -> None:
    found = simulated(tmp_path, sends(2, (0, 1, 5e6)), grain)
    assert found.seconds["training"].mean() == pytest.approx(5e6 * payload / LINK, rel=0.03)


@pytest.mark.parametrize(("grain", "payload"), [("flows", 1.0), ("packets", HEADERS)])
def test_two_messages_to_one_host_share_its_link(grain: Grain, payload: float, tmp_path: Path) -> None:
    found = simulated(tmp_path, sends(3, (0, 2, 5e6), (1, 2, 5e6)), grain)
    assert found.seconds["training"].mean() == pytest.approx(1e7 * payload / LINK, rel=0.05)


def test_what_one_flow_cannot_use_another_gets(tmp_path: Path) -> None:
    """Of three flows two share the narrow link to h3; the third has what they leave of the sender's (max-min)."""
    narrow = [{"rate": {"where": "switch-port", "host": "h3", "rate": "5gbit"}}]
    found = simulated(tmp_path, sends(4, (0, 2, 1e6), (1, 2, 1e6), (0, 3, 9e6)), "flows", conditions=narrow)
    assert found.seconds["training"].mean() == pytest.approx(2e6 / (LINK / 5), rel=0.01), "9 MB pass meanwhile"
    assert found.use["h1 nic"] == pytest.approx(10e6 / (2e6 / (LINK / 5)) / LINK, rel=0.01)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize(("grain", "payload"), [("flows", 1.0), ("packets", 1.07)])
def test_a_ring_takes_its_share_of_bytes_over_the_links_rate(
    ranks: int, grain: Grain, payload: float, tmp_path: Path
) -> None:
    """2 (n - 1) / n of the bytes cross each link, with headers and acknowledgements where packets are simulated."""
    size = 4e6
    found = simulated(tmp_path, ring(ranks, size), grain, warmup=2, notice=0.0)
    wanted = 2 * (ranks - 1) / ranks * size * payload / LINK
    assert np.median(found.seconds["training"]) == pytest.approx(wanted, rel=0.04)


@pytest.mark.parametrize("grain", GRAINS)
def test_each_round_of_a_ring_costs_a_message(grain: Grain, tmp_path: Path) -> None:
    cost_s = 5e-3
    quick, dear = (
        np.median(simulated(tmp_path, ring(4, 4e3), grain, rates=rates, warmup=1).seconds["training"])
        for rates in (FREE, Rates(**{name: getattr(FREE, name) for name in Rates.__slots__} | {"round_s": cost_s}))
    )
    assert dear - quick == pytest.approx(6 * cost_s, rel=0.02)


@pytest.mark.parametrize("grain", GRAINS)
def test_busy_processors_hold_up_each_round_and_no_longer_than_they_fall_behind(grain: Grain, tmp_path: Path) -> None:
    """A ring of 3 MB over 25 Gbit/s at scale 100: four rounds of two segments, 34 ms on a link for each."""
    ranks, size = 3, 3e6

    def seconds(**costs: float) -> float:
        rates = replace(FREE, **costs)
        return float(simulated(tmp_path, ring(ranks, size), grain, rates=rates).seconds["training"].mean())

    free_s = seconds()
    sent = 2 * (ranks - 1) * size
    assert seconds(byte_s=0.5 * free_s / sent) == pytest.approx(free_s, rel=0.02)
    assert seconds(wake_s=1e-7) == pytest.approx(free_s, rel=0.02)
    behind_s = network_costs.BEHIND_S
    for costs in ({"byte_s": 3 * free_s / sent}, {"wake_s": 3 * free_s * 1514 / sent}):
        # Of packets later ones leave later, too: windows grow by acknowledgements.
        assert seconds(**costs) == pytest.approx(free_s + 4 * behind_s, rel=0.05 if grain == "flows" else 0.25)


@pytest.mark.parametrize("grain", GRAINS)
def test_processors_deal_with_one_message_after_the_other(grain: Grain, tmp_path: Path) -> None:
    ways = [(src, dst, 100.0) for src in range(3) for dst in range(3) if src != dst]
    rates = replace(FREE, message_s=2e-3)
    once, twice = (
        simulated(tmp_path, sends(3, *ways[:count]), grain, rates=rates).seconds["training"].mean() for count in (3, 6)
    )
    assert once == pytest.approx(3 * 2e-3, rel=0.1)
    assert twice == pytest.approx(6 * 2e-3, rel=0.1)


def test_hosts_that_are_machines_of_their_own_share_no_processors(tmp_path: Path) -> None:
    made = experiment(tmp_path)
    topology = fitting.topology_of(made)
    here, there = (links.network(made, topology, hardware=hardware).links for hardware in (False, True))
    assert all(link.wakes > 0 for link in here)
    assert all(link.wakes == 0 for link in there)
    usual = inputs.usual(replace(topology, kind="inventory"))
    assert (usual.message_s.high, usual.byte_s.high, usual.wake_s.high) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("grain", GRAINS)
def test_links_carry_what_ranks_send(grain: Grain, tmp_path: Path) -> None:
    size = 3e6
    found = simulated(tmp_path, sends(3, (0, 1, size), (1, 2, 2 * size)), grain)
    payload = HEADERS if grain == "packets" else 1.0
    carried = {name: use * found.duration_s * LINK for name, use in found.use.items()}
    acknowledged = 0.025 * 2 * size * 5 if grain == "packets" else 1.0
    assert carried["h1 nic"] == pytest.approx(5 * size * payload, rel=0.02)
    assert carried["h2 nic"] == pytest.approx(5 * 2 * size * payload, rel=0.03)
    assert carried["h3 nic"] == pytest.approx(0.0, abs=acknowledged)
    assert carried["h3 switch-port"] == pytest.approx(5 * 2 * size * payload, rel=0.02)


@pytest.mark.parametrize("grain", GRAINS)
def test_a_paced_stream_takes_its_rate_from_a_message(grain: Grain, tmp_path: Path) -> None:
    """Half of the link is asked for, and a message that shares it fairly has the other half."""
    period_s = 1e-3
    block = round(LINK / 2 * period_s)
    stream = [Sent(n * period_s, "h3", "h2", 0, block, float(block), 0) for n in range(5000)]
    found = simulated(tmp_path, sends(3, (0, 1, 5e6)), grain, traffic=stream, warmup=1)
    payload = HEADERS if grain == "packets" else 1.0
    assert np.median(found.seconds["training"]) == pytest.approx(2 * 5e6 * payload / LINK, rel=0.12)


@pytest.mark.parametrize("grain", GRAINS)
def test_the_same_seed_gives_the_same_times(grain: Grain, tmp_path: Path) -> None:
    flows = [Sent(0.01 * n, "h4", "h1", 0, 200_000, 209_000.0) for n in range(100)]
    first, same, other = (
        simulated(tmp_path, ring(3, 3e6), grain, traffic=flows, seed=seed).seconds["training"] for seed in (1, 1, 2)
    )
    assert (first == same).all()
    assert grain == "flows" or (first != other).any()


def test_losses_and_delays_make_packets_late(tmp_path: Path) -> None:
    plain = simulated(tmp_path, ring(3, 1e6), "packets").seconds["training"].mean()
    delay = [{"delay": {"host": "h1", "time": "5ms"}}]
    delayed = simulated(tmp_path, ring(3, 1e6), "packets", conditions=delay).seconds["training"].mean()
    loss = [{"loss": {"host": "h1", "share": "2%"}}]
    lossy = simulated(tmp_path, ring(3, 1e6), "packets", conditions=loss, iterations=20).seconds["training"]
    short = simulated(tmp_path, ring(3, 6e3), "packets", conditions=loss, iterations=40).seconds["training"]
    assert delayed > plain + 2 * 5e-3, "in each of its two phases a segment goes through h1"
    assert plain * 1.05 < np.median(lossy) < 0.2, "losses are repaired by what follows"
    assert short.max() > 0.2 > np.median(short), "behind the last segment nothing follows: it waits for a time-out"


@pytest.mark.parametrize(
    ("peers", "size", "stalls"),
    [(1, 8e3, 0), (1, 64e3, 0), (2, 16e3, 0), (3, 8e3, 0), (3, 16e3, 10), (6, 8e3, 50), (6, 64e3, 50)],
)
def test_a_message_of_which_the_hosts_own_queue_takes_nothing_waits_for_a_timer(
    peers: int, size: float, stalls: int, tmp_path: Path
) -> None:
    """How many of 50 rounds wait is as it was measured: `python -m tests.bench local_drops` repeats it.

    No counter tells of it: nothing was sent, so that nothing was lost and no time-out took place.
    """
    graph = TaskGraph(ranks=peers + 1)
    ready = [graph.compute(rank, 0.02, (graph.begins[rank],)) for rank in range(peers + 1)]
    sent = [graph.send(0, peer, size, (ready[0], ready[peer])) for peer in range(1, peers + 1)]
    graph.end([sent for _ in range(peers + 1)])
    queue = {"local": {"hosts": 8, "link": "25gbit", "scale": 400, "queue": "1ms"}}
    waited = simulated(tmp_path, graph, "packets", iterations=50, testbed=queue, notice=0.0).seconds["training"] - 0.02
    found = int((waited > 0.15).sum())
    assert found == 0 if stalls == 0 else found >= stalls / 2, f"{found} of 50 wait"


def test_a_message_that_is_announced_is_tried_again_with_the_notices_acknowledgement(tmp_path: Path) -> None:
    """Of plain sockets one to each of three peers waits: with gloo's notices something is under way meanwhile."""
    graph = TaskGraph(ranks=4)
    ready = [graph.compute(rank, 0.02, (graph.begins[rank],)) for rank in range(4)]
    sent = [graph.send(0, peer, 16e3, (ready[0], ready[peer])) for peer in range(1, 4)]
    graph.end([sent for _ in range(4)])
    queue = {"local": {"hosts": 8, "link": "25gbit", "scale": 400, "queue": "1ms"}}
    plain, announced = (
        simulated(tmp_path, graph, "packets", iterations=50, testbed=queue, notice=notice).seconds["training"] - 0.02
        for notice in (0.0, packets.NOTICE_BYTES)
    )
    assert (announced > 0.15).sum() < (plain > 0.15).sum() / 2


@pytest.mark.parametrize("strategy", ["ring", "star"])
def test_paced_streams_leave_room_in_the_hosts_own_queue_for_messages(strategy: str, tmp_path: Path) -> None:
    """Measured medians were 171 and 250 ms; refused streams that shrink at each try make them 700 and 440."""
    hosts = ["h1", "h2", "h3", "h4"]
    iperf = {"iperf": {"from": "h1", "to": "h5", "load": "8gbit", "streams": 4}}
    made = experiment(
        tmp_path,
        testbed={"local": {"hosts": 5, "link": "25gbit", "scale": 400}},
        workload={"p2p": {"strategy": strategy, "model": "resnet50", "hosts": hosts}},
        windows=[{"name": "alone", "traffic": []}, {"name": "beside", "traffic": [iperf]}],
        measure={"warmup": 3, "iterations": 22},
    )
    how = How(draws=1, grain="packets", salt="one")
    alone, beside = foreseeing.foresee(made, inputs.usual(fitting.topology_of(made)), file="x", how=how)
    assert beside.jobs[0].p50.value < 1.5 * alone.jobs[0].p50.value


def test_a_full_queue_drops_and_tcp_recovers(tmp_path: Path) -> None:
    """Four senders to one host fill its queue of 5 ms; the link stays busy, and all bytes arrive."""
    ways = [(src, 3, 3e6) for src in range(3)]
    found = simulated(tmp_path, sends(4, *ways), "packets", iterations=5)
    wanted = 9e6 * HEADERS / LINK
    assert wanted <= found.seconds["training"].min() * 1.01
    assert np.median(found.seconds["training"]) < 1.5 * wanted


def test_a_slower_job_beside_it_makes_a_job_slower(tmp_path: Path) -> None:
    spec = {"ddp": {"model": "vgg16", "hosts": ["h1", "h2"]}}
    one = {"jobs": [{"name": "a", "workload": spec}], "workload": None}
    two = {"jobs": [{"name": "a", "workload": spec}, {"name": "b", "workload": spec}], "workload": None}
    alone, beside = (
        foreseeing.foresee(made, inputs.usual(fitting.topology_of(made)), file="x", how=How(draws=1))[0]
        .jobs[0]
        .mean.value
        for made in (jobs_of(tmp_path, one), jobs_of(tmp_path, two))
    )
    assert beside > 1.2 * alone


def jobs_of(tmp_path: Path, changes: dict[str, Any]) -> Experiment:
    file = tmp_path / "e.yaml"
    testbed = {"local": {"hosts": 4, "link": "25gbit", "scale": 100}}
    made = {"name": "t", "testbed": testbed, "measure": {"iterations": 5}, **changes}
    file.write_text(yaml.safe_dump({name: value for name, value in made.items() if value is not None}))
    return loading.checked(file, [], local=False)[0]


def test_without_traffic_it_says_what_the_terms_say(tmp_path: Path) -> None:
    for model in ("resnet50", "vgg16"):
        made = experiment(tmp_path, workload={"ddp": {"model": model}})
        nothing = network_costs.assumed(0.0, low=0.0, high=0.0, source="processors are free")
        costs = replace(inputs.usual(fitting.topology_of(made)), message_s=nothing, byte_s=nothing, wake_s=nothing)
        (window,) = foreseeing.foresee(made, costs, file="x", how=How(draws=1, grain="flows"))
        terms = predicting.predict(predicting.subject(made, file="x"), costs)
        assert window.jobs[0].mean.value == pytest.approx(terms.iteration_s, rel=0.06)


def traffic_of(tmp_path: Path, source: dict[str, Any], seconds: float) -> list[Sent]:
    made = experiment(tmp_path, traffic=[source])
    choice = made.all_windows()[0].traffic[0]
    part: Any = registry.traffic(choice.name)
    asked = Source(name="x0", window="w1", port=15201, duration_s=seconds, seed=7)
    return list(part.sent(choice.config, asked, fitting.topology_of(made)))


@pytest.mark.parametrize(
    "source",
    [
        {"websearch": {"from": "h4", "to": "h1", "load": "10gbit"}},
        {"websearch": {"from": ["h3", "h4"], "to": ["h1", "h2"], "load": "10gbit"}},
        {
            "websearch": {
                "from": "h4",
                "to": "h1",
                "load": "10gbit",
                "burst": {"width": "1ms", "period": "10ms", "height": 3},
            }
        },
        {"iperf": {"from": "h4", "to": "h1", "load": "10gbit", "streams": 3}},
        {"udp": {"from": "h4", "to": "h1", "load": "10gbit", "streams": 2}},
        {"incast": {"from": ["h3", "h4"], "to": "h1", "answer": "12mb", "period": "20ms"}},
    ],
    ids=["one sender", "several", "bursts", "iperf", "udp", "incast"],
)
def test_what_is_sent_carries_its_load(source: dict[str, Any], tmp_path: Path) -> None:
    sent = traffic_of(tmp_path, source, 8.0)
    assert sum(one.wire for one in sent) * 8 / 8.0 == pytest.approx(100e6, rel=0.05)
    assert all(before.at_s <= after.at_s for before, after in itertools.pairwise(sent))
    assert {one.dst for one in sent} <= {"h1", "h2"}


def test_a_replayed_file_is_sent_again_and_again(tmp_path: Path) -> None:
    (tmp_path / "flows.csv").write_text("start_s,bytes\n0.0,100000\n0.5,200000\n")
    source = {"replay": {"from": "h4", "to": "h1", "schedule": "flows.csv", "length": "1s"}}
    sent = traffic_of(tmp_path, source, 2.2)
    assert [(one.at_s, one.size) for one in sent] == [(0, 1000), (0.5, 2000), (1.0, 1000), (1.5, 2000), (2.0, 1000)]


def test_more_load_takes_longer_and_the_run_of_a_salt_has_its_flows(tmp_path: Path) -> None:
    means = []
    for load in ("0gbit", "10gbit", "18gbit"):
        source = [{"websearch": {"from": "h4", "to": "h1", "load": load}}]
        made = experiment(tmp_path, traffic=source)
        costs = inputs.usual(fitting.topology_of(made))
        first, again = (foreseeing.foresee(made, costs, file="x", how=How(draws=1, salt="abc")) for _ in range(2))
        assert first == again
        means.append(first[0].jobs[0].mean.value)
    assert means[0] < means[1] < means[2]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("websearch0", {"websearch": {"from": "h4", "to": "h1", "load": "18gbit"}}),
        ("checkpoint0", {"checkpoint": {"from": ["h2"], "to": ["h1"], "size": "2gb", "period": "2s"}}),
    ],
)
def test_without_a_source_the_window_is_as_if_it_were_not_there(
    name: str, source: dict[str, Any], tmp_path: Path
) -> None:
    made = experiment(tmp_path, traffic=[source])
    plain = experiment(tmp_path)
    costs = inputs.usual(fitting.topology_of(made))
    less, none = (
        foreseeing.foresee(one, costs, file="x", how=How(draws=1))[0].jobs[0].mean.value
        for one in (foreseeing.without(made, [name]), plain)
    )
    assert less == pytest.approx(none)
    with pytest.raises(ConfigError, match=f"accepted: {name}"):
        foreseeing.without(made, ["iperf"])


def test_a_load_that_links_cannot_carry_is_told(tmp_path: Path) -> None:
    flood = [Sent(1e-5 * n, "h4", "h1", 0, 100_000, 104_000.0) for n in range(100_000)]
    for grain in GRAINS:
        with pytest.raises(ConfigError, match="cannot carry"):
            simulated(tmp_path, ring(3, 8e6), grain, traffic=flood, iterations=50)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"conditions": [{"ecn": {"where": "nic", "host": "h1", "share": "1%"}}]}, "condition ecn"),
        ({"workload": {"command": {"argv": ["true"], "iterations": {"pattern": "(?P<seconds>1)"}}}}, "command"),
        (
            {
                "testbed": {"local": {"hosts": 3, "link": "1gbit"}},
                "workload": {"ddp": {"model": "small_cnn", "compute": "real", "data": "gratings"}},
            },
            "real compute",
        ),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_its_reason(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    made = experiment(tmp_path, **changes)
    with pytest.raises(ConfigError, match=words):
        foreseeing.foresee(made, inputs.usual(fitting.topology_of(made)), file="x.yaml", how=How(draws=1))


def test_the_number_of_draws_is_bounded(tmp_path: Path) -> None:
    made = experiment(tmp_path)
    for draws in (0, 10**6):
        with pytest.raises(ConfigError, match="accepted: 1 to"):
            foreseeing.foresee(made, inputs.usual(fitting.topology_of(made)), file="x", how=How(draws=draws))


def test_the_congestion_point_lies_between_loads() -> None:
    assert foreseeing.congestion_bps([(0.0, 1.0), (10e9, 1.0), (20e9, 1.2)]) == pytest.approx(15e9)
    assert math.isnan(foreseeing.congestion_bps([(0.0, 1.0), (20e9, 1.05)]))


@pytest.mark.parametrize("other", [None, "4gbit"])
def test_the_congestion_point_is_the_load_of_what_differs(tmp_path: Path, other: str | None) -> None:
    found = []
    for load in ("0gbit", "8gbit", "22gbit"):
        sources = [{"iperf": {"from": "h4", "to": "h1", "load": load}}]
        sources += [{"iperf": {"from": "h5", "to": "h6", "load": other}}] if other else []
        made = experiment(tmp_path, traffic=sources, testbed={"local": {"hosts": 6, "link": "25gbit", "scale": 100}})
        costs = inputs.usual(fitting.topology_of(made))
        windows = foreseeing.foresee(made, costs, file="x", how=How(draws=1, grain="flows"))
        found.append(ForeseenSetting(label=load, windows=windows, measured={}))
    assert 8e9 < foreseentext.congestion(found) < 22e9
    assert foreseentext.congestion(found) == foreseeing.congestion_bps(
        [(load, one.windows[0].jobs[0].mean.value) for load, one in zip((0.0, 8e9, 22e9), found, strict=True)]
    )
    assert math.isnan(foreseentext.congestion(found[:1]))


def datagrams(share: float) -> list[Sent]:
    """Three seconds of datagrams to h2 that ask for a share of its link."""
    period_s = 1514 / (share * LINK)
    return [Sent(n * period_s, "h3", "h2", 0, 1472, 1514.0, 0, datagram=True) for n in range(round(3.0 / period_s))]


@pytest.mark.parametrize("grain", GRAINS)
def test_datagrams_take_what_they_ask_for(grain: Grain, tmp_path: Path) -> None:
    """Three quarters of the link leave a message a quarter, where a fair share would be half."""
    alone, slow = (
        simulated(tmp_path, sends(3, (0, 1, 1e6)), grain, traffic=sent, iterations=1).seconds["training"][0]
        for sent in ([], datagrams(0.75))
    )
    assert 3.2 < slow / alone < 6.0


def test_datagrams_are_lost_and_not_sent_again(tmp_path: Path) -> None:
    """More than the link carries leaves next to nothing until they end after three seconds."""
    found = simulated(tmp_path, sends(3, (0, 1, 1e6)), "packets", traffic=datagrams(1.5), iterations=1)
    assert 0.5 < found.seconds["training"][0] < 5.0
    with pytest.raises(ConfigError, match="takes longer than"):
        simulated(tmp_path, sends(3, (0, 1, 1e6)), "flows", traffic=datagrams(1.5), iterations=1)


FABRIC = {"local": {"fabric": {"leaves": 2, "spines": 2, "hosts": 2}, "link": "25gbit", "scale": 100}}


@pytest.mark.parametrize("grain", GRAINS)
def test_a_round_across_a_fabric_costs_what_its_further_links_do(grain: Grain, tmp_path: Path) -> None:
    rates = replace(FREE, round_s=5e-3, inside_round_s=1e-3)

    def mean_s(to: int) -> float:
        found = simulated(tmp_path, sends(3, (0, to, 1e3)), grain, rates=rates, testbed=FABRIC)
        return float(found.seconds["training"].mean())

    assert mean_s(2) - mean_s(1) == pytest.approx(2 * 2e-3, rel=0.1)  # h3 is on the other leaf: two links more


ACROSS = {"workload": {"ddp": {"model": "resnet50", "hosts": ["h1", "h3"]}}, "testbed": FABRIC}


def across(tmp_path: Path, grain: Grain, **more: Any) -> Simulated:
    """A message from h1 on leaf1 to h3 on leaf2, again and again."""
    graph = TaskGraph(ranks=3)
    message = graph.send(0, 2, 1e6, graph.begins)
    graph.end([[message]] * 3)
    return simulated(tmp_path, graph, grain, **{"iterations": 20, "seed": 3, **ACROSS, **more})


@pytest.mark.parametrize("grain", GRAINS)
def test_messages_between_leaves_cross_one_spine(grain: Grain, tmp_path: Path) -> None:
    found = across(tmp_path, grain)
    (spine,) = (spine for spine in ("spine1", "spine2") if found.use[f"leaf1 to {spine}"] > 0.5)
    assert found.use[f"{spine} to leaf2"] == pytest.approx(found.use["h3 switch-port"], rel=0.01)
    slower = across(tmp_path, grain, conditions=[{"rate": {"link": f"leaf1-{spine}", "rate": "5gbit"}}])
    assert slower.seconds["training"].mean() == pytest.approx(5 * found.seconds["training"].mean(), rel=0.1)
    assert {across(tmp_path, grain, seed=seed).use["leaf1 to spine1"] > 0.5 for seed in range(6)} == {True, False}


@pytest.mark.parametrize("grain", GRAINS)
def test_messages_go_around_a_link_that_is_down(grain: Grain, tmp_path: Path) -> None:
    plain = across(tmp_path, grain)
    used, other = sorted(("spine1", "spine2"), key=lambda spine: -plain.use[f"leaf1 to {spine}"])
    half_s = plain.duration_s / 2
    down = [{"link": {"name": f"leaf1-{used}", "down": "0s", "up": f"{half_s * 1e6:.0f}us"}}]
    found = across(tmp_path, grain, conditions=down)
    assert found.use[f"leaf1 to {other}"] == pytest.approx(plain.use[f"leaf1 to {used}"] / 2, rel=0.1)
    assert found.use[f"leaf1 to {used}"] == pytest.approx(plain.use[f"leaf1 to {used}"] / 2, rel=0.1)


def test_jobs_that_take_turns_do_not_disturb_each_other(tmp_path: Path) -> None:
    spec = {"ddp": {"model": "vgg16", "hosts": ["h1", "h2"]}}
    first = {"name": "a", "workload": spec, "every": "1s"}

    def mean_s(*jobs: dict[str, Any]) -> float:
        made = jobs_of(tmp_path, {"jobs": list(jobs)})
        costs = inputs.usual(fitting.topology_of(made))
        return foreseeing.foresee(made, costs, file="x", how=How(draws=1, grain="flows"))[0].jobs[0].mean.value

    alone, together, turned = (
        mean_s(first),
        mean_s(first, {**first, "name": "b"}),
        mean_s(first, {**first, "name": "b", "start": {"after": "a", "by": "450ms"}}),
    )
    assert turned == pytest.approx(alone, rel=0.02)
    assert together > 1.2 * alone


@pytest.mark.parametrize("members", [(0, 1, 2, 3), (0, 2, 4, 6), (3, 5, 12)])
def test_an_exchange_is_in_turns_in_which_each_rank_sends_and_receives_once(members: tuple[int, ...]) -> None:
    graph = TaskGraph(ranks=16)
    pairs = {(src, dst): 1.0 for src in members for dst in members if src != dst}
    collective_tasks.exchange(graph, pairs, {rank: (graph.begins[rank],) for rank in members})
    sent = [(src, dst) for src, dst in zip(graph.owners, graph.peers, strict=True) if dst >= 0]
    for first in range(0, len(sent), len(members)):
        turn = sent[first : first + len(members)]
        assert {src for src, _ in turn} == {dst for _, dst in turn} == set(members)
