"""The command itself: help with an example for every command, nothing imported that is not needed, quiet endings."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli import commandline, manpages, options, prepare
from tests.helpers.experiments import GOOD, orch
from tests.helpers.machine import PATIENCE_S

ROOT = Path(__file__).parents[3]
ENTRY = "import sys; from orchestrator.cli.main import main; sys.exit(main())"  # as a console script has it
COMMANDS = tuple(
    name
    for action in commandline.build_parser()._actions
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
    commandline.build_parser().parse_args(words[1:])


def test_examples_of_the_whole_are_taken_too(helps):
    text = helps["told"]["-"]
    examples = re.findall(r"^  (orch .*?)(?:  |$)", text, re.MULTILINE)
    assert len(examples) > 5
    for example in examples:
        commandline.build_parser().parse_args(example.split()[1:])
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
        commandline.carried_out(argv)
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

    monkeypatch.setattr(prepare, "_schema", broken)
    with pytest.raises(ZeroDivisionError):
        orch("schema")


def test_an_interrupted_command_says_so_by_its_status(monkeypatch):
    def interrupted(_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare, "_schema", interrupted)
    assert orch("schema")[0] == 130


@pytest.mark.parametrize("how", [["-m", "orchestrator.cli.main"], ["-c", ENTRY]], ids=["module", "script"])
def test_ctrl_c_at_any_moment_of_the_start_leaves_no_traceback(tmp_path, how):
    """The signal comes at another moment of each try, from our first instruction on."""
    (tmp_path / "e.yaml").write_text(GOOD)
    for tried in range(12):
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", *how, "plan", str(tmp_path / "e.yaml")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        lines = 0
        for line in process.stderr:  # of each import one
            lines += "orchestrator" in line
            if lines > 3 + tried**2:  # the packages and this module itself come before our first instruction
                process.send_signal(signal.SIGINT)
                break
        told = process.stderr.read()
        process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in told and "KeyboardInterrupt" not in told, told  # noqa: PT018
        assert process.returncode in (0, 1, 130, -signal.SIGINT)  # the last: Python had ended by then


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--repetitions", "3"], "--set repetitions=3"),
        (["--iterations=50"], "--set measure.iterations=50"),
        (["--load", "5gbit"], "--set traffic.0.iperf.load=5gbit"),
        (["--stall-timeout", "9s", "--attempts"], "--set measure.stall_timeout=9s or --set attempts=VALUE"),
    ],
)
def test_an_option_that_is_a_key_of_the_experiment_is_told_as_a_setting(tmp_path, capsys, words, told):
    (tmp_path / "e.yaml").write_text(GOOD)
    with pytest.raises(SystemExit) as ended:
        commandline.carried_out(["run", str(tmp_path / "e.yaml"), *words])
    assert ended.value.code == 2
    assert f"keys of the experiment are set by: {told}\n" in capsys.readouterr().err


def test_other_options_are_unknown_and_no_more(capsys):
    for argv in (["ls", "--iterations", "3"], ["run", "e.yaml", "--nonsense"]):
        with pytest.raises(SystemExit):
            commandline.carried_out(argv)
        assert "--set" not in capsys.readouterr().err.splitlines()[-1]


def test_folders_of_files_to_write_are_made(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["traffic", "schedule", "--load", "1gbit", "--burst", "1ms,10ms,3", "-o", "new/er/flows.csv"]
    assert commandline.carried_out(words) == 0, capsys.readouterr().err
    assert (tmp_path / "new/er/flows.csv").is_file()
    (tmp_path / "file").write_text("")
    assert commandline.carried_out([*words[:-1], "file/flows.csv"]) == 2
    assert "--output file/flows.csv: its folder cannot be made: file: " in capsys.readouterr().err


def test_every_option_that_names_a_file_to_write_has_its_folder_made():
    others = {"file", "testbeds", "schedule", "log", "all", "nccl"}  # read, or folders that commands make
    found = {
        action.dest
        for parser in parsers(commandline.build_parser())
        for action in parser._actions
        if action.type is Path and action.option_strings
    }
    assert set(options.WRITTEN) <= found
    assert found - set(options.WRITTEN) <= others, "neither of them nor in options.WRITTEN"


def parsers(parser):
    """A command line's parser and those of all commands below it."""
    yield parser
    for _, below in manpages.below(parser):
        yield from parsers(below)


@pytest.mark.parametrize(("allowed", "most", "then"), [(64, 128, 128), (64, 512, 256), (400, 512, 400)])
def test_the_process_may_open_more_files_than_a_shell_allows(allowed, most, then):
    line = "import resource; from orchestrator.cli import commandline; commandline._FILES = 256; "
    line += "commandline.prepare_process(); print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    argv = ["sh", "-c", f'ulimit -Sn {allowed}; ulimit -Hn {most}; exec {sys.executable} -c "$0"', line]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert done.stdout == f"{then} {most}\n"
