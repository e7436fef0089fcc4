"""The front page of a store as data and as a file: what it says of runs, and when it is written."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import subprocess
import sys

import pytest

from orchestrator.analysis.compare import point_histories
from orchestrator.analysis.compare.regression import DEFAULT
from orchestrator.cli.main import main
from orchestrator.core.errors import StoreError
from orchestrator.execution.observers.progress import Progress
from orchestrator.report.page import report_name
from orchestrator.report.run import report_page
from orchestrator.report.site import page, refreshing
from orchestrator.store import baselines, front_page, index, sweeps
from orchestrator.store.manifests import manifest as records
from orchestrator.store.stores import Here
from tests.helpers import manifests
from tests.helpers.front_page import runs_of, shown
from tests.helpers.night_runs import sweep_id, write_night, write_run
from tests.helpers.sealed_run import make_run

NASTY = "</script><img src=x onerror=alert(1)>"


def windows_of(data: dict, run: dict) -> list[dict]:
    found = [dict(zip(data["fields"]["window"], row, strict=True)) for row in run["windows"]]
    for window in found:
        window["jobs"] = [dict(zip(data["fields"]["job"], row, strict=True)) for row in window["jobs"]]
    return found


def test_the_page_says_of_a_run_what_its_manifest_says_at_full_size(tmp_path):
    path = make_run(tmp_path / "resnet-load", load_bps=80e6, scale=100)
    page.write(tmp_path)
    data = shown(tmp_path)
    (run,) = runs_of(data).values()
    manifest = records.load(path / "manifest.json")
    assert run["id"] == path.name
    assert run["name"] == "resnet-load"
    assert run["verdict"] == ("valid" if manifest.valid else "invalid")
    assert run["jobs"] == "ddp resnet50, 4 ranks, emulated"
    assert run["commit"] == "8e56fa4"
    assert run["folder"] == f"resnet-load/{path.name}/"
    (window,) = windows_of(data, run)
    assert window["requested"] == pytest.approx(8e9)
    assert window["achieved"] == pytest.approx(manifest.windows[0].achieved_bps * 100, rel=1e-4)
    (job,) = window["jobs"]
    assert job["p50"] == pytest.approx(manifest.windows[0].training[0].p50_s, rel=1e-4)
    assert job["low"] < job["p50"] < job["high"]


def test_runs_are_listed_newest_first_with_what_became_of_them(tmp_path):
    for number, more in enumerate(
        ({"valid": True}, {"valid": False, "reasons": ["late"]}, {"outcome": "failed", "error": "x"})
    ):
        manifests.left(tmp_path / "e" / f"r{number}", run=f"r{number}", began_ns=10**18 + number * 10**9, **more)
    manifests.left(tmp_path / "e" / "r9.partial", run="r9", outcome="running", began_ns=10**18 - 1)
    found = runs_of(page.data_of_store(tmp_path))
    assert [(run, one["verdict"]) for run, one in found.items()] == [
        ("r2", "failed"),
        ("r1", "invalid"),
        ("r0", "valid"),
        ("r9", found["r9"]["verdict"]),
    ]
    assert found["r9"]["verdict"] in ("lost", "running")
    assert found["r1"]["why"] == ["late"]
    assert found["r2"]["why"] == ["at stage ?: x"]


def test_a_run_that_cannot_be_read_is_told_and_the_others_are_listed(tmp_path):
    manifests.left(tmp_path / "e" / "good", run="good")
    manifests.left(tmp_path / "e" / "bad", run="bad", began_ns="noon")
    data = page.data_of_store(tmp_path)
    assert list(runs_of(data)) == ["good"]
    assert "bad/manifest.json" in data["problems"][0]


def test_no_text_of_a_run_stands_in_the_markup(tmp_path):
    folder = tmp_path / "e" / "r1"
    manifests.left(
        folder,
        run="r1",
        valid=False,
        reasons=[NASTY],
        notes=[NASTY],
        error=NASTY,
        stage=NASTY,
        jobs=[{"name": NASTY, "workload": NASTY, "model": NASTY, "ranks": []}],
    )
    page.write(tmp_path)
    text = (tmp_path / page.FILE).read_text()
    assert "onerror" not in text
    assert NASTY in shown(tmp_path)["runs"][0][page.RUN.index("why")][1]


def test_a_store_whose_folder_is_markup_is_escaped(tmp_path):
    results = tmp_path / "<b>&amp;"
    results.mkdir()
    page.write(results)
    assert "<b>" not in (results / page.FILE).read_text()


def test_the_policy_names_the_script_and_the_style_and_nothing_else(tmp_path):
    page.write(tmp_path)
    text = (tmp_path / page.FILE).read_text()
    script, style = (re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[0] for tag in ("script", "style"))
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)[0].replace("&#39;", "'")
    for kind, of in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(of.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", text), "nothing is fetched"


def test_histories_in_brief_are_those_of_the_tables(tmp_path):
    for night in range(10):
        write_night(tmp_path, night, slower=1.2 if night >= 5 else 1.0)
    (found,) = point_histories.in_brief(index.entries(tmp_path)).values()
    told = point_histories.histories(point_histories.nights(Here(tmp_path), "nightly"), rule=DEFAULT)
    assert [point.label for point in found.points] == [point.label for point in told]
    for brief, whole in zip(found.points, told, strict=True):
        assert brief.days == whole.days
        assert brief.p50_s == pytest.approx(whole.p50_s)
        of_levels = [step for step in whole.steps if step.statistic != "p99"]  # counts of the tail need iterations
        assert [(step.statistic, step.night) for step in brief.steps] == [
            (one.statistic, one.night) for one in of_levels
        ]
    assert [(step.statistic, step.night) for step in found.points[0].steps] == [("mean", 5), ("p50", 5)]


def test_the_page_has_the_history_of_each_point_with_its_steps_and_baselines(tmp_path):
    for night in range(10):
        runs = write_night(tmp_path, night, slower=1.2 if night >= 5 else 1.0)
        if night == 0:
            baselines.save(tmp_path, "main", of=["nightly"], runs=[f"nightly/{run.name}" for run in runs])
    data = page.data_of_store(tmp_path)
    (history,) = data["histories"]
    assert history["name"] == "nightly"
    assert len(history["days"]) == 10
    point = history["points"][0]
    assert point["label"] == "load 0gbit"
    assert [step[4] for step in point["steps"]] == ["mean", "p50"]
    for night, before, after, p, _ in point["steps"]:
        assert night == 5
        assert after / before == pytest.approx(1.2, rel=0.02)
        assert p < 0.05
    assert set(data["baselines"][0]["runs"]) == set(history["folders"][0])


def test_one_night_is_no_history(tmp_path):
    write_night(tmp_path, 0)
    assert page.data_of_store(tmp_path)["histories"] == []


def test_what_was_not_measured_on_a_night_is_not_known(tmp_path):
    write_night(tmp_path, 0)
    write_run(tmp_path, night=1, seconds={"load0": 0.16})
    (history,) = page.data_of_store(tmp_path)["histories"]
    assert history["points"][1]["p50"][1] is None
    assert not math.isnan(history["points"][1]["p50"][0])


def test_a_sweep_has_its_progress_and_its_verdict(tmp_path):
    plan = sweeps.Plan(
        id=sweep_id(0),
        name="nightly",
        began_ns=10**18,
        definition="d",
        repetitions=2,
        mode="windows",
        points=tuple(sweeps.PlannedPoint(point=f"id-load{load}", values={}) for load in (0, 8)),
    )
    sweep = sweeps.create(tmp_path, plan)
    write_run(tmp_path, night=0, repetition=1, invalid=("load8",))
    (sweep.path / "verdict.json").write_text(json.dumps({"points": [{"verdict": "worse"}, {"verdict": "same"}]}))
    (sweep.path / "verdict.html").write_text("")
    (found,) = page.data_of_store(tmp_path)["sweeps"]
    assert (found["planned"], found["missing"], found["runs"]) == (4, 3, 1)
    assert found["verdict"] == {"worse": 1, "same": 1}
    assert found["page"] == f"sweeps/nightly/{sweep.id}/verdict.html"


@pytest.mark.parametrize("text", ["", "[", "{}", '{"points": 3}', '{"points": [{}]}', '{"points": [{"verdict": 1}]}'])
def test_a_verdict_that_is_none_of_ours_says_nothing(tmp_path, text):
    (tmp_path / "verdict.json").write_text(text)
    assert page.verdicts_of(tmp_path) == []


def test_a_report_is_linked_by_each_of_its_runs(tmp_path):
    runs = [make_run(tmp_path / "e", repetition=number) for number in (1, 2, 3)]
    report_page.render(runs[:2], tmp_path / "e" / report_name(runs[0].name, 1))
    found = runs_of(page.data_of_store(tmp_path))
    together = f"e/report-{runs[0].name}-and-1-more.html"
    assert [found[run.name]["report"] for run in runs] == [together, together, ""]


def test_missing_reports_are_made_of_the_newest_runs(tmp_path, capsys):
    runs = [make_run(tmp_path / "e", repetition=number) for number in (1, 2)]
    assert main(["site", "--results", str(tmp_path), "--reports", "1", "--once"]) == 0
    made = {run.name: (tmp_path / "e" / report_name(run.name)).exists() for run in runs}
    newest = max(runs, key=lambda run: records.load(run / "manifest.json").began_ns)
    assert list(made.values()).count(True) == 1
    assert runs_of(shown(tmp_path))[next(name for name, there in made.items() if there)]["report"]
    assert newest.name in made
    assert capsys.readouterr().out.strip() == str(tmp_path / page.FILE)


def test_pages_of_studies_in_the_store_and_beside_it_are_listed(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    (tmp_path / "study-li.html").write_text('<meta name="orch-verdict" content="3 kept, 1 missed &amp; more">')
    (results / "study-farhat.html").write_text("")
    found = {one["name"]: one for one in page.data_of_store(results)["studies"]}
    assert found["li"]["page"] == "../study-li.html"
    assert found["li"]["verdict"] == "3 kept, 1 missed & more"
    assert (found["farhat"]["page"], found["farhat"]["verdict"]) == ("study-farhat.html", "")


def test_a_store_keeps_its_page_fresh_once_it_has_one(tmp_path):
    (tmp_path / "e").mkdir()
    refreshing.refresh_apart(tmp_path, Progress())
    assert not (tmp_path / page.FILE).exists(), "no page that nobody wanted"
    assert main(["site", "--results", str(tmp_path)]) == 0
    assert shown(tmp_path)["runs"] == []
    manifests.left(tmp_path / "e" / "r1")
    refreshing.refresh_apart(tmp_path, Progress())
    assert list(runs_of(shown(tmp_path))) == ["r1"]
    assert main(["site", "--results", str(tmp_path), "--once"]) == 0
    manifests.left(tmp_path / "e" / "r2", run="r2")
    refreshing.refresh_apart(tmp_path, Progress())
    assert list(runs_of(shown(tmp_path))) == ["r1"]


@pytest.mark.parametrize("text", ["", "[]", '{"keep_fresh": "yes"}', "nonsense"])
def test_a_settings_file_that_is_none_of_ours_keeps_nothing(tmp_path, text):
    (tmp_path / front_page.FILE).write_text(text)
    assert not front_page.kept_fresh(tmp_path)


def test_a_page_that_cannot_be_written_is_told_and_fails_nothing(tmp_path, capsys):
    front_page.keep_fresh(tmp_path, yes=True)
    (tmp_path / page.FILE).mkdir()  # no file can take its place
    refreshing.refresh_apart(tmp_path, Progress())
    assert "no front page: " in capsys.readouterr().err
    assert main(["site", "--results", str(tmp_path), "--refresh"]) == 0


def test_no_store_is_told_in_a_line(tmp_path, capsys):
    assert main(["site", "--results", str(tmp_path / "none")]) == 1
    assert "no such folder" in capsys.readouterr().err
    with pytest.raises(StoreError):
        page.write(tmp_path / "none")


def test_the_page_is_written_by_the_command_of_a_shell(tmp_path):
    argv = [sys.executable, "-m", "orchestrator.cli.main", "site", "--results", str(tmp_path)]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(tmp_path / page.FILE), "")


def test_runs_of_an_alarmed_night_and_what_a_failed_run_was_to_have_are_told(tmp_path):
    plan = sweeps.Plan(
        id=sweep_id(0),
        name="nightly",
        began_ns=10**18,
        definition="d",
        repetitions=1,
        mode="runs",
        points=tuple(sweeps.PlannedPoint(point=f"id-load{load}", values={}) for load in (0, 8)),
    )
    sweep = sweeps.create(tmp_path, plan)
    slower, same = (
        write_run(tmp_path, repetition=number, seconds={window: 0.2}).name
        for number, window in enumerate(("load0", "load8"), start=1)
    )
    points = [{"point": "id-load0", "verdict": "worse"}, {"point": "id-load8", "verdict": "same"}]
    (sweep.path / "verdict.json").write_text(json.dumps({"points": points}))
    for run, traffic in (("asked", [{"iperf": {"load": "5gbit"}}]), ("quiet", []), ("odd", [{"iperf": 5}])):
        failed = manifests.left(tmp_path / "e" / run, run=run, outcome="failed", error="no tcpdump", windows=[])
        (failed / "experiment.yaml").write_text(json.dumps({"name": "e", "traffic": traffic}))
    found = runs_of(page.data_of_store(tmp_path))
    assert [found[run]["against"] for run in (slower, same, "asked")] == ["worse", "same", ""]
    assert [found[run]["verdict"] for run in (slower, same, "asked")] == ["valid", "valid", "failed"]
    assert [found[run]["asked"] for run in ("asked", "quiet", "odd", slower)] == [5e9, 0, None, None]


def test_a_run_whose_windows_were_measured_again_is_called_so(tmp_path):
    first = write_run(tmp_path, repetition=1, invalid=("load8",))
    assert runs_of(page.data_of_store(tmp_path))[first.name]["verdict"] == "invalid"
    second = write_run(tmp_path, repetition=1, seed=5, seconds={"load8": 0.2}, began_s=60)
    found = runs_of(page.data_of_store(tmp_path))
    assert [found[run.name]["verdict"] for run in (first, second)] == ["repeated", "valid"]
