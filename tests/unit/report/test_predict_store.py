"""Predictions beside the store: inputs fitted to runs of `collective`, and runs of the same settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from orchestrator.experiment import loading
from orchestrator.parts.rows import TABLES
from orchestrator.report.run import figures
from orchestrator.report.runs import Run
from orchestrator.store.tabular.tables import TableWriter
from tests.helpers.experiments import orch
from tests.helpers.made_tables import table
from tests.helpers.sealed_run import make_run

DDP = {
    "name": "resnet-load",
    "testbed": {"local": {"hosts": 4, "link": "25gbit", "scale": 100}},
    "workload": {"ddp": {"model": "resnet50"}},
    "measure": {"iterations": 10},
}
SIZES = [1_000, 10_000, 100_000, 1_000_000]
COLLECTIVE = {
    **DDP,
    "workload": {
        "collective": {"operations": ["all-reduce", "send-receive"], "sizes": ["100kb", "1mb", "10mb", "100mb"]}
    },
}
QUICK = ("--draws", "1", "--grain", "flows")
ROUND_S, FACTOR = 2e-4, 1.2


def written(path: Path, data: object) -> Path:
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


def sealed(results: Path, data: dict[str, object], *, repetition: int = 1) -> Path:
    """A run of four hosts whose iterations take 0.2 s, of these settings."""
    kind = next(iter(data["workload"]))  # type: ignore[call-overload]

    def change(manifest: dict[str, object]) -> None:
        manifest["jobs"][0]["workload"] = kind  # type: ignore[index]

    path = make_run(results / "resnet-load", repetition=repetition, load_bps=0, change=change)
    experiment, _ = loading.checked(written(path / "given.yaml", data), [], local=False)
    (path / "experiment.yaml").write_text(loading.resolved_text(experiment))
    return path


def benchmark(results: Path, sizes: list[int] = SIZES) -> Path:
    """A run of `collective` in which rounds and links take what they should."""
    path = sealed(results, COLLECTIVE, repetition=2)
    rows: dict[str, list[object]] = {}
    for operation, rounds, sent in (("all-reduce", 6, 1.5), ("send-receive", 1, 1.0)):
        for size in sizes:
            seconds = max(rounds * ROUND_S, FACTOR * sent * size * 8 / 250e6)
            row = {
                "job": "training",
                "rank": 0,
                "window_name": "w1",
                "iteration": 7,
                "operation": operation,
                "bytes": size,
                "repeats": 3,
                "seconds": seconds,
                "algorithm_bps": 1.0,
                "bus_bps": 1.0,
                "link_bps": 1.0,
            }
            for name, value in row.items():
                rows.setdefault(name, []).append(value)
    with TableWriter(path / "tables", run=path.name) as writer:
        writer.add("collectives", rows, node="h1", launch="rank0")
    return path


REAL = {
    **DDP,
    "testbed": {"local": {"hosts": 4, "link": "1gbit"}},
    "workload": {"ddp": {"model": "small_cnn", "compute": "real", "data": "gratings", "batch": 16}},
}
FORWARD_S, BACKWARD_S, STEP_S = 0.03, 0.06, 0.004


def trained(results: Path, data: dict[str, object] = REAL) -> Path:
    """A run with real compute of four ranks, whose only bucket is ready when half of the backward pass is over."""

    def change(manifest: dict[str, object]) -> None:
        manifest["jobs"][0].update(workload="ddp", model="small_cnn")  # type: ignore[index]
        manifest["scale"] = 1

    path = make_run(results / "resnet-load", repetition=3, load_bps=0, change=change, skip=("iterations", "spans"))
    experiment, _ = loading.checked(written(path / "given.yaml", data), [], local=False)
    (path / "experiment.yaml").write_text(loading.resolved_text(experiment))
    rows = []
    for number in range(21):
        by = (0.9, 1.0, 1.1)[number % 3]
        passed = {"forward_s": by * FORWARD_S, "backward_s": by * BACKWARD_S, "wait_s": 0.01}
        told = {"seconds": sum(passed.values()) + STEP_S, "samples": 16, "window_name": "w1", **passed}
        rows += [{"iteration": number, "rank": rank, **told} for rank in range(4)]
    spans = [
        {"iteration": number, "rank": rank, "window_name": "w1", **one}
        for number in range(21)
        for rank in range(4)
        for one in (
            {"lane": "compute", "span": "backward", "what": "", "start_ns": 0, "end_ns": 60_000_000},
            {"lane": "communication", "span": "all-reduce", "what": "bucket 0", "bytes": 9, "start_ns": 30_000_000},
        )
    ]
    with TableWriter(path / "tables", run=path.name) as writer:
        for name, made in (("iterations", rows), ("spans", spans)):
            whole = table(name, [{**row, "job": "training"} for row in made]).to_pydict()
            writer.add(name, {column: whole[column] for column in TABLES[name]}, node="h1", launch="rank0")
    return path


def predicted(file: Path, results: Path, *options: str) -> dict[str, object]:
    status, out, err = orch("predict", str(file), "--results", str(results), "--json", *QUICK, *options)
    assert (status, err) == (0, "")
    return json.loads(out)  # type: ignore[no-any-return]


def test_real_compute_takes_what_a_run_of_it_took(tmp_path: Path) -> None:
    trained(tmp_path / "results")
    file = written(tmp_path / "e.yaml", REAL)
    told = predicted(file, tmp_path / "results")
    (job,) = told["windows"][0]["jobs"]  # type: ignore[index]
    assert job["compute_s"] == pytest.approx(FORWARD_S + BACKWARD_S)
    one = told["inputs"]["computing of training in an iteration (s)"]  # type: ignore[index]
    assert one["source"].startswith("measured: 20261121T020003")
    assert one["low"] < FORWARD_S + BACKWARD_S < one["high"]
    assert job["p99_s"]["value"] > 1.1 * job["mean_s"]["value"] * 0.97, "iterations vary as those of the run"
    assert job["waiting_s"] < 0.03, "its gradients travel while the second half of the backward pass goes on"


def test_other_trainings_of_the_model_tell_too_and_other_batches_do_not(tmp_path: Path) -> None:
    trained(tmp_path / "results")
    workload = {"p2p": {**REAL["workload"]["ddp"], "strategy": "ring"}}  # type: ignore[index]
    source = {}
    for batch in (16, 64):
        workload["p2p"]["batch"] = batch
        told = predicted(written(tmp_path / "e.yaml", {**REAL, "workload": workload}), tmp_path / "results")
        source[batch] = told["inputs"]["computing of training in an iteration (s)"]["source"]  # type: ignore[index]
    assert source[16].startswith("measured: ")
    assert source[16].endswith("another training of the model")
    assert source[64].startswith("assumed: ")


def test_a_named_run_that_computes_something_else_is_refused(tmp_path: Path) -> None:
    path = trained(tmp_path / "results")
    file = written(tmp_path / "e.yaml", DDP)
    status, _, err = orch("predict", str(file), "--results", str(tmp_path / "results"), "--inputs", path.name)
    assert status != 0
    assert "tells nothing of what this experiment computes" in err


def test_inputs_are_those_that_the_stores_benchmark_has(tmp_path: Path) -> None:
    file = written(tmp_path / "e.yaml", DDP)
    assumed = predicted(file, tmp_path / "results")["inputs"]
    assert all(one["source"].startswith("assumed: ") for one in assumed.values())  # type: ignore[attr-defined]
    path = benchmark(tmp_path / "results")
    for options in ((), ("--inputs", path.name)):
        fitted = predicted(file, tmp_path / "results", *options)["inputs"]
        measured = {name: one for name, one in fitted.items() if one["source"] == f"measured: {path.name}"}  # type: ignore[attr-defined]
        assert measured["round of a collective (s)"]["value"] == pytest.approx(ROUND_S, rel=0.05)
        assert measured["link time a byte over that at the link's rate"]["value"] == pytest.approx(FACTOR, rel=0.05)


def test_too_few_messages_are_left_out_unless_their_run_is_named(tmp_path: Path) -> None:
    file = written(tmp_path / "e.yaml", DDP)
    path = benchmark(tmp_path / "results", SIZES[:2])
    inputs = predicted(file, tmp_path / "results")["inputs"]
    assert all(one["source"].startswith("assumed: ") for one in inputs.values())  # type: ignore[attr-defined]
    trained = sealed(tmp_path / "results", {**DDP, "workload": {"ddp": {"model": "vgg16"}}})
    for name, reason in (
        (path.name, "4 timed messages"),
        (trained.name, "tells nothing of what"),
        ("nobody", "no such run"),
    ):
        status, out, err = orch("predict", str(file), "--results", str(tmp_path / "results"), "--inputs", name)
        assert (status, out) == (1, "")
        assert reason in err


def test_a_run_of_the_same_settings_stands_beside_its_prediction(tmp_path: Path) -> None:
    path = sealed(tmp_path / "results", DDP)
    file = written(tmp_path / "e.yaml", {**DDP, "name": "another", "measure": {"iterations": 99}})
    (one,) = predicted(file, tmp_path / "results")["settings"]  # type: ignore[misc]
    measured = one["measured"]
    assert measured["runs"] == [path.name]
    assert measured["iteration_s"] == pytest.approx(0.2, rel=0.1)
    assert measured["error"] == pytest.approx(one["iteration_s"] / measured["iteration_s"] - 1)
    assert measured["terms"]["compute"] == pytest.approx(0.7 * measured["iteration_s"], rel=0.01)
    assert measured["terms"]["data"] == pytest.approx(0.3 * measured["iteration_s"], rel=0.01)
    status, out, _ = orch("predict", str(file), "--results", str(tmp_path / "results"), *QUICK)
    assert status == 0
    assert f"measured: {path.name}" in out


@pytest.mark.parametrize(
    "change",
    ["workload.ddp.bucket=5mb", "testbed.local.link=10gbit", "workload.ddp.hosts=[h1, h2]", "testbed.local.scale=50"],
)
def test_a_run_of_other_settings_does_not(change: str, tmp_path: Path) -> None:
    sealed(tmp_path / "results", DDP)
    (one,) = predicted(written(tmp_path / "e.yaml", DDP), tmp_path / "results", "--set", change)["settings"]  # type: ignore[misc]
    assert one["measured"] is None


def test_a_report_shows_where_iterations_of_a_split_model_went_and_of_no_other(tmp_path: Path) -> None:
    shape = {"layers": 4, "hidden": 64, "sequence": 64, "vocabulary": 100}
    ptd = {"ptd": {"model": shape, "pipeline": 2, "tensor": 2, "compute_time": "100ms"}}
    path = sealed(tmp_path / "results", {**DDP, "workload": ptd})
    assert figures.terms_by_rank(Run(path)) is None, "nothing was recorded"
    rows: dict[str, list[object]] = {}
    for rank in range(4):
        for number, (lane, span, what, begin, end) in enumerate(
            (
                ("compute", "forward", "microbatch 0", 0, 50),
                ("communication", "all-reduce", "tensor, microbatch 0", 50, 80),
            )
        ):
            row = {
                "job": "training",
                "rank": rank,
                "window_name": "w1",
                "iteration": 7,
                "lane": lane,
                "span": span,
                "what": what,
                "peer": -1,
                "bytes": 100,
                "sequence": number,
                "start_ns": begin * 1_000_000,
                "end_ns": end * 1_000_000,
            }
            for name, value in row.items():
                rows.setdefault(name, []).append(value)
    with TableWriter(path / "tables", run=path.name) as writer:
        writer.add("spans", rows, node="h1", launch="rank0")
    drawn = figures.terms_by_rank(Run(path))
    assert drawn is not None
    (panel,) = drawn[0].axes
    assert {text.get_text() for text in panel.get_legend().get_texts()} == {"compute", "tensor", "bubble"}
    assert figures.terms_by_rank(Run(sealed(tmp_path / "other", DDP, repetition=3))) is None
