"""The page on Farhat and Ghobadi from made-up points whose verdicts are known."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from orchestrator.analysis.stats.agreement import AGREES, CANNOT_TELL, DIFFERS
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.analysis.traffic.pattern import AGAINST_ORDER, IN_ORDER
from orchestrator.analysis.windows.time_to_accuracy import Learning
from orchestrator.core.errors import StoreError
from orchestrator.papers.farhat import durations, overlapping, page, proportion, ring_order, to_accuracy
from orchestrator.papers.farhat.published import farhat
from orchestrator.papers.farhat.trainings import Overlap, Ring, Training, ring
from tests.helpers.made_traffic import made

MB = 1e6
HOSTS = tuple(f"h{n}" for n in range(1, 17))
RING = Ring(run="r1", shape="ring", hosts=HOSTS, score=1.0, order=IN_ORDER, reverse=0.001)


def training(model="m", *, size=100 * MB, payload=None, mean=1.0, around=0.01, **told) -> Training:
    usual = {
        "controller": "gloo",
        "workers": 16,
        "timeline": False,
        "emulated": True,
        "crowded": False,
        "scale": 100,
        "link_bps": 2e9,
        "batch": 256,
        "computing_s": 0.5,
        "runs": 1,
        "theory": 30 * size,
        "flows": 32,
        "big_flows": 16,
        "launched": HOSTS,
        "rings": (RING,),
        "overlaps": (),
        "lanes": (),
        "learned": (),
    }
    return Training(
        **{
            **usual,
            "model": model,
            "model_bytes": size,
            "payloads": (30 * size if payload is None else payload,) * 2,
            "seconds": Estimate(mean, mean - around, mean + around),
            "run_seconds": (mean,) if math.isnan(around) else tuple(mean + around * of for of in (-0.5, 0, 0.5)),
            **told,
        }
    )


def judged(volumes):
    """The verdicts on volumes of models of 10, 50, 100, 200 and 500 MB: that of a line, and through the origin."""
    found = [
        training(f"m{size}", size=size * MB, payload=volume)
        for size, volume in zip((10, 50, 100, 200, 500), volumes, strict=True)
    ]
    return tuple(one.verdict for one in proportion.compared(found, "gloo", farhat()))


@pytest.mark.parametrize(
    ("volume", "verdicts"),
    [
        (lambda size: 30 * size, (AGREES, AGREES)),
        (lambda size: 30 * size + 50 * MB, (AGREES, AGREES)),  # messages of control, 1 % of the mean volume
        (lambda size: 30 * size + 1000 * MB, (AGREES, DIFFERS)),  # a line, and no proportion
        (lambda size: size**2 / MB, (DIFFERS, DIFFERS)),
        (lambda size: 3000 * MB * (1 + (size / MB) % 3), (DIFFERS, DIFFERS)),  # no line at all
    ],
)
def test_proportional_is_a_line_through_the_origin(volume, verdicts):
    assert judged([volume(size * MB) for size in (10, 50, 100, 200, 500)]) == verdicts


def test_the_line_is_shown_with_its_fit_and_needs_three_models(tmp_path):
    found = [training(f"m{size}", size=size * MB) for size in (10, 50, 200)]
    of_line, origin = proportion.section(found, farhat(), tmp_path).comparisons
    assert (of_line.verdict, origin.verdict) == (AGREES, AGREES)
    assert of_line.ours == "30 bytes a byte of the model; R2: 1 (1 to 1)"
    (one,) = proportion.section(found[:2], farhat(), tmp_path).comparisons
    assert one.verdict == CANNOT_TELL


def test_points_of_one_model_are_one_place_of_the_line():
    found = [training("a", payload=3e9), training("a", payload=5e9, batch=64), training("b", size=1, controller="mpi")]
    assert proportion.by_model(found, "gloo") == {"a": (100 * MB, 4e9)}


@pytest.mark.parametrize(
    ("orders", "verdict"),
    [
        ([IN_ORDER, IN_ORDER], AGREES),
        ([AGAINST_ORDER], CANNOT_TELL),
        ([IN_ORDER, "not in launch order"], CANNOT_TELL),
        (["not in launch order", "not in launch order"], DIFFERS),
        (["", ""], DIFFERS),
        ([], CANNOT_TELL),
    ],
)
def test_every_window_has_to_be_a_ring_of_the_launch_order(orders, verdict):
    rings = tuple(
        Ring(run=f"r{run}", shape="ring" if order else "full mesh", hosts=HOSTS, score=1.0, order=order, reverse=0.0)
        for run, order in enumerate(orders)
    )
    one = ring_order.judge("Gloo", [training(rings=rings)], farhat())
    assert one.verdict == verdict
    assert ("no ring: full mesh" in one.ours) == ("" in orders)


def test_each_library_is_judged_by_itself_and_workers_are_set():
    against = Ring(run="r1", shape="ring", hosts=HOSTS[::-1], score=1.0, order=AGAINST_ORDER, reverse=0.0)
    found = [training(rings=(against, replace(against, run="r2"))), training(controller="mpi", workers=8)]
    section = ring_order.section(found, farhat())
    assert [one.verdict for one in section.comparisons] == ["not judged", AGREES, CANNOT_TELL]
    assert [one.what for one in section.comparisons] == ["workers", "Gloo", "Open MPI"]
    rows = section.tables[0].rows
    assert [(row[0], row[-1]) for row in rows] == [("Gloo", "2"), ("Open MPI", "1")]


@pytest.mark.parametrize(
    ("launched", "order", "hosts"),
    [
        (("h1", "h4", "h3", "h2"), IN_ORDER, ("h1", "h4", "h3", "h2")),
        (("h3", "h2", "h1", "h4"), IN_ORDER, ("h3", "h2", "h1", "h4")),
        (("h2", "h3", "h4", "h1"), AGAINST_ORDER, ("h2", "h1", "h4", "h3")),
        (("h1", "h3", "h4", "h2"), "not in launch order", ("h1", "h4", "h3", "h2")),
        (("h1", "h1", "h4", "h3", "h2"), "", ("h1", "h4", "h3", "h2")),  # of two ranks on a host nobody can tell
    ],
)
def test_a_ring_is_recovered_from_bytes_alone(launched, order, hosts):
    job = SimpleNamespace(name="train")
    window = SimpleNamespace(manifest=SimpleNamespace(jobs=[job]), entry=SimpleNamespace(run="r1"))
    seen = SimpleNamespace(traffic=made(order=("h1", "h4", "h3", "h2")), window=window)
    found = ring(seen, launched)
    assert (found.shape, found.order, found.hosts) == ("ring", order, hosts)
    assert found.reverse == 0, "acknowledgements are no payload"


def durations_of(found, tmp_path):
    return {one.what: one for one in durations.section(found, farhat(), tmp_path).comparisons}


def test_durations_are_compared_with_all_else_equal(tmp_path):
    found = [
        training(mean=3.0, link_bps=5e8),
        training(mean=1.5, link_bps=1e9),
        training(mean=1.0),
        training(mean=1.02, batch=64),
        training(mean=9.0, controller="mpi", link_bps=1e9),
    ]
    told = durations_of(found, tmp_path)
    bandwidth = told["bandwidth, m over Gloo: duration at 2 Gbit/s over that at 0.5"]
    assert bandwidth.verdict == AGREES
    assert bandwidth.ours.startswith("1.000 s and 3.000 s; data sent +0.0 %: 0.3333 (")
    assert told["batch, m over Gloo: duration at 256 samples over that at 64"].verdict == DIFFERS, "2 % is no change"
    assert told["durations of one model: longest over shortest"].verdict == AGREES
    assert told["hardware"].verdict == "not judged"
    assert not any("Open MPI" in what for what in told), "another library is no other bandwidth"


def test_timelines_are_held_against_nothing(tmp_path):
    told = durations_of([training(mean=3.0, link_bps=1e9, timeline=True), training()], tmp_path)
    assert (told["bandwidth"].verdict, told["durations of one model"].verdict) == (CANNOT_TELL, CANNOT_TELL)


@pytest.mark.parametrize(
    ("mean", "around", "verdict"),
    [(1.2, 0.01, AGREES), (1.2, 0.3, CANNOT_TELL), (1.3, math.nan, CANNOT_TELL), (1.02, 0.001, DIFFERS)],
)
def test_durations_differ_where_their_ratio_is_beyond_the_margin_with_its_interval(mean, around, verdict):
    found = [training(around=0.001), training(mean=mean, around=around)]
    assert durations.not_size_alone(found, farhat()).verdict == verdict


def test_overlap_is_shown_of_all_ranks_and_what_a_timeline_displays_is_held_against_the_paper(tmp_path):
    overlaps = tuple(Overlap(rank=rank, of_time=0.2 + rank / 100, of_bytes=0.5) for rank in range(16))
    timed = training(timeline=True, overlaps=overlaps, lanes=(frozenset({"negotiation", "communication"}),) * 2)
    plain = training(overlaps=tuple(Overlap(rank=rank, of_time=math.nan, of_bytes=0.4) for rank in range(16)))
    section = overlapping.section([plain, timed], farhat(), tmp_path)
    assert section.comparisons[0].verdict == DIFFERS
    assert section.comparisons[0].ours == "communication, negotiation; in 0 of 2 repetitions"
    first, second = section.tables[0].rows
    mean = np.mean([0.2 + rank / 100 for rank in range(16)])
    assert first[1:] == (f"{mean:.1%}", "20.0% to 35.0%, 16 ranks", "50.0%", "50.0% to 50.0%, 16 ranks")
    assert second[1:3] == ("-", "-")
    only = overlapping.section([training(lanes=(frozenset({"compute"}),))], farhat(), tmp_path)
    assert (only.comparisons[0].verdict, only.pictures) == (CANNOT_TELL, ())


def test_time_to_accuracy_is_shown_where_something_was_learned(tmp_path):
    learning = Learning(
        epoch=np.array([1, 2, 3]),
        seconds=np.array([10.0, 20.0, 30.0]),
        sent_bytes=np.array([1e6, 2e6, 3e6]),
        accuracy=np.array([0.3, 0.7, 0.65]),
        loss=np.array([2.0, 1.0, 1.1]),
    )
    finding = farhat().finding("accuracy")
    section = to_accuracy.section([training(), training(emulated=False, learned=(learning,))], finding, tmp_path)
    (row,) = section.tables[0].rows
    assert row == ("m over Gloo, 2 Gbit/s, 256 samples, real compute", "16", "70.0%", "1.8 epochs, 17.5 s, 175 MB", "-")
    assert (len(section.pictures), section.comparisons[0].why) == (2, to_accuracy.NO_VALUE)
    nothing = to_accuracy.section([training()], finding, tmp_path)
    assert (nothing.pictures, nothing.comparisons[0].why) == ((), to_accuracy.EMULATED)


def test_runs_without_horovod_give_no_page(tmp_path):
    with pytest.raises(StoreError, match="none of these runs has a valid, captured window of Horovod"):
        page.content([], tmp_path)
