"""How far predicted iterations are from measured ones: settings that nothing was fitted to, by term."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from orchestrator.experiment import loading
from orchestrator.predict import inputs, measured_runs, predicting
from orchestrator.predict.predicttext import PredictedSetting
from tests.bench.commands import INVALID, ROOT, call
from tests.bench.figure import Settings, Table
from tests.bench.foremost import ranks_first
from tests.bench.prediction_tables import counts_table, settings_table, terms_table

FOLDER = ROOT / ".predict"  # what was measured stays there: the same command goes on where it stopped
RUN_WITHIN_S = 240.0

LINKS = ("10gbit", "25gbit", "40gbit")
MODELS = ("resnet50", "resnet101", "vgg16", "bert-base", "bert-large")
QUICK = (  # accelerators so quick that communication is most of an iteration
    ("resnet50", "50ms", "10gbit"),
    ("resnet50", "50ms", "25gbit"),
    ("resnet101", "90ms", "10gbit"),
    ("densenet161", "90ms", "10gbit"),
)
GPTS = {"gpt2": "600ms", "gpt2-medium": "900ms"}
PAIRED = [f"h{1 + rank // 2}" for rank in range(8)]  # eight ranks on four hosts
PACKED = [f"h{1 + rank // 4}" for rank in range(8)]  # on two hosts: mappings decide which kind of traffic crosses
CROSSED = ["h1", "h2", "h1", "h2", "h3", "h4", "h3", "h4"]


def experiment(name: str, workload: Mapping[str, Any], link: str, *, iterations: int) -> dict[str, Any]:
    """Four hosts at a hundredth of these links; noise of other work is taken as it is."""
    return {
        "name": name,
        "testbed": {"local": {"hosts": 4, "link": link, "scale": 100}},
        "workload": dict(workload),
        "measure": {"warmup": 2, "iterations": iterations},
        "validity": {"processor": "ignore", "drift": "ignore"},
    }


def fitted_to() -> Iterator[dict[str, Any]]:
    """Benchmarks of messages: over links of three rates, within hosts, and with several groups at once."""
    sizes = ["100kb", "1mb", "5mb", "20mb", "80mb"]
    ring = {"collective": {"operations": ["all-reduce"], "sizes": sizes, "repeats": 3}}
    for link in ("5gbit", "25gbit", "100gbit"):
        yield experiment(f"ring-{link}", ring, link, iterations=6)
    both = {"operations": ["all-reduce", "send-receive"], "sizes": sizes, "repeats": 3, "groups": 4}
    for name, hosts in (("within", PAIRED), ("across", CROSSED)):
        yield experiment(f"groups-{name}", {"collective": {**both, "hosts": hosts}}, "25gbit", iterations=6)


def held_out() -> Iterator[dict[str, Any]]:
    """What is predicted: data parallelism of five models, two GPTs in both mappings, each at three link rates."""
    for link in LINKS:
        for model in MODELS:
            yield experiment(f"ddp-{model}-{link}", {"ddp": {"model": model}}, link, iterations=8)
    for model, compute_time, link in QUICK:
        quick = {"ddp": {"model": model, "compute_time": compute_time}}
        yield experiment(f"ddp-{model}-{compute_time}-{link}", quick, link, iterations=8)
    for bucket in ("5mb", "100mb"):
        yield experiment(f"ddp-vgg16-{bucket}", {"ddp": {"model": "vgg16", "bucket": bucket}}, "25gbit", iterations=8)
    split = {"pipeline": 2, "tensor": 2, "data": 2, "batch": 4, "microbatches": 4}
    for link in LINKS:
        placement, hosts = ("4x2", PAIRED) if link == LINKS[0] else ("2x4", PACKED)
        for model, compute_time in GPTS.items():
            for mapping in ("default", "customized"):
                ptd = {**split, "model": model, "compute_time": compute_time, "mapping": mapping, "hosts": hosts}
                yield experiment(f"ptd-{model}-{mapping}-{link}-{placement}", {"ptd": ptd}, link, iterations=6)
    deep = {
        "model": "gpt2",
        "pipeline": 4,
        "tensor": 1,
        "data": 2,
        "batch": 4,
        "microbatches": 8,
        "compute_time": "800ms",
        "hosts": PAIRED,
    }
    yield experiment("ptd-gpt2-4x1x2", {"ptd": deep}, "25gbit", iterations=6)


def measure(settings: Settings) -> Iterator[Table]:
    """Measure what is missing, then hold predictions against it."""
    wanted = [one for place, one in enumerate(held_out()) if not settings.quick or place % 8 == 0]
    FOLDER.mkdir(exist_ok=True)
    with ranks_first():
        for one in [*fitted_to(), *wanted]:
            _measured(one)
    found = predictions(wanted)
    settings, terms = settings_table(found), terms_table(found)
    yield counts_table(settings.rows, terms.columns, terms.rows)
    yield settings
    yield terms


def _measured(one: Mapping[str, Any]) -> None:
    """Carry an experiment out, unless that was done."""
    file, results = FOLDER / f"{one['name']}.yaml", FOLDER / "results"
    sealed = (json.loads(path.read_bytes()) for path in (results / one["name"]).glob("*/manifest.json"))
    if any(manifest["outcome"] == "completed" for manifest in sealed):
        return
    file.write_text(yaml.safe_dump(dict(one), sort_keys=False))
    options = ["--no-report", "--wait", "10min", "--results", str(results)]
    argv = [sys.executable, "-m", "orchestrator.cli.main", "run", str(file), *options]
    call(argv, ok=(0, INVALID), within_s=RUN_WITHIN_S, cwd=ROOT)


def predictions(wanted: list[dict[str, Any]]) -> list[PredictedSetting]:
    """Each setting that was measured, with its prediction from the benchmarks alone."""
    results = FOLDER / "results"
    subjects = {}
    for one in wanted:
        file = FOLDER / f"{one['name']}.yaml"
        subjects[one["name"]] = predicting.subject(loading.checked(file, [], local=False)[0], file=str(file))
    costs = inputs.costs(results, next(iter(subjects.values())).topology)
    measured = measured_runs.find(results, list(subjects.values()))
    return [
        PredictedSetting(
            label=name, prediction=predicting.predict(subject, costs), measured=measured[measured_runs.key(subject)]
        )
        for name, subject in subjects.items()
    ]
