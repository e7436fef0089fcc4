"""Names that are not text in UTF-8, and terminals that know few letters: told in a line, and nothing else is lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.api.results import MeasuredRun, Store
from orchestrator.cli.commandline import build_parser
from orchestrator.cli.main import main
from orchestrator.core.errors import ConfigError
from orchestrator.core.screen import console
from orchestrator.store import rundir
from orchestrator.store.compact import compacting
from tests.helpers.experiments import GOOD, orch
from tests.helpers.made_packets import pcap
from tests.helpers.night_runs import write_night

ODD = os.fsdecode(b"odd-\xff\xe9")


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for night in range(2):
        write_night(tmp_path / "results", night, repetitions=2, iterations=20)
    return tmp_path / "results"


def _commands(parser, before=()):
    """Every command that takes `--results`, with something for what it must be given."""
    groups = [one for one in parser._actions if hasattr(one, "choices") and isinstance(one.choices, dict)]
    for group in groups:
        for name, inner in group.choices.items():
            yield from _commands(inner, (*before, name))
    if not groups and any("--results" in one.option_strings for one in parser._actions):
        needed = [one for one in parser._actions if one.required and not one.option_strings]
        yield (*before, *(("file:///tmp/x" if one.dest == "url" else "x") for one in needed))


COMMANDS = sorted(set(_commands(build_parser())))


def test_there_are_many_commands_that_take_a_results_folder():
    assert len(COMMANDS) > 20
    assert {"ls", "query", "store", "site", "run", "prune", "recover", "history"} <= {one[0] for one in COMMANDS}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_results_folder_that_is_not_text_is_refused_in_a_line(results, tmp_path, command, capsys):
    shutil.copytree(results, tmp_path / ODD / "results")
    with pytest.raises(SystemExit) as ended:
        orch(*command, "--results", str(tmp_path / ODD / "results"))
    assert ended.value.code == 2


def run_orch(*argv, cwd=None, **environment):
    root = Path(__file__).parents[3]
    return subprocess.run(
        [sys.executable, "-m", "orchestrator.cli.main", *argv],
        cwd=cwd,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(root), **environment},
    )


def test_the_folder_from_which_a_command_is_called_counts_too(results, tmp_path):
    (tmp_path / ODD).mkdir()
    shutil.copytree(results, tmp_path / ODD / "results")
    done = run_orch("query", "select 1 from iterations", cwd=tmp_path / ODD)
    assert done.returncode == 2
    assert b"argument --results: results: the path to it is not text in UTF-8; rename it" in done.stderr


def test_programs_are_told_likewise(results, tmp_path):
    shutil.copytree(results, tmp_path / ODD)
    with pytest.raises(ConfigError, match="not text in UTF-8"):
        Store(tmp_path / ODD).query("select * from runs")
    with pytest.raises(ConfigError, match="not text in UTF-8"):
        MeasuredRun(min((tmp_path / ODD).glob("nightly/*"))).table("iterations")


QUESTIONS = (
    ("ls", "--json"), ("query", "select run from runs order by 1", "--csv"), ("history", "nightly"),
    ("query", "select run, count(*) n from iterations group by 1 order by 1"), ("store", "compact"), ("site",),
    ("query", "select run from runs order by 1", "--csv"), ("store", "verify"), ("prune", "--drop-after", "1d"),
)  # fmt: skip


@pytest.mark.parametrize("what", ["run", "experiment"])
def test_a_run_folder_whose_name_is_not_text_is_left_out_and_named(results, what):
    before = [orch(*question, "--results", str(results))[1] for question in QUESTIONS[:2]]
    run = min(results.glob("nightly/*"))
    there = {"run": run.with_name(ODD), "experiment": results / ODD / run.name}[what]
    shutil.copytree(run, there)
    compacting.compact(results)
    for question in QUESTIONS:
        status, out, err = orch(*question, "--results", str(results))
        assert status == 0, (question, err)
        assert "odd-\\udcff\\udce9" in err, question
        assert "its name is not text in UTF-8" in err
        if question in QUESTIONS[:2]:
            assert out == before[QUESTIONS.index(question)]


def test_a_file_whose_name_is_not_text_does_not_keep_a_run_from_being_sealed(results, capsys):
    run = min(results.glob("nightly/*"))
    (run / ODD).write_bytes(b"x")
    console.forget_notes()
    folder = rundir.RunFolder(run, rundir.opened(run).manifest)
    folder.hash_files()
    folder.save(folder.manifest)
    assert len(folder.manifest.artifacts) == 2
    assert "not text in UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ("show", ODD),
        ("report", "last", "-o", f"{{folder}}/{ODD}.html"),
        ("export", "runs", "-o", f"{{folder}}/{ODD}.csv"),
        ("baseline", "set", ODD, "nightly"),
        ("ls", "--where", f"run={ODD}"),
        ("ls", "--experiment", ODD),
        ("query", f"select '{ODD}'"),
        ("history", ODD),
        ("compare", ODD, "nightly"),
        ("store", "verify", ODD),
        ("timeline", "last", "-o", f"{{folder}}/{ODD}.json.gz"),
        ("tables", ODD),
        ("plan", f"{{folder}}/{ODD}.yaml"),
        ("figure", ODD, "nightly"),
        ("store", "push", f"file://{{folder}}/{ODD}"),
        ("plan", "{folder}/e.yaml", "--set", f"name={ODD}"),
    ],
)
def test_no_word_of_a_command_ends_it_in_a_traceback(results, tmp_path, argv):
    for name in (ODD, "e"):
        (tmp_path / f"{name}.yaml").write_text(GOOD)
    words = [word.replace("{folder}", str(tmp_path)) for word in argv]
    done = run_orch(*words, *(() if argv[0] == "tables" else ("--results", str(results))))
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert done.returncode in (0, 1, 2)


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "latin-1"},
        {"PYTHONIOENCODING": "ascii"},
    ],
)
@pytest.mark.parametrize("form", ["--csv", "--json", None])
def test_a_terminal_that_knows_few_letters_gets_the_others_spelled_out(results, locale, form):
    letters = "chr(252) || chr(8594) || chr(26085)"  # ü→日
    form_words = [form] if form else []
    done = run_orch("query", f"select {letters} as a", *form_words, "--results", str(results), **locale)
    assert done.returncode == 0, done.stderr.decode()
    if form == "--json":
        assert json.loads(done.stdout) == {"a": "ü→日"}
    assert b"Traceback" not in run_orch("--help", **locale).stderr


def test_a_page_that_cannot_be_written_names_the_name_and_not_the_page(tmp_path, capsys):
    (tmp_path / f"{ODD}.pcap").write_bytes(pcap([]))
    assert main(["capture", str(tmp_path / f"{ODD}.pcap"), "--report", str(tmp_path / "page.html")]) == 2
    told = capsys.readouterr().err
    assert repr(ODD) in told
    assert "<" not in told
