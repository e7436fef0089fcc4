"""The page on Farhat and Ghobadi from made-up points whose verdicts are known."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.analysis.traffic.pattern import AGAINST_ORDER, IN_ORDER
from orchestrator.analysis.windows.time_to_accuracy import Learning
from orchestrator.core.errors import StoreError
from orchestrator.papers.farhat import durations, overlapping, page, proportion, ring_order, to_accuracy
from orchestrator.papers.farhat.published import farhat
from orchestrator.papers.farhat.trainings import Overlap, Ring, Training, ring
from orchestrator.report.study.content import APART, OUTSIDE, WITHIN
from tests.helpers.made_traffic import made

MB = 1e6
HOSTS = tuple(f"h{n}" for n in range(1, 17))
RING = Ring(shape="ring", hosts=HOSTS, score=1.0, order=IN_ORDER, reverse=0.001)


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
        "lanes": frozenset(),
        "learned": (),
    }
    return Training(
        **{
            **usual,
            "model": model,
            "model_bytes": size,
            "payload": 30 * size if payload is None else payload,
            "seconds": Estimate(mean, mean - around, mean + around),
            **told,
        }
    )


def judged(volumes):
    """The verdict on volumes of models of 10, 50, 100, 200 and 500 MB."""
    sizes = {f"m{size}": (size * MB, volume) for size, volume in zip((10, 50, 100, 200, 500), volumes, strict=True)}
    fitted = proportion.line(sizes)
    assert fitted is not None
    return proportion.judge("gloo", fitted, sizes, farhat().finding("proportional"))


@pytest.mark.parametrize(
    ("volume", "verdict"),
    [
        (lambda size: 30 * size, WITHIN),
        (lambda size: 30 * size + 50 * MB, WITHIN),  # messages of control, 1 % of the mean volume
        (lambda size: 30 * size + 1000 * MB, OUTSIDE),  # a line, and no proportion
        (lambda size: size**2 / MB, OUTSIDE),
        (lambda size: 3000 * MB * (1 + (size / MB) % 3), OUTSIDE),  # no line at all
    ],
)
def test_proportional_is_a_line_through_the_origin(volume, verdict):
    assert judged([volume(size * MB) for size in (10, 50, 100, 200, 500)]).verdict == verdict


def test_the_line_is_shown_with_its_fit_and_needs_three_models(tmp_path):
    found = [training(f"m{size}", size=size * MB) for size in (10, 50, 200)]
    finding = farhat().finding("proportional")
    (one,) = proportion.section(found, finding, tmp_path).comparisons
    assert one.verdict == WITHIN
    assert one.ours.startswith("30 (30 to 30) bytes a byte of the model, R2 1.00000")
    (one,) = proportion.section(found[:2], finding, tmp_path).comparisons
    assert one.verdict == APART


def test_points_of_one_model_are_one_place_of_the_line():
    found = [training("a", payload=3e9), training("a", payload=5e9, batch=64), training("b", size=1, controller="mpi")]
    assert proportion.by_model(found, "gloo") == {"a": (100 * MB, 4e9)}


@pytest.mark.parametrize(
    ("orders", "verdict"),
    [
        ([IN_ORDER, IN_ORDER], WITHIN),
        ([AGAINST_ORDER], WITHIN),
        ([IN_ORDER, "not in launch order"], OUTSIDE),
        ([""], OUTSIDE),
        ([], APART),
    ],
)
def test_every_window_has_to_be_a_ring_of_the_launch_order(orders, verdict):
    rings = tuple(
        Ring(shape="ring" if order else "full mesh", hosts=HOSTS, score=1.0, order=order, reverse=0.0)
        for order in orders
    )
    one = ring_order.judge("Gloo", [training(rings=rings)], farhat().finding("ring"))
    assert one.verdict == verdict
    assert ("no ring: full mesh" in one.ours) == ("" in orders)


def test_each_library_is_judged_by_itself_and_sixteen_workers_are_sixteen():
    against = Ring(shape="ring", hosts=HOSTS[::-1], score=1.0, order=AGAINST_ORDER, reverse=0.0)
    found = [training(rings=(against, against)), training(controller="mpi", workers=8)]
    section = ring_order.section(found, farhat().finding("ring"), farhat().count("workers"))
    assert [one.verdict for one in section.comparisons] == [WITHIN] * 3
    assert [one.what for one in section.comparisons] == ["workers", "Gloo", "Open MPI"]
    rows = section.tables[0].rows
    assert [(row[0], row[-1]) for row in rows] == [("Gloo", "2"), ("Open MPI", "1")]
    (workers, *_) = ring_order.section(found[1:], farhat().finding("ring"), farhat().count("workers")).comparisons
    assert workers.verdict == OUTSIDE


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
    seen = SimpleNamespace(
        traffic=made(order=("h1", "h4", "h3", "h2")), window=SimpleNamespace(manifest=SimpleNamespace(jobs=[job]))
    )
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
    assert told["bandwidth, m over Gloo"].verdict == WITHIN
    assert told["bandwidth, m over Gloo"].ours == "3.000 s at 0.5 Gbit/s, 1.000 s at 2; data sent +0.0 %"
    assert told["batch, m over Gloo"].verdict == OUTSIDE, "2 % is no change"
    assert told["durations of one model"].verdict == WITHIN
    assert told["hardware"].verdict == APART
    assert "bandwidth, m over Open MPI" not in told, "another library is no other bandwidth"


def test_timelines_are_held_against_nothing(tmp_path):
    told = durations_of([training(mean=3.0, link_bps=1e9, timeline=True), training()], tmp_path)
    assert (told["bandwidth"].verdict, told["durations of one model"].verdict) == (APART, APART)


@pytest.mark.parametrize(
    ("mean", "around", "differ"),
    [(1.2, 0.01, True), (1.2, 0.2, False), (1.2, math.nan, False), (1.3, math.nan, True), (1.04, 0.0, False)],
)
def test_durations_differ_where_their_intervals_are_apart(mean, around, differ):
    assert durations.differ(training(), training(mean=mean, around=around)) == differ
    assert durations.differ(training(mean=mean, around=around), training()) == differ


def test_overlap_is_shown_of_all_ranks_and_what_a_timeline_displays_is_held_against_the_paper(tmp_path):
    overlaps = tuple(Overlap(rank=rank, of_time=0.2 + rank / 100, of_bytes=0.5) for rank in range(16))
    timed = training(timeline=True, overlaps=overlaps, lanes=frozenset({"negotiation", "communication"}))
    plain = training(overlaps=tuple(Overlap(rank=rank, of_time=math.nan, of_bytes=0.4) for rank in range(16)))
    section = overlapping.section([plain, timed], farhat().finding("timeline"), tmp_path)
    assert section.comparisons[0].verdict == OUTSIDE
    assert section.comparisons[0].ours == "communication, negotiation"
    first, second = section.tables[0].rows
    mean = np.mean([0.2 + rank / 100 for rank in range(16)])
    assert first[1:] == (f"{mean:.1%}", "20.0% to 35.0%, 16 ranks", "50.0%", "50.0% to 50.0%, 16 ranks")
    assert second[1:3] == ("-", "-")
    only = overlapping.section([training(lanes=frozenset({"compute"}))], farhat().finding("timeline"), tmp_path)
    assert (only.comparisons[0].verdict, only.pictures) == (APART, ())


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
