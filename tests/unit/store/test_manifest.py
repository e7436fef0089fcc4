"""Manifests are read as typed records: recorded runs whole, damaged ones with file and field, later ones not at all."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from orchestrator.core.errors import StoreError
from orchestrator.parts.rows import TABLES
from orchestrator.store import sweeps
from orchestrator.store.manifests import coding, manifest, records, summaries
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.manifests.summaries import FORMAT
from orchestrator.store.stamps import MANIFEST
from tests.helpers import manifests

STORE = Path(__file__).parents[2] / "data" / "store"  # runs that orch sealed at commit 223327a
RECORDED = sorted(path for path in STORE.glob("*/*/manifest.json") if path.parents[1].name != "sweeps")
WITH_WINDOW = ("loads", "training", "variation", "processors")  # whose rows named their window once more


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parents[1].name}{path.parent.suffix}")
def test_what_was_sealed_is_read_and_written_again_as_it_was(path):
    recorded = json.loads(path.read_bytes())
    for window in recorded["windows"]:
        for row in (row for rows in WITH_WINDOW for row in window.get(rows, [])):
            row.pop("window", None)
        for row in window["processors"]:
            row["others_wait_share"] = row.pop("kept_share")
        window["name"] = window.pop("window")
    for point in (recorded.get("sweep") or {"points": {}})["points"].values():
        point["recheck"] = point.pop("fresh")
    for node in recorded["topology"]["nodes"]:
        rail = {key: node.pop(key) for key in ("address", "prefix", "device") if key in node}
        node["rails"] = [rail] if rail.get("address") or rail.get("device") else []
        node["slots"] = 1
    assert same({**recorded, "format": FORMAT}, json.loads(manifest.text(manifest.load(path))))


def same(recorded, written) -> bool:
    """Whether what is written says what was recorded, and nothing beside that."""
    if isinstance(recorded, dict):
        new = [value for key, value in written.items() if key not in recorded and (key, value) != ("dilation", 1)]
        assert not any(new), new
        return all(same(value, written[key]) for key, value in recorded.items())
    if isinstance(recorded, list):
        return len(recorded) == len(written) and all(map(same, recorded, written))
    assert recorded == written
    return True


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parents[1].name}{path.parent.suffix}")
def test_what_format_2_called_otherwise_is_read_by_the_names_of_today(tmp_path, path):
    whole = manifest.load(path)
    older = {**json.loads(manifest.text(whole)), "format": 2}
    for window in older["windows"]:
        window["window"] = window.pop("name")
    for point in (older["sweep"] or {"points": {}})["points"].values():
        point["fresh"] = point.pop("recheck")
    (tmp_path / MANIFEST).write_text(json.dumps(older))
    assert manifest.load(tmp_path / MANIFEST) == whole
    assert manifest.summary(tmp_path / MANIFEST) == manifest.summary(path)


def test_a_sweep_that_was_planned_by_an_older_version_says_what_it_measures_again(tmp_path):
    (file,) = (STORE / "sweeps").glob("*/*/sweep.json")
    recorded = json.loads(file.read_bytes())
    folder = tmp_path / "sweeps" / file.parents[1].name / file.parent.name
    folder.mkdir(parents=True)
    (folder / file.name).write_text(json.dumps({**recorded, "fresh": ["p0"]}))
    (sweep,) = sweeps.sweeps(tmp_path)
    assert (sweep.plan.format, sweep.plan.rechecked) == (sweeps.FORMAT, ("p0",))
    assert sweep.planned()[-1] == ("p0", 1, True)


def test_every_kind_of_run_was_recorded():
    runs = [manifest.load(path) for path in RECORDED]
    assert {run.outcome for run in runs} == {"running", "completed", "failed", "interrupted", "lost"}
    assert {run.valid for run in runs if run.outcome == "completed"} == {True, False}
    assert any(len(run.windows) > 1 for run in runs)
    for said in ("hits", "preflight", "pruned", "sweep", "unreached", "error", "capture"):
        assert any(getattr(run, said) for run in runs), said
    assert any(window.loads and window.variation and window.processors for run in runs for window in run.windows)


def test_a_summary_says_the_same_and_is_all_that_listings_read():
    for path in RECORDED:
        whole, summary = manifest.load(path), manifest.summary(path)
        for field in dataclasses.fields(summary):
            if field.name != "windows":
                assert getattr(summary, field.name) == getattr(whole, field.name)
        assert [window.name for window in summary.windows] == [window.name for window in whole.windows]
        assert not hasattr(summary, "launches")


def left(folder: Path, **changes) -> Path:
    path = folder / MANIFEST
    path.write_text(json.dumps({**manifests.BARE, **changes}))
    return path


WINDOW = {"name": "w1", "start_ns": 1, "end_ns": 2, "valid": True, "reasons": []}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"run": 7}, "run: expected `str`, got `int`"),
        ({"run": "../x"}, "run: the name '../x' is refused: it has the segment '..'"),
        ({"experiment": "a/b"}, "experiment: the name 'a/b' is refused: it is more than one name"),
        ({"outcome": "fine"}, "outcome: invalid enum value 'fine'"),
        ({"scale": 1 << 63}, f"scale: expected `int` <= {(1 << 63) - 1}"),
        ({"scale": None}, "scale: expected `int`, got `null`"),
        ({"valid": 1}, "valid: expected `bool`, got `int`"),
        ({"phases": {"total": 1e301}}, "phases[...]: expected `float` < 1e+300"),
        ({"windows": True}, "windows: expected `array`, got `bool`"),
        ({"windows": [WINDOW, {**WINDOW, "start_ns": "x"}]}, "windows[1].start_ns: expected `int`, got `str`"),
        ({"windows": [{"name": "w1"}]}, "windows[0]: object missing required field `start_ns`"),
        (
            {"windows": [{**WINDOW, "gates": [{"name": "load", "passed": None}]}]},
            "windows[0].gates[0]: object missing required field `message`",
        ),
        ({"launches": [{}]}, "launches[0]: object missing required field `name`"),
        (
            {"clocks": {"h1": {"before": {"offset_ns": 1}}}},
            "clocks[...].before: object missing required field `uncertainty_ns`",
        ),
        ({"artifacts": [{"path": "x", "bytes": -1, "sha256": ""}]}, "artifacts[0].bytes: expected `int` >= 0"),
    ],
)
def test_a_damaged_manifest_is_refused_with_file_and_field(tmp_path, changes, said):
    path = left(tmp_path, **changes)
    with pytest.raises(StoreError) as caught:
        manifest.load(path)
    assert caught.value.message == f"{path}: {said}"
    assert "damaged" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "truncated"),
        (b'{"run": ', "truncated"),
        (b"[]", "expected `object`, got `array`"),
        (b'{"run": "\xff"}', "can't decode"),
        (b'{"run": NaN}', "malformed"),
        (b"[" * 100_000, "expected `object`"),
        (b'{"sweep": {"points": {"w": {"values": {"x": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"run": "\\ud800 and more"}', "surrogate"),
    ],
)
def test_what_is_no_json_of_ours_is_refused(tmp_path, content, said):
    (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(StoreError) as caught:
        manifest.load(tmp_path / MANIFEST)
    assert caught.value.message.startswith(f"{tmp_path / MANIFEST}: ")
    assert said in caught.value.message


def test_one_that_is_not_there_is_said(tmp_path):
    with pytest.raises(StoreError, match=r"manifest\.json: cannot be read: No such file"):
        manifest.load(tmp_path / MANIFEST)


@pytest.mark.parametrize("later", [FORMAT + 1, 1 << 80, "2027.1", 2.5, None])
@pytest.mark.parametrize("more", [{}, {"windows": "of another shape", "outcome": "splendid"}])
def test_a_later_version_is_refused_by_name_whatever_else_it_says(tmp_path, later, more):
    path = left(tmp_path, format=later, **more)
    for read in (manifest.load, manifest.summary):
        with pytest.raises(StoreError) as caught:
            read(path)
        assert (
            caught.value.message
            == f"{path}: is of format {str(later)[:20]}, and this orch reads formats up to {FORMAT}"
        )
        assert caught.value.hint == "use the version of orch that made it, or a later one"


def test_fields_of_a_later_development_of_the_same_format_do_no_harm(tmp_path):
    path = left(tmp_path, weather="fine", windows=[{**WINDOW, "humidity": 0.4}])
    assert manifest.load(path).windows[0].name == "w1"


def test_figures_that_are_not_known_are_written_as_null_and_those_of_numpy_as_numbers():
    load = summaries.Load(source="s", src="h1", dst="h2", requested_bps=np.float64(1.5), achieved_bps=math.nan)
    written = manifest.text(_with(load))
    (found,) = json.loads(written)["windows"][0]["loads"]
    assert (found["requested_bps"], found["achieved_bps"]) == (1.5, None)


def _with(load: summaries.Load) -> Manifest:
    whole = manifests.made(windows=[WINDOW])
    return dataclasses.replace(whole, windows=(dataclasses.replace(whole.windows[0], loads=(load,)),))


def test_a_value_that_is_no_number_cannot_be_written():
    with pytest.raises(TypeError, match="Path cannot be written"):
        coding.encoded({"path": Path()})


@pytest.mark.parametrize(
    ("record", "table"),
    [
        (summaries.Load, "loads"),
        (summaries.Training, "training"),
        (records.Variation, "variation"),
        (records.ProcessorShares, "processors"),
    ],
)
def test_rows_of_a_window_are_those_of_its_tables(record, table):
    assert ["window_name", *(field.name for field in dataclasses.fields(record))] == list(TABLES[table])


def test_a_load_of_a_window_is_known_where_all_of_its_sources_are():
    load = {"source": "s", "src": "h1", "dst": "h2", "requested_bps": 2.0}
    both = manifests.window(loads=[{**load, "achieved_bps": 1.0}, {**load, "achieved_bps": 2.0}])
    assert (both.requested_bps, both.achieved_bps) == (4.0, 3.0)
    assert manifests.window(loads=[{**load, "achieved_bps": 1.0}, load]).achieved_bps is None
    assert (manifests.window().requested_bps, manifests.window().achieved_bps) == (0, 0)
