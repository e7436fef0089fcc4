"""`orch traffic fit` on a sealed run: three hosts that trained ResNet-50 in a ring at scale 100."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from cross_traffic import replay, schedule_files
from orchestrator.analysis.traffic import periodicity
from orchestrator.cli.main import main

DATA = Path(__file__).parents[2] / "data" / "fitted"
RING = {("h1", "h3"), ("h3", "h2"), ("h2", "h1")}
ITERATION_BYTES = 409_833_600  # of all hosts: 3 x 4/3 of 25.6 million parameters of 4 bytes


@pytest.fixture
def results(tmp_path):
    return Path(shutil.copytree(DATA, tmp_path / "results"))


@pytest.fixture
def fit(results):
    def call(*options, run="last"):
        return main(["traffic", "fit", run, "--results", str(results), *map(str, options)])

    return call


@pytest.fixture
def run_id(results):
    (folder,) = (results / "original").glob("2*")
    return folder.name


def rates(folder, length_s):
    """Bytes in bins of 10 ms, and by pair of hosts."""
    flows = [(path.stem, flow) for path in folder.glob("*.csv") for flow in schedule_files.read_schedule(path)]
    places = [int(flow.start_s / 0.01) for _, flow in flows]
    total = np.bincount(places, [flow.size for _, flow in flows], int(length_s / 0.01) + 1)
    return total, {(src, flow.to) for src, flow in flows}


def test_files_of_all_hosts_are_written_with_what_sends_them(fit, tmp_path, capsys):
    out = tmp_path / "out"
    assert fit("--iterations", 100, "--seed", 3, "-o", out) == 0
    said = capsys.readouterr().out
    assert "all hosts are in step" in said
    assert "h1 to h3: 136,612,800 bytes an iteration" in said
    assert sorted(path.name for path in out.iterdir()) == ["h1.csv", "h2.csv", "h3.csv", "model.json", "traffic.yaml"]
    assert "seed 3" in (out / "h1.csv").read_text().splitlines()[0]
    ((source,),) = (entry.values() for entry in yaml.safe_load((out / "traffic.yaml").read_text()))
    assert set(source["schedules"]) == {"h1", "h2", "h3"}
    length_s = float(source["length"].removesuffix("us")) / 1e6
    made = replay.Config.model_validate(
        {**source, "schedules": {host: str(out / name) for host, name in source["schedules"].items()}}
    )
    assert {(demand.src, demand.dst) for demand in replay.demands(made)} == RING
    total, pairs = rates(out, length_s)
    assert pairs == RING
    assert total.sum() == pytest.approx(100 * ITERATION_BYTES, rel=1e-3)
    assert length_s == pytest.approx(100 * 0.128, rel=0.02)
    assert source["connections"] == "pool"
    assert periodicity.busy(total).mean() == pytest.approx(0.687, abs=0.05)


def test_a_seed_repeats_and_another_differs(fit, tmp_path):
    texts = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert fit("--seed", seed, "--iterations", 20, "-o", tmp_path / name) == 0
        texts.append((tmp_path / name / "h1.csv").read_text())
    assert texts[0] == texts[1] != texts[2]


def test_a_model_is_taken_along_without_its_run(fit, results, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    assert fit("--seed", 5, "--iterations", 30, "-o", first) == 0
    shutil.rmtree(results)
    assert fit("--seed", 5, "--iterations", 30, "-o", second, run=str(first / "model.json")) == 0
    assert (first / "h2.csv").read_text() == (second / "h2.csv").read_text()
    assert (first / "model.json").read_text() == (second / "model.json").read_text()


def test_one_sender_alone(fit, tmp_path):
    assert fit("--from", "h2", "-o", tmp_path / "out") == 0
    assert [path.name for path in (tmp_path / "out").glob("*.csv")] == ["h2.csv"]


def test_iterations_as_they_were_measured(fit, tmp_path):
    assert fit("--recorded", "-o", tmp_path / "out") == 0
    flows = list(schedule_files.read_schedule(tmp_path / "out" / "h1.csv"))
    assert sum(flow.size for flow in flows) == 59 * 136_612_800
    assert "as measured" in (tmp_path / "out" / "h1.csv").read_text().splitlines()[0]


def test_parameters_as_json(fit, capsys):
    assert fit("--json") == 0
    (clock,) = json.loads(capsys.readouterr().out)["clocks"]
    assert clock["bytes"]["mean"] == ITERATION_BYTES
    assert clock["period_s"]["mean"] == pytest.approx(0.128, rel=0.01)
    assert [round(burst["bytes"]) for burst in clock["bursts"]] == [339576411, 70257189]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--window", "w9"), "no window 'w9'"),
        (("--job", "x"), "no job 'x'"),
        (("--from", "h9"), "'h9' sends nothing of this training"),
        (("--iterations", "0"), "at least 1"),
        (("--seed", "-1"), "0 or more"),
        (("--recorded", "--iterations", "5"), "no meaning"),
    ],
)
def test_mistakes_are_one_error(fit, capsys, options, told):
    assert fit(*options) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said


def test_an_output_that_is_there_is_not_written_over(fit, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    assert fit("-o", tmp_path / "out") == 2
    assert "a folder that is not there yet" in capsys.readouterr().err


def test_a_run_without_captures_says_so(fit, results, run_id, capsys):
    (results / "original" / run_id / "tables" / "flow_packets.parquet").unlink()
    assert fit() == 2
    assert "were not captured" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{}", "[1]", "nonsense", '{"orch_traffic_model": 7}'])
def test_a_file_that_is_no_model_says_so(fit, tmp_path, capsys, text):
    (tmp_path / "model.json").write_text(text)
    assert fit(run=str(tmp_path / "model.json")) == 2
    assert "model" in capsys.readouterr().err
