"""How far predicted iterations are from measured ones: settings that nothing was fitted to, by term."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from orchestrator.experiment import loading
from orchestrator.predict import benchmarks, beside, predicting
from orchestrator.predict.predicttext import Found
from tests.bench.commands import INVALID, ROOT, call
from tests.bench.figure import Figure, Settings, Table
from tests.bench.foremost import ranks_first
from tests.bench.prediction_tables import settings_table, terms_table

FOLDER = ROOT / ".predict"  # what was measured stays there: the same command goes on where it stopped
GOAL, TERM_GOAL, SHARE_GOAL = 0.10, 0.20, 0.03
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


def measure(settings: Settings) -> Iterator[Figure | Table]:
    """Measure what is missing, then hold predictions against it."""
    wanted = [one for place, one in enumerate(held_out()) if not settings.quick or place % 8 == 0]
    FOLDER.mkdir(exist_ok=True)
    with ranks_first():
        for one in [*fitted_to(), *wanted]:
            _measured(one)
    found = predictions(wanted)
    yield from figures(found)
    yield settings_table(found)
    yield terms_table(found, [terms_off(one) for one in found])


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


def predictions(wanted: list[dict[str, Any]]) -> list[Found]:
    """Each setting that was measured, with its prediction from the benchmarks alone."""
    results = FOLDER / "results"
    subjects = {}
    for one in wanted:
        file = FOLDER / f"{one['name']}.yaml"
        subjects[one["name"]] = predicting.subject(loading.checked(file, [], local=False)[0], file=str(file))
    costs = benchmarks.costs(results, next(iter(subjects.values())).topology)
    measured = beside.find(results, list(subjects.values()))
    return [
        Found(label=name, prediction=predicting.predict(subject, costs), measured=measured[beside.key(subject)])
        for name, subject in subjects.items()
    ]


def figures(found: list[Found]) -> Iterator[Figure]:
    """The numbers that predictions are held to."""
    errors = [abs(one.error) for one in found if one.error is not None]
    worst = max(found, key=lambda one: abs(one.error or 0.0))
    yield Figure(
        what=f"predicted against measured iteration, {len(errors)} settings: mean error",
        unit="%",
        values=(statistics.fmean(errors) * 100,),
        against="goal",
        reference=(GOAL * 100,),
        note=f"largest {max(errors):.1%}: {worst.label}",
    )
    exposed = sum(is_exposed(one) for one in found)
    yield Figure(what="of these with 30 % or more not hidden", unit="settings", values=(float(exposed),))
    terms = [off for one in found for off in terms_off(one).values()]
    yield Figure(
        what="terms within 20 % or 3 % of the iteration",
        unit="%",
        values=(100 * statistics.fmean(off <= 1 for off in terms),),
        note=f"{len(terms)} terms",
    )


def is_exposed(one: Found) -> bool:
    """Whether communication that nothing hides took 30 % of the measured iteration or more."""
    return one.measured is not None and one.measured.terms.exposed_s >= 0.3 * one.measured.iteration_s


def terms_off(one: Found) -> dict[str, float]:
    """Each term's difference, over what it may be: 20 % of it, or 3 % of the iteration."""
    if one.measured is None:
        return {}
    theirs, predicted = one.measured.terms.parts(), one.prediction.terms.parts()
    return {
        name: abs(predicted[name] - seconds) / max(TERM_GOAL * seconds, SHARE_GOAL * one.measured.iteration_s)
        for name, seconds in theirs.items()
        if seconds or predicted[name]
    }
