"""Jitter of emulated compute: recorded iterations, drawn by each rank from the seed of its run."""

from __future__ import annotations

import json
import shutil
import statistics
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random

import pytest

from orchestrator.core.errors import ConfigError
from orchestrator.experiment import loading, plan
from workloads.rank.compute import training
from workloads.rank.compute.training import Jitter

ROOT = Path(__file__).parents[3]
EXPERIMENT = """\
name: e
testbed: {local: {hosts: 3, link: 1gbit, scale: 100}}
workload: {WORKLOAD: {MODEL, jitter: recorded.txt}}
measure: {iterations: 10}
"""
KINDS = {
    "ddp": "model: resnet50",
    "p2p": "model: resnet50, strategy: ring",
    "fsdp": "model: resnet50",
    "deepspeed": "model: resnet50",
    "horovod": "model: resnet50",
    "tensorflow": "model: resnet50, strategy: multi-worker-mirrored",
    "kungfu": "model: resnet50",
    "ptd": "model: gpt2, data: 3, compute_time: 100ms",
    "moe": "model: gpt2, experts: 3, compute_time: 100ms",
}


def ar(count: int, *, phi: float = 0.8, seed: int = 1) -> list[float]:
    """Return compute times whose logarithms are an AR(1) series, in seconds."""
    draw = Random(seed)  # noqa: S311
    return [
        0.15 * 2.718 ** (0.02 * value) for value in accumulate(range(count), lambda x, _: phi * x + draw.gauss(0, 1))
    ]


def correlation(values: list[float], lag: int = 1) -> float:
    return statistics.correlation(values[:-lag], values[lag:])


def recorded(folder: Path, times: list[float]) -> None:
    (folder / "recorded.txt").write_text("".join(f"{time}\n" for time in times))


def written(folder: Path, kind: str = "ddp", more: str = "") -> Path:
    path = folder / "e.yaml"
    path.write_text(EXPERIMENT.replace("WORKLOAD", kind).replace("MODEL", KINDS[kind] + more))
    return path


def settings(path: Path, salt: str = "a") -> dict:
    """Return the settings of the ranks."""
    (run,) = plan.build(loading.checked(path, [], local=False)[0], salt)
    ranks = [launch for launch in run.jobs[0].launches if "config.json" in launch.files and launch.rank is not None]
    return json.loads(ranks[0].files["config.json"])


def factors(config: dict, rank: int, count: int = 2000) -> list[float]:
    clock = training.clock_of(config, rank)
    return [clock.end_iteration()["jitter"] for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_workload_hands_its_ranks_recorded_factors_about_their_mean(tmp_path, kind):
    times = ar(400)
    recorded(tmp_path, times)
    given = settings(written(tmp_path, kind))["jitter"]
    mean = statistics.fmean(times)
    assert given["factors"] == pytest.approx([time / mean for time in times], abs=1e-6)
    assert (given["stretch"], given["common"]) == (20, False)


def test_ranks_draw_their_own_or_all_the_same_and_a_salt_repeats_them(tmp_path):
    recorded(tmp_path, ar(400))
    own = settings(written(tmp_path))
    assert factors(own, 0) == factors(settings(written(tmp_path)), 0)
    assert factors(own, 0) != factors(own, 1)
    assert factors(own, 0) != factors(settings(written(tmp_path), salt="b"), 0), "another day draws anew"
    common = settings(written(tmp_path, more=", jitter_ranks: common"))
    assert factors(common, 0) == factors(common, 1)


@pytest.mark.parametrize("phi", [0.0, 0.6, 0.95])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_drawn_has_the_level_the_spread_and_the_memory_of_the_recording(phi, seed):
    times = ar(2500, phi=phi, seed=seed)
    mean = statistics.fmean(times)
    there = [time / mean for time in times]
    jitter = Jitter(there, stretch=50, seed=f"{seed} jitter 0")
    drawn = [jitter.next() for _ in range(20_000)]
    spread = statistics.pstdev(there)
    assert statistics.fmean(drawn) == pytest.approx(1.0, abs=0.3 * spread)
    assert statistics.pstdev(drawn) == pytest.approx(spread, rel=0.15)
    assert correlation(drawn) == pytest.approx(correlation(there), abs=0.06)
    places = {value: place for place, value in enumerate(there)}
    follows = [places[after] == (places[before] + 1) % len(there) for before, after in pairwise(drawn)]
    assert statistics.fmean(follows) == pytest.approx(1 - 1 / 50, abs=0.005), "a stretch has 50 iterations in the mean"


def test_layers_take_the_factor_of_their_iteration(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(training.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(training.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    clock = training.ComputeClock(Jitter([0.5, 2.0], stretch=1e9, seed="s"))
    took = []
    for _ in range(4):
        begin = now[0]
        for _ in range(2):  # a forward and a backward pass
            clock.start()
            clock.sleep_until(0.1)
            clock.sleep_until(0.2)
        told = clock.end_iteration()
        took.append(now[0] - begin)
        assert told == {"absorbed_s": 0.0, "jitter": pytest.approx(took[-1] / 0.4)}
    assert sorted(took[:2]) == pytest.approx([0.2, 0.8])
    assert took[2:] == took[:2] == pytest.approx(took[:2])


def test_the_log_of_a_run_is_a_recording(tmp_path):
    lines = [{"forward_s": 0.1, "backward_s": 0.2 + 0.01 * (n % 2), "wait_s": 9.0} for n in range(20)]
    (tmp_path / "recorded.txt").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert settings(written(tmp_path))["jitter"]["factors"] == pytest.approx([0.3 / 0.305, 0.31 / 0.305] * 10, abs=1e-6)


@pytest.mark.parametrize(
    ("content", "more", "told"),
    [
        (None, "", "recorded.txt"),
        ("0.1\n" * 19, "", "19 iterations are too few to draw from"),
        ("0.1\n" * 30 + "x\n", "", "recorded.txt:31: no time of an iteration"),
        ("0.1\n" * 30 + "0\n", "", "recorded.txt:31: no time of an iteration"),
        ('{"loss": 1}\n' * 30, "", "recorded.txt:1: no time of an iteration"),
        ("0.1\n" * 1000 + "100\n", "", "an iteration took 500 times the mean"),
        ("0.1\n" * 30, ", compute: real", "real compute takes the time that it takes"),
    ],
)
def test_a_file_that_is_no_recording_is_told(tmp_path, content, more, told):
    if content is not None:
        (tmp_path / "recorded.txt").write_text(content)
    with pytest.raises(ConfigError) as refused:
        loading.checked(written(tmp_path, more=more), [], local=False)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    "recording", sorted((ROOT / "playbooks/recordings").glob("*.jsonl")), ids=lambda path: path.stem
)
def test_recordings_that_come_with_orch_can_be_drawn_from(recording, tmp_path):
    shutil.copy(recording, tmp_path / "recorded.txt")
    factors = settings(written(tmp_path))["jitter"]["factors"]
    assert len(factors) >= 280
    assert sum(factors) / len(factors) == pytest.approx(1, abs=1e-5)
    assert 0.3 < min(factors) < 1 < max(factors) < 3
