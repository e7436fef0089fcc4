"""The interval of a prediction holds recorded runs that it was not made from, and its numbers are those recorded."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from orchestrator.predict import inputs, measured_runs, predicting, predicttext, recorded_errors
from orchestrator.predict.network_costs import Costs, Quantity
from tests.bench import prediction_tables
from tests.unit.predict.test_predict import DDP, costs, subject

RECORDED = Path(__file__).parents[3] / "docs/measurements/predict.amd-epyc-2.json"


@pytest.fixture(scope="module")
def recorded():
    return json.loads(RECORDED.read_text(encoding="utf-8"))["tables"]


def test_margins_are_those_of_what_was_recorded(recorded) -> None:
    found = prediction_tables.margins_of(recorded[1]["rows"])
    assert found.keys() == recorded_errors.MARGINS.keys()
    for workload, margin in found.items():
        kept = recorded_errors.MARGINS[workload]
        assert (kept.below, kept.above) == pytest.approx((margin.below, margin.above), abs=1e-4)
        assert kept.settings == margin.settings


def test_terms_are_counted_by_their_own_size(recorded) -> None:
    found = prediction_tables.terms_met(recorded[2]["columns"], recorded[2]["rows"])
    assert dict(found) == dict(recorded_errors.TERMS_MET)
    assert found["pipeline"] == (0, 9)


def test_intervals_hold_settings_that_were_left_out(recorded) -> None:
    settings = recorded[1]["rows"]
    assert prediction_tables.held_out(settings) >= 0.92 * len(settings)
    by_inputs = [(*map(float, row[2].split(" to ")), float(row[3])) for row in settings]
    assert sum(low <= measured <= high for low, high, measured in by_inputs) < 0.7 * len(settings)


def test_the_page_counts_what_stands_in_its_own_rows(recorded) -> None:
    counts, settings, terms = recorded
    made = prediction_tables.counts_table(settings["rows"], terms["columns"], terms["rows"])
    assert counts["rows"] == [list(row) for row in made.rows]
    cells = [cell for row in terms["rows"] for cell in row[1:]]
    assert cells == [prediction_tables.marked(cell) for cell in cells]


def measured_costs() -> Costs:
    return costs(round_s=1e-4)


def test_a_prediction_has_the_widened_interval(tmp_path: Path) -> None:
    found = predicting.predict(subject(tmp_path, DDP), measured_costs())
    low, high = found.by_inputs_s
    assert found.interval_s == (low, pytest.approx(high * math.exp(0.1707)))
    assert "by how far 21 recorded settings of ddp on one machine were off" in predicttext.interval_text(found)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (DDP.replace("25gbit", "100gbit"), "links of 10 to 40 Gbit/s alone"),
        (DDP.replace("25gbit", "1gbit"), "links of 10 to 40 Gbit/s alone"),
        (DDP.replace("scale: 100", "scale: 100, dilation: 10"), "no run with dilated time"),
    ],
)
def test_a_setting_unlike_all_that_were_recorded_has_no_interval(tmp_path: Path, text: str, why: str) -> None:
    found = predicting.predict(subject(tmp_path, text), measured_costs())
    assert math.isnan(found.interval_s[0])
    told = predicttext.interval_text(found)
    assert told.startswith("no interval: ")
    assert why in told


def test_assumed_costs_give_no_interval(tmp_path: Path) -> None:
    names = ("round_s", "link_factor", "inside_byte_s", "byte_s", "piece_s", "step_s")
    one = Quantity(value=1e-3, low=1e-4, high=1e-2, source="assumed: a guess")
    found = predicting.predict(subject(tmp_path, DDP), Costs(**dict.fromkeys(names, one)))
    assert "costs of messages are assumed" in predicttext.interval_text(found)


@pytest.mark.parametrize("dilation", [2, 10, 50])
def test_dilated_time_is_predicted_as_full_size_seconds_of_a_machine_that_is_as_many_times_faster(
    tmp_path: Path, dilation: int
) -> None:
    plain, dilated = subject(tmp_path, DDP), subject(tmp_path, DDP, f"testbed.local.dilation={dilation}")
    assert measured_runs.key(dilated) != measured_runs.key(plain)
    found, usual = (predicting.predict(of, inputs.usual(of.topology)) for of in (dilated, plain))
    assert 0.95 * usual.iteration_s < found.iteration_s <= usual.iteration_s
