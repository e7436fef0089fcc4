"""The command itself: help with an example for every command, nothing imported that is not needed, quiet endings."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from experiments import GOOD, orch

from orchestrator.cli import main
from orchestrator.cli.setup import shell_cli

ROOT = Path(__file__).parents[2]
COMMANDS = tuple(
    name
    for action in main.build_parser()._actions
    if isinstance(action, argparse._SubParsersAction)
    for name in action.choices
)

HELPS = """
import contextlib, io, json, sys
from orchestrator.cli.main import main
told = {}
for command in sys.argv[1:]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*command.split(), "--help"] if command != "-" else ["--help"])
    told[command] = out.getvalue()
print(json.dumps({"told": told, "modules": sorted(sys.modules)}))
"""
HEAVY = {"torch", "numpy", "pyarrow", "paramiko", "fabric", "pydantic", "yaml", "matplotlib", "numba", "jinja2"}


@pytest.fixture(scope="module")
def helps():
    argv = [sys.executable, "-c", HELPS, "-", *COMMANDS]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120, cwd=ROOT)
    return json.loads(done.stdout)


def test_help_imports_nothing_that_it_does_not_need(helps):
    assert not HEAVY & {module.partition(".")[0] for module in helps["modules"]}


def test_every_command_is_listed_with_what_it_does(helps):
    text = helps["told"]["-"]
    groups = dict(re.findall(r"^([a-z]+):\n((?:  .*\n)+)", text, re.MULTILINE))
    assert list(groups) == ["measure", "look", "compare", "keep", "prepare", "options", "examples"]
    listed = [name for lines in list(groups.values())[:5] for name in re.findall(r"^  ([a-z]+)  ", lines, re.MULTILINE)]
    assert listed == list(COMMANDS)
    assert {"run", "plan", "doctor", "ls", "show", "report", "recover", "clean", "schema"} <= set(listed)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_that_it_takes(helps, command, capsys):
    text = helps["told"][command]
    assert re.search(r"^usage: orch ", text)
    example = re.search(r"^example:\n  (orch .*)", text, re.MULTILINE)
    assert example, f"{command} --help has no example"
    words = shlex.split(re.split(r" [|>] ", example[1])[0])
    assert words[1] == command
    main.build_parser().parse_args(words[1:])


def test_examples_of_the_whole_are_taken_too(helps):
    text = helps["told"]["-"]
    examples = re.findall(r"^  (orch .*?)(?:  |$)", text, re.MULTILINE)
    assert len(examples) > 5
    for example in examples:
        main.build_parser().parse_args(example.split()[1:])
    assert "exit codes:\n  0 " in text


PLAN = """
import sys
from orchestrator.cli.main import main
assert main(["plan", sys.argv[1]]) == 0
print(*sorted(sys.modules), file=sys.stderr)
"""


def test_a_plan_needs_no_network_and_no_tables(tmp_path):
    (tmp_path / "e.yaml").write_text(GOOD)
    argv = [sys.executable, "-c", PLAN, str(tmp_path / "e.yaml")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120, cwd=ROOT)
    loaded = {module.partition(".")[0] for module in done.stderr.split()}
    assert not loaded & {"torch", "pyarrow", "paramiko", "fabric", "matplotlib", "numba", "jinja2"}


def test_version():
    assert re.fullmatch(r"orch \d+\.\d+\.\d+\S*\n", orch("--version")[1])


def test_no_command_is_answered_with_help():
    status, out, err = orch()
    assert (status, err) == (0, "")
    assert out.startswith("usage: orch")


@pytest.mark.parametrize("argv", [["nonsense"], ["run"], ["plan", "a", "b"], ["ls", "--nonsense"]])
def test_a_wrong_command_line_is_told_with_status_2(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        main.main(argv)
    assert caught.value.code == 2
    assert "usage: orch" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error_to_print():
    argv = [sys.executable, "-m", "orchestrator.cli.main", "schema"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(120) == 1


def test_an_empty_store(tmp_path):
    results = f"--results={tmp_path}"
    assert orch("ls", results) == (0, f"no runs in {tmp_path}\n", "")
    assert orch("ls", results, "--json") == (0, "", "")
    for command in ("show", "report"):
        status, out, err = orch(command, "last", results)
        assert (status, out) == (1, "")
        assert "no such run" in err
        assert "remedy: orch ls" in err


def test_a_bug_of_ours_is_not_dressed_up(monkeypatch):
    def broken(_arguments):
        raise ZeroDivisionError

    monkeypatch.setattr(shell_cli, "schema", broken)
    with pytest.raises(ZeroDivisionError):
        orch("schema")


def test_an_interrupted_command_says_so_by_its_status(monkeypatch):
    def interrupted(_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(shell_cli, "schema", interrupted)
    assert orch("schema")[0] == 130
