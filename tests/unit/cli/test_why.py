"""`orch why` on recorded runs: text, JSON, one iteration, two runs, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.cli.main import main

DATA = Path(__file__).parents[2] / "data" / "causes"
SLOW, PLAIN = str(DATA / "link-rate"), str(DATA / "nothing")


def test_the_verdict_comes_second_and_the_next_step_last(capsys):
    assert main(["why", SLOW]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("verdict  h3's link, receiving is below its rate: ")
    assert lines[-1].startswith("next     ")
    assert len(lines) <= 10


def test_json_has_parts_findings_and_evidence(capsys):
    assert main(["why", SLOW, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["explanations"]
    assert found["findings"][0]["hosts"] == ["h3"]
    assert found["findings"][0]["evidence"]
    assert sum(part["share"] for part in found["parts"]) == pytest.approx(1)


def test_one_iteration(capsys):
    assert main(["why", SLOW, "--iteration", "20"]) == 0
    assert "iteration 20, " in capsys.readouterr().out


def test_what_changed_between_two_runs(capsys):
    assert main(["why", SLOW, "--against", SLOW]) == 0
    assert "nothing changed beyond" in capsys.readouterr().out
    assert main(["why", SLOW, "--against", PLAIN, "--json"]) == 0
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert {part["name"] for part in change["parts"]} >= {"computing", "link-rate: h3's link, receiving"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--iteration", "900"], "accepted: 5 to 34"),
        (["--iteration", "7", "--against", PLAIN], "one of --iteration and --against"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_is_accepted(arguments, said, capsys):
    assert main(["why", SLOW, *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_a_run_that_logged_nothing_says_so(tmp_path, capsys):
    run = tmp_path / "results" / "x" / "r"
    run.mkdir(parents=True)
    (run / "manifest.json").write_bytes((DATA / "nothing" / "manifest.json").read_bytes())
    assert main(["why", str(run)]) == 2
    assert "nothing to explain" in capsys.readouterr().err


def test_a_run_is_shown_even_where_its_causes_cannot_be_read(tmp_path, capsys):
    run = tmp_path / "results" / "x" / "r"
    (run / "tables").mkdir(parents=True)
    (run / "manifest.json").write_bytes((DATA / "nothing" / "manifest.json").read_bytes())
    (run / "tables" / "causes.parquet").write_bytes(b"damaged")
    assert main(["show", str(run)]) == 0
    assert "not told: cannot read" in capsys.readouterr().out
