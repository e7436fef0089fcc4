"""Sweep files: the points that they mean, and mistakes told with their place."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
import yaml

from orchestrator.core.errors import ConfigError
from orchestrator.experiment import plan, sweepfile
from orchestrator.sweep import sweepplan
from tests.helpers.experiments import orch
from tests.helpers.sweep_files import SWEEP, write

ROOT = Path(__file__).parents[3]
MODELS = "  workload.ddp.model: [resnet50, vgg16]\n"


def points(tmp_path, text=SWEEP, **more):
    return sweepfile.load(write(tmp_path, text, **more)).points


def test_axes_are_all_with_all_and_values_stand_as_the_experiment_spells_them(tmp_path):
    found = points(tmp_path)
    assert [tuple(point.values.values()) for point in found] == [
        (load, model) for load in ("0bit", "100mbit", "200mbit") for model in ("resnet50", "vgg16")
    ]
    assert len({point.point for point in found}) == 6
    assert found[3].experiment.workload.config.model == "vgg16"
    assert found[3].experiment.name == "s"


def test_a_point_is_the_same_whatever_else_the_file_says(tmp_path):
    again = SWEEP.replace("iterations: 10", "iterations: 20").replace(
        "[0, 100, 200], unit: mbit", "[0.1, 0.2], unit: gbit"
    )
    assert {point.point for point in points(tmp_path, again)} == {point.point for point in points(tmp_path)[2:]}


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        ("[100mbit, 0.2gbit]", ["100mbit", "200mbit"]),
        ("{from: 0, to: 200, step: 100, unit: mbit}", ["0bit", "100mbit", "200mbit"]),
        ("{from: 100, to: 250, step: 100, unit: mbit}", ["100mbit", "200mbit"]),
        ("{from: 0.1, to: 0.7, step: 0.1, unit: gbit}", [f"{n}00mbit" for n in range(1, 8)]),
        ("{from: 100, to: 200, count: 3, unit: mbit}", ["100mbit", "150mbit", "200mbit"]),
        ("{named: {low: 1mbit, high: 900mbit}}", ["low", "high"]),
    ],
)
def test_an_axis_is_a_list_a_range_or_names(tmp_path, axis, values):
    text = SWEEP.replace(MODELS, "").replace("{values: [0, 100, 200], unit: mbit}", axis)
    assert [point.values["traffic.0.iperf.load"] for point in points(tmp_path, text)] == values


def test_an_axis_of_shares_of_the_link_is_one_of_rates(tmp_path):
    path = write(tmp_path, SWEEP.replace("{values: [0, 100, 200], unit: mbit}", "[0%, 25%, 50%]"))
    points = sweepfile.load(path).points
    assert {point.values["traffic.0.iperf.load"] for point in points} == {"0bit", "250mbit", "500mbit"}


def test_axes_in_a_zip_go_hand_in_hand(tmp_path):
    text = SWEEP.replace(MODELS, "") + "zip:\n- workload.ddp.model: [resnet50, vgg16]\n  measure.iterations: [40, 15]\n"
    found = points(tmp_path, text)
    assert len(found) == 6
    assert {(p.experiment.workload.config.model, p.experiment.measure.iterations) for p in found} == {
        ("resnet50", 40),
        ("vgg16", 15),
    }


def test_a_star_is_any_key_so_that_loads_go_over_kinds_of_traffic(tmp_path):
    text = SWEEP.replace(
        "  traffic.0.iperf.load: {values: [0, 100, 200], unit: mbit}\n",
        "  traffic: {named: {iperf: [{iperf: {from: h1, to: h3, load: 1mbit}}], "
        "search: [{websearch: {from: h1, to: h3, load: 1mbit}}]}}\n"
        "  traffic.*.*.load: [100mbit, 200mbit]\n",
    ).replace(MODELS, "")
    found = points(tmp_path, text)
    assert [tuple(point.values.values()) for point in found] == [
        (kind, load) for kind in ("iperf", "search") for load in ("100mbit", "200mbit")
    ]
    assert [(p.experiment.traffic[0].name, p.experiment.traffic[0].config.load) for p in found][2:] == [
        ("websearch", 100e6),
        ("websearch", 200e6),
    ]


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ("[{model: vgg16}]", 3),
        ("[{model: vgg16, load: '>=100mbit'}]", 4),
        ("[{load: [0mbit, 0.2gbit]}]", 2),
        ("[{load: 0bit}, {model: vgg16, traffic.0.iperf.load: 0.1gbit}]", 3),
    ],
)
def test_points_are_excluded_by_what_they_have(tmp_path, exclude, left):
    assert len(points(tmp_path, exclude=exclude)) == left


def test_a_load_of_nothing_is_no_cross_traffic(tmp_path):
    for point in points(tmp_path):
        (window,) = plan.single(point.experiment, 1).windows
        assert len(window.sources) == (point.values["traffic.0.iperf.load"] != "0bit")


def test_windows_mode_keeps_the_ranks_of_each_model_up(tmp_path):
    definition = sweepfile.load(write(tmp_path, mode="windows", repetitions="2"))
    found = list(sweepplan.batches(definition, sweepplan.in_order(definition)))
    assert [len(batch.windows) for batch in found] == [3, 3, 3, 3]
    for batch in found:
        run = plan.single(batch.experiment, batch.repetition)
        assert [window.name for window in run.windows] == list(batch.windows)
        assert [window.measure.warmup for window in run.windows] == [5, 2, 2]
        asked = {
            point.values["traffic.0.iperf.load"]: len(w.sources)
            for point, w in zip(batch.points.values(), run.windows, strict=True)
        }
        assert asked == {"0bit": 0, "100mbit": 1, "200mbit": 1}


def test_an_alternate_order_turns_every_other_repetition_round(tmp_path):
    definition = sweepfile.load(write(tmp_path, order="alternate", repetitions="4"))
    forward = [point.point for point in definition.points]
    found = [key[0] for key in sweepplan.in_order(definition, "any night")]
    assert found == [*forward, *forward[::-1], *forward, *forward[::-1]]


def test_a_run_of_windows_is_no_longer_than_allowed(tmp_path):
    definition = sweepfile.load(write(tmp_path, mode="windows", windows_per_run="2"))
    found = list(sweepplan.batches(definition, sweepplan.in_order(definition)))
    assert sorted(len(batch.windows) for batch in found) == [1, 1, 2, 2]


def test_order_is_random_within_each_repetition_and_the_same_for_the_same_seed(tmp_path):
    fixed = sweepfile.load(write(tmp_path, order="fixed", repetitions="3"))
    assert [key[0] for key in sweepplan.in_order(fixed)] == [point.point for point in fixed.points] * 3
    orders = [sweepplan.in_order(sweepfile.load(write(tmp_path, seed=seed, repetitions="3"))) for seed in "112"]
    assert orders[0] == orders[1] != orders[2]
    nights = [sweepplan.in_order(sweepfile.load(write(tmp_path, repetitions="3")), night) for night in "abb"]
    assert nights[0] != nights[1] == nights[2], "another night, another order, and the same when it is taken up again"
    blocks = [orders[0][n * 6 : n * 6 + 6] for n in range(3)]
    assert all({key[1] for key in block} == {n + 1} for n, block in enumerate(blocks))
    assert [key[0] for key in blocks[0]] != [key[0] for key in blocks[1]]


def test_points_of_each_curve_are_checked_in_fresh_runs(tmp_path):
    definition = sweepfile.load(write(tmp_path, mode="windows", recheck="1"))
    checks = [key for key in sweepplan.in_order(definition) if key[2]]
    values = {point.point: point.values for point in definition.points}
    assert sorted(values[key[0]]["workload.ddp.model"] for key in checks) == ["resnet50", "vgg16"]
    alone = [
        batch for batch in sweepplan.batches(definition, sweepplan.in_order(definition)) if len(batch.windows) == 1
    ]
    assert [key for batch in alone for key in batch.windows.values()] == checks


def test_the_experiment_may_be_a_file_beside_it_and_says_how_often(tmp_path):
    (tmp_path / "e.yaml").write_text(
        "name: e\ntestbed: {local: {hosts: 3, link: 1gbit}}\nworkload: {ddp: {model: vgg16, hosts: [h1, h2]}}\n"
        "measure: {iterations: 5}\nrepetitions: 4\n"
    )
    (tmp_path / "s.yaml").write_text("name: s\nexperiment: e.yaml\naxes: {workload.ddp.model: [vgg16, resnet50]}\n")
    definition = sweepfile.load(tmp_path / "s.yaml")
    assert (definition.repetitions, definition.points[0].experiment.repetitions) == (4, 1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "[0, 100, 200], unit: mbit",
            "[0, 100, 2000], unit: mbit",
            r"point traffic.0.iperf.load=2000mbit.*does not fit",
        ),
        ("[resnet50, vgg16]", "[resnet50, vgg61]", r"no model 'vgg61'"),
        ("[resnet50, vgg16]", "[]", r"s.yaml:4:3: axes.workload.ddp.model: .*not an axis"),
        ("[resnet50, vgg16]", "[vgg16, vgg16]", "stands twice"),
        ("[0, 100, 200], unit: mbit", "[a], unit: mbit", "values beside a unit are numbers alone"),
        ("{values: [0, 100, 200], unit: mbit}", "{from: 3, to: 1, step: 1}", "the range is empty"),
        ("{values: [0, 100, 200], unit: mbit}", "{from: 3, to: 4}", "not a whole range"),
        ("workload.ddp.model:", "jobs.*.workload:", r"nothing in the experiment is at jobs\.\*\.workload"),
        ("workload.ddp.model:", "workload..model:", "not a key path"),
        ("name: s\n", "name: s\nexclude: [{modl: 1}]\n", "exclude: no axis modl; accepted: traffic.0.iperf.load"),
        ("name: s\n", "name: s\nexclude: [{load: '>=0bit'}]\n", "leaves no point"),
        ("name: s\n", "name: s\nrecheck: 1\n", "every run is a fresh one already"),
        ("name: s\n", "name: s\nzip: [{measure.stall_timeout: [1s, 2s], seed: [1]}]\n", "not of equal length"),
        ("name: s\n", "name: s\nfresh: 1\n", "fresh: is called recheck now; accepted: recheck"),
        ("name: s\n", "name: s\nmood: windows\n", "unknown key; did you mean mode"),
        ("    - iperf:", "    - iprf:", r"s.yaml:9:7: .*unknown key; did you mean iperf"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path, old, new, message):
    assert SWEEP.count(old) == 1
    with pytest.raises(ConfigError, match=message):
        sweepfile.load(write(tmp_path, SWEEP.replace(old, new)))


def test_an_experiment_that_is_not_there_is_said(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text("name: s\nexperiment: gone.yaml\naxes: {seed: [1]}\n")
    with pytest.raises(ConfigError, match=r"s.yaml:2:1: experiment: no file .*/gone.yaml nor gone.yaml"):
        sweepfile.load(path)


def test_orch_run_of_a_sweep_says_which_command_takes_it(tmp_path):
    status, _, err = orch("run", str(write(tmp_path)))
    assert status == 2
    assert "is a sweep, not an experiment\n  remedy: orch sweep" in err


def test_orch_sweep_of_an_experiment_says_that_it_is_one(tmp_path):
    (tmp_path / "e.yaml").write_text("name: e\ntestbed: {local: {hosts: 3, link: 1gbit}}\n")
    status, _, err = orch("sweep", str(tmp_path / "e.yaml"))
    assert status == 2
    assert "is an experiment, not a sweep\n  remedy: name it under `experiment`" in err


def test_the_schema_takes_what_is_taken_and_nothing_else(tmp_path):
    schema = json.loads(orch("schema", "sweep")[1])
    taken = yaml.safe_load(SWEEP)
    jsonschema.validate(taken, schema)
    with pytest.raises(jsonschema.ValidationError, match="mood"):
        jsonschema.validate({**taken, "mood": "runs"}, schema)


@pytest.mark.parametrize("path", sorted(ROOT.glob("playbooks/sweeps/*.yaml")), ids=lambda path: path.stem)
def test_every_sweep_of_the_playbooks_can_be_planned(path):
    definition = sweepfile.load(path)
    batches = list(sweepplan.batches(definition, sweepplan.in_order(definition)))
    assert sum(len(batch.windows) for batch in batches) >= len(definition.points) * definition.repetitions


def test_orch_plan_shows_every_point_and_how_long(tmp_path):
    path = write(tmp_path, SWEEP.replace("iterations: 10", "iterations: 10, at_most: 20s"), mode="windows")
    status, out, _ = orch("plan", str(path), "--results", str(tmp_path / "none"))
    assert status == 0
    assert "sweep s: 6 points, once each" in out
    assert "6 measurements in 2 runs (windows mode" in out
    assert "by compute times, bytes and links: none of its points was measured before" in out
    assert "load=200mbit, model=vgg16" in out


def _earlier(point, seconds, total):
    summary = SimpleNamespace(run="r", windows=[None], phases={"total": total, "window": seconds}, dilation=1)
    return SimpleNamespace(point=point.point, window=SimpleNamespace(seconds=seconds), manifest=summary)


def _estimated(definition, earlier=()):
    return sweepplan.estimate(list(sweepplan.batches(definition, sweepplan.in_order(definition))), earlier)


def test_the_time_of_a_sweep_is_reckoned_from_compute_times_bytes_and_links(tmp_path):
    """It was the bound of each window before: a study of ten minutes was announced with 35."""
    text = SWEEP.replace(MODELS, "  workload.ddp.compute_time: [100ms, 1s]\n").replace("link: 1gbit", "link: 100gbit")
    long = _estimated(sweepfile.load(write(tmp_path, text.replace("iterations: 10", "iterations: 100, at_most: 300s"))))
    short = _estimated(sweepfile.load(write(tmp_path, text.replace("iterations: 10", "iterations: 20, at_most: 300s"))))
    assert not long.bound
    assert long.seconds - short.seconds == pytest.approx(3 * 80 * (0.1 + 1), rel=0.3), "sending comes on top"
    capped = _estimated(sweepfile.load(write(tmp_path, text.replace("iterations: 10", "iterations: 100, at_most: 1s"))))
    assert capped.seconds < short.seconds


def test_what_is_measured_counts_and_stretches_what_is_reckoned(tmp_path):
    text = SWEEP.replace(MODELS, "  workload.ddp.compute_time: [100ms, 1s]\n").replace("[0, 100, 200]", "[0]")
    definition = sweepfile.load(write(tmp_path, text.replace("iterations: 10", "iterations: 100")))
    short, long = definition.points
    reckoned = _estimated(definition, [_earlier(short, 30.0, 40.0), _earlier(long, 200.0, 210.0)])
    assert (reckoned.seconds, reckoned.known) == (pytest.approx(30 + 200 + 2 * 10), 2)
    twice = 2 * sweepplan._reckoned(short).window_s
    one = _estimated(definition, [_earlier(short, twice, twice + 10.0)])
    assert one.seconds == pytest.approx(twice + 2 * sweepplan._reckoned(long).window_s + 2 * 10), "both twice as long"


def test_a_window_of_which_nothing_is_known_counts_with_the_most_that_it_may_take(tmp_path):
    text = SWEEP.replace(MODELS, "  workload.ddp.compute: [real]\n").replace("[0, 100, 200]", "[0]")
    text = text.replace("scale: 10", "scale: 1")
    bound = _estimated(sweepfile.load(write(tmp_path, text.replace("iterations: 10", "iterations: 10, at_most: 50s"))))
    assert bound.bound
    assert bound.seconds == pytest.approx(50, abs=25)
    assert _estimated(sweepfile.load(write(tmp_path, text))).seconds is None
