"""What predictions are held against, and what the tables say of how far they were off."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest
import yaml

from orchestrator.experiment import loading
from orchestrator.predict import foreseeing, inputs, measured_runs, predicting
from orchestrator.predict.foreseeing import MODEL_ERROR
from tests.bench import prediction_tables
from tests.bench.predict import chosen
from tests.bench.predicted_settings import fitted_to, held_out
from tests.bench.prediction_tables import Compared, Repeated, Times
from tests.unit.predict.test_predict import DDP, subject


def times(seconds: float, exposed_s: float) -> Times:
    return Times(mean_s=seconds, p50_s=seconds, p99_s=2 * seconds, exposed_s=exposed_s)


def compared(
    run: str, predicted_s: float, measured_s: float, *, kind: str = "queues", ranked: bool = False
) -> Compared:
    own = times(predicted_s, predicted_s - 0.1)
    return Compared(
        kind=kind,
        run=run,
        window="alone",
        job="",
        ranked=ranked,
        grain="packets",
        predicted=own,
        interval_s=(0.9 * predicted_s / (1 + MODEL_ERROR), 1.1 * predicted_s * (1 + MODEL_ERROR)),
        measured=times(measured_s, measured_s - 0.1),
        by_grain={"packets": own, "flows": times(measured_s, 0.0)},
    )


def test_every_setting_is_an_experiment_that_can_be_predicted(tmp_path: Path) -> None:
    runs = list(held_out())
    known = list(fitted_to(runs))
    names = [run.name for run in runs] + [data["name"] for data in known]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert sum(len(run.windows) for run in runs) >= 150
    for data in (*known, *(run.data for run in runs)):
        file = tmp_path / f"{data['name']}.yaml"
        file.write_text(yaml.safe_dump(dict(data)))
        experiment = loading.checked(file, [], local=False).experiment
        assert list(foreseeing.refusals(experiment)) == [], data["name"]
    kinds = Counter(run.kind for run in runs if run.ranked)
    assert kinds == {"offsets": 8, "placements": 8}


def test_a_second_measurement_says_what_no_prediction_can_beat() -> None:
    again = [
        Repeated(name="near", p50_s=(0.1, 0.102), p99_s=(0.2, 0.2)),
        Repeated(name="far", p50_s=(0.1, 0.09), p99_s=(0.2, 0.3)),
    ]
    assert prediction_tables.repeated_table(again).rows == (
        ("median", "2", "6.0%", "10.0% (`far`)"),
        ("99th percentile", "2", "25.0%", "50.0% (`far`)"),
    )


def test_a_part_is_spread_evenly_over_what_the_pattern_matches() -> None:
    runs = list(held_out())
    assert [run.kind for run in chosen(runs, only="^(iperf|queues):", most=3)] == ["iperf", "queues", "queues"]
    assert [run.name for run in chosen(runs, most=2)] == [runs[0].name, runs[-1].name]
    assert chosen(runs, most=1000) == runs
    assert chosen(runs, only="no such kind") == []


def test_what_misses_its_goal_is_printed_as_missed() -> None:
    found = [compared("near", 0.202, 0.2), compared("far", 0.26, 0.2)]
    row, every, goal = prediction_tables.kinds_table(found).rows
    assert row == ("queues", "2", "15.5%, missed", "30.0%, missed (`far, alone`)", *row[4:])
    assert row[4:] == ("15.5%, missed", "31.0%, missed", "50.0%, missed", "")
    assert every[1:] == row[1:]
    assert goal[2] == "4%"
    assert prediction_tables.kinds_table(found[:1]).rows[0][2:4] == ("1.0%", "1.0% (`near, alone`)")


def test_errors_of_each_kind_are_told_while_nothing_is_recorded() -> None:
    found = [compared("near", 0.202, 0.2), compared("far", 0.26, 0.2)]
    told = {one.what: one for one in prediction_tables.figures(found)}
    assert told["queues: error of the median"].values == pytest.approx((1.0, 30.0))
    assert told["all: error of the median"].note == "mean 15.5, goal 4"
    assert all(one.tabled for one in told.values())
    assert list(prediction_tables.figures([])) == []


def test_exposed_communication_of_a_small_share_is_not_judged() -> None:
    assert math.isnan(compared("hidden", 0.12, 0.104).exposed_error)
    assert compared("exposed", 0.12, 0.11).exposed_error == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("measured", "told"), [((1.0, 2.0, 3.0, 4.0), "1.00"), ((4.0, 3.0, 2.0, 1.0), "-1.00, missed")]
)
def test_an_order_is_compared_where_one_is_predicted(measured: tuple[float, ...], told: str) -> None:
    found = [
        compared(f"offset-{place}", 1.0 + place, one, kind="offsets", ranked=True) for place, one in enumerate(measured)
    ]
    assert prediction_tables.kinds_table(found).rows[0][-1] == told
    alone = [compared(f"queue-{place}", 1.0, 1.0) for place in range(4)]
    assert prediction_tables.kinds_table(alone).rows[0][-1] == ""


def test_intervals_are_widened_by_what_settings_of_other_kinds_need() -> None:
    queues = [compared(f"queue-{place}", 1.0, measured) for place, measured in enumerate((1.05, 1.21))]
    jobs = [compared(f"jobs-{place}", 1.0, measured, kind="two jobs") for place, measured in enumerate((1.0, 1.32))]
    drawn, printed, widened, by_others = prediction_tables.intervals_table([*queues, *jobs]).rows
    assert drawn[1:] == ("", "2 of 4")
    assert printed[1:] == (f"{MODEL_ERROR:.1%}", "2 of 4")
    assert widened[1:] == ("20.0%", "4 of 4")
    assert by_others[1:] == ("10.0% to 20.0%", "3 of 4")
    assert prediction_tables.intervals_table([]).rows[0][1:] == ("", "0 of 0")


def test_both_grains_stand_side_by_side() -> None:
    rows = prediction_tables.grains_table([compared("far", 0.3, 0.2)]).rows
    assert rows == (("packets", "1 of 1", "50.0%", "50.0%"), ("flows", "0 of 1", "0.0%", "0.0%"))


def test_each_setting_and_each_run_without_one_has_a_row() -> None:
    tables = {table.title: table for table in prediction_tables.made([compared("far", 0.3, 0.2)], {"gone": "no torch"})}
    (row,) = tables["Every setting: predicted / measured"].rows
    interval = f"{270 / (1 + MODEL_ERROR):.1f} to {330 * (1 + MODEL_ERROR):.1f}, missed"
    assert row[:4] == ("`far, alone`", "packets", "300.0 / 200.0", interval)
    assert row[-2:] == ("200.0 / 100.0", "+100.0%")
    assert tables["Not measured or not predicted"].rows == (("`gone`", "no torch"),)
    assert [table.title for table in prediction_tables.made([], {})] == list(tables)[:4]


@pytest.mark.parametrize("dilation", [2, 10, 50])
def test_dilated_time_is_predicted_as_full_size_seconds_of_a_machine_that_is_as_many_times_faster(
    tmp_path: Path, dilation: int
) -> None:
    plain, dilated = subject(tmp_path, DDP), subject(tmp_path, DDP, f"testbed.local.dilation={dilation}")
    assert measured_runs.key(dilated) != measured_runs.key(plain)
    found, usual = (predicting.predict(of, inputs.usual(of.topology)) for of in (dilated, plain))
    assert found.iteration_s == pytest.approx(usual.iteration_s, rel=0.05)


def test_what_the_model_gets_wrong_is_what_was_recorded() -> None:
    """A new recording that needs wider or narrower intervals fails here, as does a page that tells another figure."""
    root = Path(__file__).parents[3]
    record = json.loads((root / "docs/measurements/predict.amd-epyc-2.json").read_bytes())
    (table,) = [one for one in record["tables"] if one["title"] == "Intervals of 90 %"]
    needed = {name: width for name, width, _ in table["rows"]}
    assert needed["by what 90 % of all settings need"] == f"{MODEL_ERROR:.1%}"
    assert f"moved by another {MODEL_ERROR * 100:.1f} %" in (root / "docs/predict.md").read_text()
