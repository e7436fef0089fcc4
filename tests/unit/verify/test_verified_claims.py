"""Every claim can be held, and is broken by what it says would break it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from orchestrator.analysis.compare.regression import Change, PointChange
from orchestrator.verify import claims, experiments
from orchestrator.verify.claims import DeviceSeen, Evidence, HostSeen, Ran, Undone
from tests.helpers import manifests

NAMED = {claim.name: claim for claim in claims.claims()}
KERNEL = claims.LEAST_KERNEL_COUNTERS
HOSTS = tuple(
    HostSeen(host=name, reached_s=0.3, offset_s=1e-5, uncertainty_s=2e-4, python="3.11", kernel="6.8")
    for name in ("h1", "h2")
)
MLX5 = frozenset({*KERNEL, "ethtool.rx_discards_phy", "ethtool.rx_prio3_pause", "ethtool.tx_prio3_pause"})
MLX5_RDMA = MLX5 | {"rdma.np_cnp_sent", "rdma.out_of_sequence", "rdma.local_ack_timeout_err"}


def gate(name, *, passed=True, measured=0.001, limit=0.02):
    message = f"h1:ens1: {name} says so"
    return {"name": name, "passed": passed, "measured": measured, "limit": limit, "message": message}


def manifest(*names, outcome="completed", windows=("at10", "at50", "at90"), error=None, more=(), **gates):
    """A run whose gates of these names pass, but for those that are given."""
    found = [gate(name, **gates.get(name.replace("-", "_"), {})) for name in names] + list(more)
    launches = [manifests.launch("meter.h1", part="collector.meter", role="collector")]
    return manifests.made(
        outcome=outcome,
        error=error,
        launches=launches,
        windows=[{"name": one, **manifests.NOT_JUDGED, "gates": found} for one in windows],
    )


def overhead(verdict, ratio, low, high):
    change = Change(
        statistic="mean", a_s=0.1, b_s=0.1 * ratio, ratio=ratio, low=low, high=high, verdict=verdict, why="few runs"
    )
    return PointChange(
        point="iterations", verdict=verdict, why="few runs", changes=(change,), nights=(1, 1), runs=(3, 3),
        iterations=(60, 60),
    )  # fmt: skip


CAPTURING = ("clock", "clock-order", "capture", "capture-drops", "capture-nic", "meter-in")
GOOD = Evidence(
    hosts=HOSTS,
    gpu_hosts=2,
    rdma=True,
    ran={
        experiments.LOAD: Ran(manifests=(manifest("load", "gap"),)),
        experiments.CAPTURES: Ran(manifests=(manifest(*CAPTURING),)),
        experiments.NCCL_TCP: Ran(manifests=(manifest("transport", "theory", windows=("w1",)),)),
        experiments.NCCL_RDMA: Ran(manifests=(manifest("transport", "losses", windows=("w1",)),)),
        **{name: Ran(manifests=(manifest("theory", windows=("w1",)),)) for name in experiments.FRAMEWORKS},
    },
    devices=(
        DeviceSeen(host="h1", device="ens1", driver="mlx5_core", counters=MLX5_RDMA),
        DeviceSeen(host="h2", device="ens1", driver="veth", counters=KERNEL),
    ),
    undone=Undone(back_s=4.0, changes=4),
    overhead=overhead("same", 1.01, 0.99, 1.03),
)


def with_run(name, *found, **more):
    return replace(GOOD, ran={**GOOD.ran, name: Ran(manifests=found, **more)})


def captured(**gates):
    return with_run(experiments.CAPTURES, manifest(*CAPTURING, **gates))


FAILED = {"passed": False, "measured": 0.3}
BREAKING = {
    "agents": [replace(GOOD, hosts=(*HOSTS, HostSeen(host="h3", trouble="connection refused")))],
    "clocks": [replace(GOOD, hosts=(HOSTS[0], replace(HOSTS[1], uncertainty_s=0.002)))],
    "clock-order": [captured(clock_order=FAILED), captured(clock=FAILED)],
    "runs": [with_run(experiments.UNDO, manifest(outcome="failed", error="no space on h1\nmore"))],
    **{
        f"load-{window}": [
            with_run(experiments.LOAD, manifest("load", "gap", load=FAILED)),
            with_run(experiments.LOAD, manifest("load", "gap", gap=FAILED)),
            with_run(experiments.LOAD, manifests.made(unreached={window: "2.1 of 2.5 Gbit/s arrived"})),
            with_run(
                experiments.LOAD, manifest("load", outcome="failed", windows=()), short="2.1 of 2.5 Gbit/s arrived"
            ),
        ]
        for window in experiments.LOADS
    },
    **{
        f"captures-{window}": [captured(capture=FAILED), captured(capture_drops=FAILED)] for window in experiments.LOADS
    },
    **{f"capture-nic-{window}": [captured(capture_nic=FAILED)] for window in experiments.LOADS},
    **{f"meter-{window}": [captured(meter_in=FAILED)] for window in experiments.LOADS},
    "counters": [replace(GOOD, devices=(replace(GOOD.devices[1], counters=KERNEL - {"rx_bytes"}),))],
    "driver-counters": [
        replace(GOOD, devices=(replace(GOOD.devices[0], counters=MLX5_RDMA - {missing}),))
        for missing in ("ethtool.rx_discards_phy", "ethtool.rx_prio3_pause", "rdma.np_cnp_sent")
    ],
    "undo": [
        replace(GOOD, undone=Undone(back_s=70.0, changes=4, left=("h1: process 4242 was still there",))),
        replace(GOOD, undone=Undone(back_s=4.0, changes=4, changed=("h1: offloads is not as it was",))),
        replace(GOOD, undone=Undone(back_s=4.0, changes=4, recovered=False)),
    ],
    **{f"bytes-{name}": [with_run(name, manifest("theory", theory=FAILED))] for name in experiments.FRAMEWORKS},
    "overhead": [replace(GOOD, overhead=overhead("worse", 1.2, 1.15, 1.25))],
    "nccl-tcp": [
        with_run(experiments.NCCL_TCP, manifest("transport", "theory", transport=FAILED)),
        with_run(experiments.NCCL_TCP, manifest("transport", "theory", theory=FAILED)),
    ],
    "nccl-rdma": [with_run(experiments.NCCL_RDMA, manifest("transport", "losses", transport=FAILED))],
    "rdma-losses": [with_run(experiments.NCCL_RDMA, manifest("transport", "losses", losses=FAILED))],
    "gpu": [with_run(experiments.NCCL_TCP, manifest("transport", more=[gate("collector", **FAILED)]))],
}


def test_every_claim_has_something_here_that_breaks_it():
    assert BREAKING.keys() == NAMED.keys()


@pytest.mark.parametrize("name", NAMED)
def test_a_claim_is_held(name):
    judged = NAMED[name].judge(GOOD)
    assert (judged.verdict, judged.code) == ("held", ""), judged.why


@pytest.mark.parametrize(("name", "evidence"), [(name, one) for name, some in BREAKING.items() for one in some])
def test_a_claim_is_broken(name, evidence):
    judged = NAMED[name].judge(evidence)
    assert judged.verdict == "broken", judged.why
    assert judged.why
    assert "\n" not in judged.why


@pytest.mark.parametrize("name", [name for name, claim in NAMED.items() if claim.rests])
def test_a_claim_is_not_judged_by_runs_that_were_not_made(name):
    without = {run: Ran(code="lacking", why="h2 lacks iperf3", lack=("iperf3",)) for run in NAMED[name].rests}
    evidence = replace(GOOD, ran={**GOOD.ran, **without}, devices=(), undone=None, overhead=None)
    judged = NAMED[name].judge(evidence)
    assert judged.verdict == "not judged"
    assert judged.code in ("lacking", "not known")


@pytest.mark.parametrize("name", [name for name, claim in NAMED.items() if experiments.CAPTURES in claim.rests])
def test_a_run_that_failed_breaks_the_claim_of_runs_alone(name):
    evidence = replace(with_run(experiments.CAPTURES, manifest(outcome="failed", error="agent lost")), devices=())
    assert NAMED[name].judge(evidence).verdict == "not judged"
    assert NAMED["runs"].judge(evidence).verdict == "broken"


def test_a_run_that_was_interrupted_breaks_no_claim():
    stopped = with_run(experiments.LOAD, manifest(outcome="interrupted", error="stopped by SIGINT"))
    assert NAMED["runs"].judge(stopped).verdict == "held"
    assert NAMED["load-at10"].judge(stopped).verdict == "not judged"


def test_other_work_on_processors_leaves_a_broken_claim_unjudged_and_a_held_one_held():
    busy = gate("processor", **FAILED)
    evidence = with_run(experiments.LOAD, manifest("load", "gap", load=FAILED, more=[busy]))
    judged = NAMED["load-at50"].judge(evidence)
    assert (judged.verdict, judged.code) == ("not judged", "disturbed")
    assert "processor says so" in judged.why
    evidence = with_run(experiments.LOAD, manifest("load", "gap", more=[busy]))
    assert NAMED["load-at50"].judge(evidence).verdict == "held"


def test_one_window_breaks_no_claim_of_another():
    good = manifest("load", "gap", windows=("at10", "at50"))
    bad = manifest("load", "gap", windows=("at90",), load=FAILED)
    evidence = with_run(experiments.LOAD, replace(good, windows=(*good.windows, *bad.windows)))
    verdicts = {window: NAMED[f"load-{window}"].judge(evidence).verdict for window in experiments.LOADS}
    assert verdicts == {"at10": "held", "at50": "held", "at90": "broken"}


def test_a_gate_that_cannot_tell_leaves_its_claim_unjudged():
    judged = NAMED["capture-nic-at10"].judge(captured(capture_nic={"passed": None, "measured": None}))
    assert (judged.verdict, judged.code, judged.why) == ("not judged", "no verdict", "h1:ens1: capture-nic says so")


def test_what_a_queue_drops_before_the_wire_breaks_no_claim_of_the_meter():
    leaving = gate("meter-out", **FAILED)
    evidence = with_run(experiments.CAPTURES, manifest(*CAPTURING, more=[leaving]))
    assert NAMED["meter-at90"].judge(evidence).verdict == "held"


def test_a_meter_that_no_host_has_is_not_judged():
    bare = replace(manifest(*CAPTURING), launches=())
    judged = NAMED["meter-at10"].judge(with_run(experiments.CAPTURES, bare, why="h1 lacks a kernel", lack=("root",)))
    assert (judged.verdict, judged.code, judged.lack) == ("not judged", "lacking", ("root",))


@pytest.mark.parametrize(
    ("evidence", "name", "code"),
    [
        (replace(GOOD, gpu_hosts=0), "nccl-tcp", "no GPU"),
        (replace(GOOD, gpu_hosts=0), "gpu", "no GPU"),
        (replace(GOOD, gpu_hosts=1), "nccl-tcp", "one host"),
        (replace(GOOD, rdma=False), "nccl-rdma", "no RDMA device"),
        (replace(GOOD, devices=GOOD.devices[1:]), "driver-counters", "not known"),
        (replace(GOOD, overhead=overhead("cannot tell", 1.03, 0.9, 1.2)), "overhead", "cannot tell"),
        (Evidence(hosts=HOSTS[:1]), "load-at10", "one host"),
    ],
)
def test_why_a_claim_is_not_judged(evidence, name, code):
    judged = NAMED[name].judge(evidence)
    assert (judged.verdict, judged.code) == ("not judged", code)


def test_a_device_without_rdma_needs_no_counters_of_it():
    device = replace(GOOD.devices[0], counters=MLX5)
    assert NAMED["driver-counters"].judge(replace(GOOD, devices=(device,))).verdict == "held"


def test_of_one_run_a_side_no_interval_is_told():
    judged = NAMED["overhead"].judge(replace(GOOD, overhead=overhead("cannot tell", 1.01, math.nan, math.nan)))
    assert judged.why == "an iteration takes +1.0% with all collectors: few runs"
    assert [one.value for one in judged.figures] == [1.01]
