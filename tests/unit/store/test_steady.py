"""Warm-up judged by the data, and the drift of what is left: on made series, on recorded windows, and in a run."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from orchestrator.analysis import launch_outputs, reduction
from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.analysis.windows import warmup
from orchestrator.store.manifests.coding import encoded
from orchestrator.store.manifests.summaries import Training
from orchestrator.store.stamps import MANIFEST
from orchestrator.store.tabular import tables
from orchestrator.validity.gates import drift as drift_gate
from orchestrator.validity.steady import BATCH, Drift, drift, steady_from
from tests.helpers import manifests
from tests.helpers.gate_windows import judged
from tests.helpers.opened import opens

NIGHTS = Path(__file__).parents[2] / "data/nights/iterations.csv"


def correlated(random, *, samples=120, correlation=0.5, spread=0.02):
    noise = random.normal(0, spread * math.sqrt(1 - correlation**2), samples + 50)
    for place in range(1, len(noise)):
        noise[place] += correlation * noise[place - 1]
    return 1 + noise[50:]


def simulated(many, make):
    random = np.random.default_rng(7)
    return [make(random) for _ in range(many)]


@pytest.mark.parametrize("samples", [12, 60, 103])
def test_the_cut_has_the_smallest_marginal_standard_error(samples):
    for series in simulated(20, lambda random: correlated(random, samples=samples)):
        spare = samples % BATCH
        whole = series[spare:].reshape(-1, BATCH).mean(axis=1)
        fewest = min(BATCH, len(whole) - 1)
        errors = [np.var(whole[cut:]) / len(whole[cut:]) for cut in range(len(whole) - fewest)]
        best = int(np.argmin(errors))
        assert steady_from(series) == (spare + BATCH * best if best else 0)


TRANSIENTS = {
    "one slow iteration at first": (lambda k: 9.0 * (k == 0), 5),
    "a caching phase of 12": (lambda k: 0.2 * (k < 12), 15),
    "a quick decay": (lambda k: 0.3 * np.exp(-k / 3), 10),
}


@pytest.mark.parametrize("name", TRANSIENTS)
def test_a_transient_is_found(name):
    shape, least = TRANSIENTS[name]
    found = simulated(100, lambda random: steady_from(correlated(random) + shape(np.arange(120))))
    assert np.mean(np.array(found) >= least) > 0.9


def test_a_cut_in_the_second_half_is_no_steady_state():
    assert steady_from(np.linspace(1, 2, 100)) >= 50
    assert steady_from(np.r_[np.full(20, 2.0), np.tile([1.0, 1.01], 40)]) == 20


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 9])
def test_next_to_nothing_stays_whole(values):
    assert steady_from(values) == 0


@pytest.mark.parametrize(("samples", "correlation"), [(20, 0.0), (40, 0.5), (100, 0.0), (100, 0.5), (400, 0.5)])
def test_steady_series_seldom_seem_to_drift(samples, correlation):
    found = simulated(400, lambda random: drift(correlated(random, samples=samples, correlation=correlation)).p <= 0.01)
    assert sum(found) <= stats.binom.isf(1e-4, 400, 0.025)  # 1 to 2 in a hundred; uncorrected it is 14 at 0.5


def test_a_real_drift_is_found_with_its_size():
    trend = np.linspace(-0.025, 0.025, 100)
    found = simulated(200, lambda random: drift(correlated(random, spread=0.01, samples=100) + trend))
    assert np.mean([one.p <= 0.01 for one in found]) > 0.95
    assert np.mean([one.share for one in found]) == pytest.approx(0.05, rel=0.02)
    assert np.mean([one.low <= 0.05 <= one.high for one in found]) > 0.9


def test_of_samples_that_alternate_the_drift_is_that_of_least_squares():
    values = np.random.default_rng(1).normal(1, 0.01, 60) + np.tile([0.05, -0.05], 30)
    line = stats.linregress(np.linspace(-0.5, 0.5, 60), values / values.mean())
    found = drift(values)
    assert (found.share, found.p) == (pytest.approx(line.slope), pytest.approx(line.pvalue))


def test_what_cannot_drift_and_what_drifts_exactly():
    assert math.isnan(drift(np.ones(11)).share)
    assert drift(np.ones(40)).p == 1.0
    straight = drift(np.linspace(0.95, 1.05, 40))
    assert (straight.share, straight.p) == (pytest.approx(0.1), 0.0)


def recorded():
    with NIGHTS.open(encoding="utf-8") as file:
        return [np.array(row["iteration_us"].split(), float) / 1e6 for row in csv.DictReader(file)]


def of_drift(found, limit=0.05, **mser):
    """The verdict on a job with this trend; a limit of None is `ignore`."""
    row = Training(
        job="t",
        iterations=100,
        mean_s=None,
        p50_s=None,
        p99_s=None,
        drift=found.share,
        drift_low=found.low,
        drift_high=found.high,
        drift_p=found.p,
    )
    record = manifests.window(mser={"t": mser} if mser else {})
    return judged(drift_gate, training=(row,), record=record, validity={"drift": "ignore" if limit is None else limit})


def test_recorded_windows_that_drift_are_remarked_upon_and_stay_valid():
    gates = [gate for one in recorded() for gate in of_drift(drift(one))]
    noted = [gate for gate in gates if gate.passed is False]
    assert len(noted) == 7
    assert not any(gate.required for gate in noted)
    assert {f"{abs(gate.measured):.3f}" for gate in noted} <= {f"{0.001 * place:.3f}" for place in range(10, 22)}


def trend(share, p=0.001):
    return Drift(share=share, low=share - 0.01, high=share + 0.01, p=p)


@pytest.mark.parametrize(
    ("found", "limit", "passed", "required"),
    [
        (trend(0.004), 0.05, True, True),
        (trend(-0.03), 0.05, False, False),
        (trend(-0.06), 0.05, False, True),
        (trend(0.06, p=0.2), 0.05, True, True),  # large, and may be nothing
        (trend(0.06), None, False, False),
        (trend(0.0), None, True, False),
        (trend(math.nan), 0.05, None, False),
    ],
)
def test_a_drift_counts_by_its_size_and_its_significance(found, limit, passed, required):
    (gate,) = of_drift(found, limit)
    assert (gate.passed, gate.required) == (passed, required)


def test_a_drift_without_a_steady_state_says_so():
    (gate,) = of_drift(trend(0.06), samples=100, unbounded=70)
    assert "no steady state in sight (MSER-5 would leave out 70 of 100)" in gate.message


def logs(folder, job, rank, node, took, *, begin_ns):
    """A rank's log; iteration 0 begins at `begin_ns` of the node's clock, which is a microsecond behind."""
    place = folder / "hosts" / node / f"{job}.{rank}"
    place.mkdir(parents=True)
    ends = begin_ns + np.cumsum(np.asarray(took) * 1e9).astype(np.int64)
    starts = np.r_[begin_ns, ends[:-1]]
    (place / "iterations.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "iteration": number,
                    "start_ns": int(start) - 1000,
                    "end_ns": int(end) - 1000,
                    "samples": 1,
                    "mono_start_ns": int(start),
                    "mono_end_ns": int(end),
                    "loss": 0.0,
                    **dict.fromkeys(("forward_s", "backward_s", "wait_s"), 0.0),
                }
            )
            + "\n"
            for number, (start, end) in enumerate(zip(starts, ends, strict=True))
        )
    )
    return starts, ends, manifests.launch(place.name, node, job=job, rank=rank)


def manifest_of(jobs, launches, window):
    clock = {"before": {"offset_ns": 1000, "uncertainty_ns": 0}}
    return manifests.made(
        jobs=[{"name": job, "workload": "ddp", "ranks": []} for job in jobs],
        launches=launches,
        windows=[{**manifests.NOT_JUDGED, **window}],
        clocks={launch["node"]: clock for launch in launches},
    )


def judge(folder, manifest):
    held = launch_outputs.RowsInIterations(manifest.run)
    for part, output in launch_outputs.located(folder, manifest):
        held.add("iterations", launch_outputs.rows_of(part, output)["iterations"], output)
    return held.judged(manifest)


def auto_window(starts, ends):
    return {
        "name": "w1",
        "start_ns": int(starts[20]),
        "end_ns": int(ends[-1]),
        "warmup": "auto",
        "earliest": {"a": 0},
        "iterations": {"a": {"first": 20, "last": len(ends) - 1}},
    }


def test_a_window_keeps_its_beginning_and_says_what_the_rule_takes_for_warm_up(tmp_path):
    took = np.r_[np.full(7, 0.4), np.tile([0.2, 0.201], 60)]
    starts, ends, one = logs(tmp_path, "a", 0, "h1", took, begin_ns=10**18)
    _, _, other = logs(tmp_path, "a", 1, "h2", took, begin_ns=10**18 + 300)
    manifest = manifest_of(["a"], [one, other], auto_window(starts, ends))
    (found,) = judge(tmp_path, manifest)
    assert (found.iterations, found.span_ns) == (manifest.windows[0].iterations, (starts[20], ends[-1]))
    assert found.mser["a"].samples == len(took)
    assert 7 <= found.mser["a"].unbounded <= 12
    # The same again of what is sealed, and nothing where the number is the experiment's own.
    assert judge(tmp_path, replace(manifest, windows=(found,))) == (found,)
    fixed = replace(manifest.windows[0], warmup=20)
    assert judge(tmp_path, replace(manifest, windows=(fixed,))) == (fixed,)


def slow_ones(random, kind, count):
    """Factors of iteration times: stalls (2 %), slow regimes (15 % of the time), or every sixth, from any phase."""
    if kind == "stalls":
        return np.where(random.random(count) < 0.02, 3.0, 1.0)
    if kind == "every sixth":
        return np.where((np.arange(count) + random.integers(6)) % 6 == 0, 2.0, 1.0)
    slow, at, factors = random.random() < 0.15, 0, np.ones(count)
    while at < count:
        lasts = random.geometric(1 / 20 if slow else 0.15 / 0.85 / 20)
        factors[at : at + lasts] = 1.3 if slow else 1.0
        at, slow = at + lasts, not slow
    return factors


@pytest.mark.parametrize(("kind", "mean"), [("stalls", 1.04), ("regimes", 1.045), ("every sixth", 7 / 6)])
def test_warm_up_does_not_prefer_slow_iterations(kind, mean, tmp_path):
    """Iterations are as likely to be left out when they are slow: what counts has the mean of all, run after run."""
    random = np.random.default_rng(1)
    starts, ends, _ = logs(tmp_path, "a", 0, "h1", np.full(60, 0.2), begin_ns=10**18)
    (window,) = manifest_of(["a"], [], auto_window(starts, ends)).windows
    zeros = np.zeros(60)
    of_all, counted = [], []
    for _ in range(1500):
        took = 0.2 * (1 + 0.02 * random.normal(size=60)) * slow_ones(random, kind, 60)
        logged = JobSeries(
            job="a",
            ranks=(0,),
            iteration=np.arange(60),
            seconds=took,
            compute_s=zeros,
            wait_s=zeros,
            start_ns=np.asarray(starts),
            end_ns=np.asarray(ends),
            incomplete=0,
        )
        found = warmup.judged(window, {"a": logged})
        counted.append(logged.within(found.iterations["a"].first, 59).seconds.mean() / 0.2)
        of_all.append(took[20:].mean() / 0.2)
    assert np.mean(counted) == pytest.approx(np.mean(of_all), rel=0.002)
    assert np.mean(counted) == pytest.approx(mean, rel=4 * np.std(counted) / math.sqrt(len(counted)))


def test_a_job_that_logged_nothing_leaves_its_window_as_it_was(tmp_path):
    window = {
        "name": "w1",
        "start_ns": 1,
        "end_ns": 2,
        "warmup": "auto",
        "earliest": {"a": 0},
        "iterations": {"a": {"first": 20, "last": 40}},
    }
    manifest = manifest_of(["a"], [], window)
    assert judge(tmp_path, manifest) == manifest.windows


def test_the_whole_output_of_every_rank_is_read_once(tmp_path):
    """Windows are chosen from it, and it is written with their names: not read again for either."""
    took = np.r_[np.full(7, 0.4), np.tile([0.2, 0.201], 60)]
    ranks = [logs(tmp_path, "a", rank, f"h{rank + 1}", took, begin_ns=10**18) for rank in range(3)]
    starts, ends, _ = ranks[0]
    for rank in range(3):
        begin, end = int(starts[30]), int(ends[30])
        spans = [["compute", "forward", "", -1, 0, begin, end]]
        record = {"iteration": 30, "start_ns": begin, "mono_start_ns": begin, "spans": spans}
        (tmp_path / f"hosts/h{rank + 1}/a.{rank}/trace.jsonl").write_text(json.dumps(record) + "\n")
    window = {
        "name": "w1",
        "start_ns": int(starts[20]),
        "end_ns": int(ends[-1]),
        "warmup": "auto",
        "earliest": {"a": 0},
        "iterations": {"a": {"first": 20, "last": len(took) - 1}},
    }
    manifest = manifest_of(["a"], [launch for _, _, launch in ranks], window)
    (tmp_path / MANIFEST).write_bytes(encoded(manifest))
    with opens(tmp_path) as counted:
        reduced = reduction.reduce(tmp_path)
    of_ranks = {name: count for name, count in counted.items() if name.startswith("hosts/")}
    files = [f"hosts/h{rank + 1}/a.{rank}/{log}.jsonl" for rank in range(3) for log in ("iterations", "trace")]
    assert of_ranks == dict.fromkeys(files, 1)
    first = reduced.windows[0].iterations["a"].first
    assert first == 20
    rows = tables.read(tmp_path / "tables", "iterations").to_pylist()
    assert {row["iteration"] for row in rows if row["window_name"] == "w1"} == set(range(first, len(took)))
    assert [row["window_name"] for row in tables.read(tmp_path / "tables", "spans").to_pylist()] == ["w1"] * 3
