"""What pages have a reader type or write works: every command is run or parsed, every block of YAML is validated.

`documentation/tried.py` says how a page marks what is run, and what is only parsed and why.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import documented_store
import pytest
import yaml

from documentation import commands, markdown, tried
from orchestrator.cli.commandline import build_parser
from orchestrator.cli.main import main
from orchestrator.experiment import experiment, nodesets, paperfile
from orchestrator.testbed.inventory import Inventory
from tests.bench.__main__ import BENCHMARKS, ON_REQUEST

ROOT = Path(__file__).parents[2]
PAGES = tried.pages()
COMMANDS = [command for page in PAGES for command in tried.commands(page)]
YAML = [block for page in PAGES for block in tried.yaml_blocks(page)]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
OURS = {"orchestrator", "workloads", "cross_traffic"}
REST = {  # of an experiment, beside which a part of one is read
    "name": "part",
    "testbed": {"local": {"hosts": 5, "link": "25gbit", "scale": 100}},
    "workload": {"ddp": {"model": "resnet50"}},
    "measure": {"iterations": 100},
}


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a line of shell code."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    command: list[str] = []
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;()<>"):
            if command:
                yield command
            command = []
        else:
            command.append(word)


def parse(words: list[str]) -> None:
    """Fail where a program of ours does not take these words."""
    program, *rest = words
    for word in words:
        assert not word.startswith("playbooks/") or (ROOT / word).exists(), f"{word}: there is no such file"
    if program in ("orch", ".venv/bin/orch"):
        assert callable(build_parser().parse_args(rest).action)
    elif program == "make":
        for word in rest:
            assert "=" in word or word in TARGETS, f"make {word}: there is no such target"
    elif program in ("python", ".venv/bin/python") and rest[:1] == ["-m"]:
        assert importlib.util.find_spec(rest[1]), f"{rest[1]}: there is no such module"
        if rest[1] == "tests.bench":
            assert [word for word in rest[2:] if not word.startswith("-") and word not in BENCHMARKS + ON_REQUEST] == []


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_written_command_is_one_that_there_is(command):
    for words in simple_commands(command.text):
        parse(words)


@pytest.mark.parametrize("page", PAGES)
def test_a_command_within_a_sentence_is_one_that_there_is(page):
    named = dict(commands.commands(build_parser()))
    for command in tried.inline(page):
        if command not in named:
            parse(shlex.split(command))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_why_commands_are_not_run(page):
    silent = [str(command) for command in tried.commands(page) if not command.explained]
    assert not silent, (
        f"{silent[0]}: nothing runs it, and nothing says why: mark its block `bash run`, `bash run on a testbed` or "
        "`bash parsed: WHY`, or put `<!-- commands are parsed: WHY -->` on the page (see documentation/tried.py)"
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_shell_code_is_one_for_bash(page):
    for block in markdown.blocks((ROOT / page).read_text(encoding="utf-8")):
        if block.fenced and block.language in tried.SHELL:
            done = subprocess.run(["bash", "-n"], check=False, input=block.text, text=True, capture_output=True)
            assert done.returncode == 0, f"{page}:{block.line}: {done.stderr}"


@pytest.mark.parametrize("page", PAGES)
def test_python_of_a_page_is_python_and_imports_what_there_is(page):
    for block in markdown.blocks((ROOT / page).read_text(encoding="utf-8")):
        if block.language != "python":
            continue
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in OURS:
                module = importlib.import_module(str(node.module))
                assert [name.name for name in node.names if not hasattr(module, name.name)] == []


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w/.-])((?:playbooks|documentation|tests|\.ci|\.github)/[\w./-]*\w)", text))
    assert [name for name in sorted(named) if "NAME" not in name and not (ROOT / name).exists()] == []


def test_pages_name_what_a_cluster_needs():
    pages = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    for name in ("playbooks/hosts/sudoers-orch", "playbooks/hosts/orch-agent", "playbooks/nightly/orch-nightly.timer"):
        assert name in pages


def test_pages_install_the_pytorch_that_the_wheel_asks_for():
    """Of another version pip would replace the build for CPUs by the one with CUDA."""
    asked = re.findall(r'"(torch==[^"]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    written = [found for page in PAGES for found in re.findall(r"pip install (torch==\S+)", (ROOT / page).read_text())]
    assert written
    assert set(written) == set(asked)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documented")
    documented_store.make(folder)
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A reader's folder, for one page alone, which is the current one."""
    place = tmp_path / "reader"
    shutil.copytree(made, place, symlinks=True)
    monkeypatch.chdir(place)
    return place


def write_files(page: str, folder: Path) -> None:
    """The files that a page has the reader write."""
    for name, text in tried.files(page).items():
        (folder / name).write_text(text)


@pytest.mark.parametrize("page", sorted({command.page for command in COMMANDS if command.how == "run"}))
def test_commands_that_can_be_run_at_once_end_as_written(page, folder, capsys):
    write_files(page, folder)
    for command in tried.commands(page):
        if command.how == "run":
            assert main(shlex.split(command.text)[1:]) == command.status, f"{command}\n{capsys.readouterr().err}"


@pytest.mark.parametrize("page", sorted({block.page for block in YAML}))
def test_every_block_of_yaml_is_valid(page, folder, capsys):
    write_files(page, folder)
    for block in tried.yaml_blocks(page):
        data = yaml.safe_load(block.text)
        if not block.only_read:
            path = folder / (block.name or "block.yaml")
            path.write_text(block.text)
            assert valid(data, path), f"{block}: {capsys.readouterr().err}"


def valid(data: dict[str, Any], path: Path) -> bool:
    """Plan what is whole; read a part of an experiment beside the rest of one. Raises, or gives False, for mistakes."""
    if "figures" in data:
        return bool(paperfile.read_figures(path))
    if "experiment" in data or {"testbed", "measure"} <= data.keys():
        return main(["plan", str(path)]) == 0
    if {"hosts", "link"} <= data.keys():
        hosts = nodesets.expanded(data, [path.parent], where=str(path))
        return bool(Inventory.model_validate(hosts))
    rest = {key: value for key, value in REST.items() if key != "workload" or "jobs" not in data}
    return bool(experiment.model().model_validate({**rest, **data}))


def test_a_runbook_has_the_files_that_its_commands_name():
    """`first.yaml` and `nightly.yaml` are planned above; here, that both are on the page."""
    page = "docs/first-cluster.md"
    planned = [
        shlex.split(command.text)[2] for command in tried.commands(page) if command.text.startswith("orch plan ")
    ]
    assert set(planned) == {block.name for block in tried.yaml_blocks(page)} == {"first.yaml", "nightly.yaml"}
