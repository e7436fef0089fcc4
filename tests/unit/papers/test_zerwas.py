"""The page of Zerwas et al., from made traffic whose volumes, patterns and rates are known."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.analysis.traffic import traffic
from orchestrator.papers.zerwas import equation, figures, flows, frameworks, loss, page, rates
from orchestrator.papers.zerwas import volumes as fig3
from orchestrator.papers.zerwas.frameworks import PAIRS, Measured
from orchestrator.papers.zerwas.published import zerwas
from orchestrator.papers.zerwas.sights import sight
from orchestrator.report.study.captured_windows import CapturedWindow
from orchestrator.report.style import look
from orchestrator.store import rundir
from tests.helpers.made_traffic import BEGAN_NS, BYTES_A_MS, ITERATION_MS, MS, SENDS_MS, made
from tests.helpers.night_runs import write_run

MODELS = [model.model for model in zerwas().models]
STEPS = 20
EDGE = BYTES_A_MS * SENDS_MS  # what made traffic sends over an edge of its ring in a step
WORKLOADS = {
    "tensorflow": {"tensorflow": {"strategy": "multi-worker-mirrored", "communication": "ring"}},
    "tensorflow-nccl": {"tensorflow": {"strategy": "multi-worker-mirrored", "communication": "nccl"}},
    "tensorflow-servers": {"tensorflow": {"strategy": "parameter-server"}},
    "horovod-mpi": {"horovod": {"controller": "mpi", "operations": "cpu"}},
    "horovod-gloo": {"horovod": {"controller": "gloo", "operations": "cpu"}},
    "horovod-gloo-nccl": {"horovod": {"controller": "gloo", "operations": "nccl"}},
    "binary-tree-star": {"p2p": {"strategy": "binary-tree-star"}},
    "star": {"kungfu": {"strategy": "STAR"}},
    PAIRS: {"p2p": {"strategy": "pair-averaging"}},
}


def run(
    results,
    framework,
    *,
    model="mobilenet_v2",
    seed=1,
    conditions=(),
    seconds=0.1,
    theory=0.0,
    iterations=STEPS,
    **more,
):
    """A run of one window of a training by a framework, with no captures."""
    ((part, config),) = WORKLOADS[framework].items()
    workload = {part: {**config, "model": model, "classes": 10, "batch": 64, **more}}
    path = write_run(
        results,
        name=f"e{seed}",
        sweep=False,
        seed=seed,
        repetition=seed,
        spread=0.0,
        seconds={"w1": seconds},
        iterations=iterations,
        also={"workload": workload, "conditions": list(conditions)},
    )
    manifest = json.loads((path / "manifest.json").read_text())
    ranks = [{"rank": rank, "node": f"h{rank + 1}"} for rank in range(4)]
    manifest["jobs"] = [
        {
            "name": "training",
            "workload": part,
            "model": model,
            "ranks": ranks,
            "theory": {"bytes_per_iteration": theory, "parameters": 1, "source": "s"},
        }
    ]
    (path / "manifest.json").write_text(json.dumps(manifest))
    return rundir.entry_at(path)


def found_in(*entries):
    return frameworks.measured(entries, MODELS)


class _Run:
    scale = 100


def captured(one: Measured, *, whole=None, factor=1.0):
    """The same with captures of three runs: made traffic of 40 steps, 20 are the window; bytes times a factor."""
    whole = whole if whole is not None else made(iterations=40, order=("h1", "h2", "h3", "h4"))
    whole = replace(whole, name=np.where(whole.name == "train", "training", whole.name))
    part = traffic.within(whole, BEGAN_NS + 10 * ITERATION_MS * MS, BEGAN_NS + 30 * ITERATION_MS * MS)
    volume = traffic.volume(part, steps=STEPS, scale=100 * factor)
    first = sight(
        CapturedWindow(window=one.point.windows[0], run=_Run(), traffic=part, whole=whole, steps=STEPS, volume=volume)
    )
    one.__dict__["sights"] = tuple(replace(first, run=f"r{number}") for number in range(3))
    return one


@pytest.mark.parametrize("framework", sorted(WORKLOADS))
def test_frameworks_are_told_apart_by_what_was_set(tmp_path, framework):
    (one,) = found_in(run(tmp_path, framework))
    assert (one.framework, one.model, one.batch, one.classes, one.losses) == (framework, "mobilenet_v2", 64, 10, None)


def test_other_workloads_and_models_are_not_the_papers(tmp_path):
    (one,) = found_in(run(tmp_path, "horovod-mpi", model="vgg16"))
    assert frameworks.plain([one]) == []
    entry = run(tmp_path, "horovod-mpi", seed=2)
    text = (entry.path / "experiment.yaml").read_text().replace("horovod", "ddp")
    (entry.path / "experiment.yaml").write_text(text)
    assert found_in(rundir.entry_at(entry.path)) == ()


def test_a_volume_of_20_epochs_is_held_to_theory(tmp_path):
    theory = EDGE * 1.02  # a rank, scaled
    found = [captured(one) for one in found_in(run(tmp_path, "horovod-gloo", theory=theory))]
    line, *_ = fig3.volumes(found, zerwas()).comparisons
    assert (line.what, line.verdict, line.difference) == (
        "mobilenet_v2, Horovod on Gloo",
        "agrees",
        "-2.0 % (-2.0 to -2.0)",
    )
    assert line.ours.startswith(f"{4 * EDGE * 100 * 3900 / 1e9:,.0f} (")
    captured(found[0], factor=1.06)
    assert fig3.volumes(found, zerwas()).comparisons[0].verdict == "differs"


def test_pair_averaging_is_held_to_two_thirds(tmp_path):
    found = found_in(run(tmp_path, "horovod-gloo"), run(tmp_path, PAIRS, seed=2))
    for one in found:
        captured(one, factor=0.667 if one.framework == PAIRS else 1.0)
    lines = {one.what: one for one in fig3.volumes(found, zerwas()).comparisons}
    ratio = lines["mobilenet_v2: pair averaging over synchronous SGD"]
    assert (ratio.verdict, ratio.printed, ratio.difference) == ("agrees", "0.7", "-0.033 (-0.033 to -0.033)")
    assert lines["resnet50: pair averaging over synchronous SGD"].verdict == "cannot tell"
    assert lines["smallest volume of all"].ours != "-"
    assert lines["largest volume of all"].why == "nothing measured in these runs"


def test_a_ring_is_seen_and_its_edge_needs_all_models(tmp_path):
    found = [captured(one) for one in found_in(run(tmp_path, "horovod-gloo"))]
    lines = {one.what: one for one in fig3.patterns(found, zerwas()).comparisons}
    assert lines["payload against the ring over that with it"].verdict == "agrees"
    assert lines["an edge of the ring, mean over models"].why == "measured with 1 of 4 models"
    assert fig3.exchanges(found[0].sights[0].volume) == {(0, 1), (1, 2), (2, 3), (0, 3)}
    all_models = [
        captured(one)
        for seed, model in enumerate(MODELS, 1)
        for one in found_in(run(tmp_path / model, "horovod-gloo", model=model, seed=seed))
    ]
    lines = {one.what: one for one in fig3.patterns(all_models, zerwas()).comparisons}
    edge = lines["an edge of the ring, mean over models, payload, 10 classes"]
    assert edge.ours.startswith(f"{EDGE * 100 * 3900 / 1e9:,.4g} (")
    theory = lines["an edge of the ring, mean over models, 1000 classes by theory"]
    assert theory.ours == "547.7 GB"


def test_a_pattern_that_is_another_is_missed(tmp_path):
    found = [captured(one) for one in found_in(run(tmp_path, "star"))]
    lines = {one.what: one for one in fig3.patterns(found, zerwas()).comparisons}
    star = lines["KungFu, star: who exchanges gradients"]
    assert (star.verdict, star.ours) == ("differs", "W1-W2, W1-W4, W2-W3, W3-W4; in 0 of 3 repetitions")


def test_flows_are_counted_over_the_run_and_big_ones_over_the_window(tmp_path):
    (one,) = [captured(one) for one in found_in(run(tmp_path, "horovod-gloo"))]
    assert (one.sights[0].flows, flows.big(one.sights[0])) == (8, 4)
    lines = {line.what: line for line in flows.flows([one], zerwas()).comparisons}
    assert lines["Horovod on Gloo: flows that carry 99 % of the payload"].verdict == "agrees"
    assert lines["Horovod on Gloo: flows (8 of them are SSH's)"].verdict == "differs"


def test_rates_are_at_full_size(tmp_path):
    (one,) = [captured(one) for one in found_in(run(tmp_path, "horovod-gloo", model="resnet50"))]
    window, *_ = one.sights
    edge_gbps = (BYTES_A_MS * 1514 // 1448) * 8e-6 * 100
    share = SENDS_MS / ITERATION_MS
    assert window.big[0].mean() == pytest.approx(edge_gbps * share, rel=0.02)
    assert window.big[0].max() == pytest.approx(edge_gbps, rel=0.02)
    assert window.total.mean() == pytest.approx(4 * (edge_gbps + 66 * 8e-4) * share, rel=0.02)
    assert rates.duty(window) == pytest.approx(share, abs=0.02)
    lines = {line.what: line for line in rates.table_two([one], zerwas()).comparisons}
    assert lines["Horovod on Gloo: mean"].verdict == "not judged"
    assert lines["Horovod on Gloo: mean"].difference
    assert "GPUs" in lines["Horovod on Gloo and NCCL: mean"].why


def test_runs_are_the_unit_of_a_rates_interval(tmp_path):
    """Runs differ by what one run does not show: its windows are one value, and it has no interval."""
    (one,) = [captured(one) for one in found_in(run(tmp_path, "horovod-gloo", model="resnet50"))]

    def told(*sights):
        one.__dict__["sights"] = sights
        (line,) = (
            line for line in rates.table_two([one], zerwas()).comparisons if line.what == "Horovod on Gloo: mean"
        )
        return line.ours

    first, *_ = one.sights
    assert " to " not in told(first, first)
    others = [replace(first, run=f"r{number}", big=first.big * (1 + 0.01 * number)) for number in (1, 2)]
    assert " to " in told(first, *others)


def test_flows_that_send_together_correlate(tmp_path):
    (one,) = [captured(one) for one in found_in(run(tmp_path, "horovod-gloo"))]
    assert rates.together(one.sights[0]) == pytest.approx(1.0, abs=0.01)


def test_batches_are_held_to_the_same_volume(tmp_path):
    found = found_in(run(tmp_path, "horovod-gloo"), run(tmp_path, "horovod-gloo", seed=2, batch=512, seconds=0.4))
    for one in found:
        captured(one, factor=1.05 if one.batch == 512 else 1.0)
    lines = {line.what: line for line in rates.batches(found, zerwas()).comparisons}
    assert lines["volume of a step, batch 512 over batch 64"].verdict == "differs"
    assert lines["period, batch 512"].verdict == "not judged", "compute times are inputs"
    assert lines["batch 128 against 64"].why == "nothing measured in these runs"


def test_losses_are_ratios_of_the_step_without_any(tmp_path):
    entries = [
        run(
            tmp_path,
            "tensorflow",
            seed=3 * place + repetition,
            seconds=0.1 * ratio * (1 + 0.01 * repetition),
            iterations=100,
            conditions=[{"loss": {"host": "h1", "share": share}}],
        )
        for place, (share, ratio) in enumerate({"0%": 1, "0.01%": 1.5, "2%": 9}.items())
        for repetition in range(1, 4)
    ]
    found = found_in(*entries, run(tmp_path, "tensorflow", seed=19))
    ratios = loss.ratios(found)
    assert {share: round(ratio.value, 1) for share, ratio in ratios.items()} == {0.0: 1.0, 0.0001: 1.5, 0.02: 9.0}
    assert ratios[0.0001].low < 1.5 < ratios[0.0001].high
    lines = loss.losses(found, zerwas()).comparisons
    assert [(line.verdict, line.difference) for line in lines] == [("not judged", "-25 %"), ("not judged", "+13 %")]
    assert loss.ratios(found_in(entries[3])) == {}


def test_the_equation_is_that_of_the_volumes(tmp_path):
    names = ["horovod-gloo", "tensorflow", "binary-tree-star", PAIRS]
    found = found_in(
        *(
            run(tmp_path / f"{name}{batch}", name, model=model, batch=batch, seed=seed)
            for seed, model in enumerate(MODELS, 1)
            for name in names
            for batch in (64, 512)
        )
    )
    random = np.random.default_rng(1)
    for one in found:
        models = 4.0 if one.framework == PAIRS else 6.0
        captured(one, factor=models * one.size / (4 * EDGE * 100) * random.normal(1, 0.002))
    fit = equation.fit(found)
    (slope,) = fit.of(equation.SIZE)
    assert slope.estimate.value == pytest.approx(5.5, abs=0.02), "three of six models, one of four"
    lines = {line.what: line for line in equation.equation(found, zerwas()).comparisons}
    slope = lines["MB a step for a MB of the model"]
    assert (slope.verdict, slope.why.partition(":")[0]) == ("differs", "margin 2.6 %")
    assert lines["Framework_Backend pair-averaging changes the volume, share of the mean one"].verdict == "agrees"
    assert lines["Batch_Size 512 changes the volume, share of the mean one"].verdict == "agrees"
    assert lines["Comm_Topology changes the volume"].verdict == "cannot tell"
    few = equation.equation(found[:3], zerwas()).comparisons
    assert [(line.verdict, line.why) for line in few] == [("cannot tell", "3 points do not tell the regressors apart")]


def test_figures_are_drawn_of_what_there_is(tmp_path):
    found = [captured(one) for one in found_in(run(tmp_path, "horovod-gloo"), run(tmp_path, PAIRS, seed=2))]
    with look():
        pictures = [
            *figures.bars(found, zerwas(), tmp_path),
            *figures.heatmaps(found, zerwas(), tmp_path),
            *figures.batches(found, tmp_path),
            *figures.losses({0.0: Estimate(1, 1, 1), 0.02: Estimate(8, math.nan, math.nan)}, zerwas(), tmp_path),
        ]
        nothing = [
            *figures.bars([], zerwas(), tmp_path),
            *figures.heatmaps([], zerwas(), tmp_path),
            *figures.batches([], tmp_path),
            *figures.losses({}, zerwas(), tmp_path),
        ]
    assert [picture.name for picture in pictures] == ["volumes", "patterns", "batches", "losses"]
    assert all(picture.svg.startswith("<svg") for picture in pictures)
    assert nothing == []


def test_a_page_of_runs_without_captures_says_so(tmp_path):
    content = page.content([run(tmp_path, "horovod-gloo")], tmp_path)
    assert content.made_of == "1 points of 1 windows"
    assert {one.verdict for section in content.sections for one in section.comparisons} == {"cannot tell", "not judged"}


def test_runs_of_nothing_the_paper_has_are_refused(tmp_path, capsys):
    from orchestrator.cli.main import main

    write_run(tmp_path, sweep=False)
    assert main(["study", "zerwas", "nightly", "--results", str(tmp_path), "-o", str(tmp_path / "p.html")]) == 1
    assert "nothing to show" in capsys.readouterr().err
