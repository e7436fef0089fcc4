"""Commands that our pages tell a reader to type are commands that there are, and their examples can be planned."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from orchestrator.cli.main import build_parser, main

ROOT = Path(__file__).parents[2]
RUNBOOK = ROOT / "docs/first-cluster.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def typed(page: Path) -> list[str]:
    """Lines of code of a page that begin with `orch`, without the remark that may stand behind them."""
    lines = re.findall(r"^ {4}(?:\.venv/bin/)?(orch [a-z].*)$", page.read_text(), re.MULTILINE)
    return [re.split(r" {2,}", line)[0] for line in lines]


def named(page: Path) -> list[str]:
    """Commands within a page's sentences that have an argument."""
    return re.findall(r"`(orch [a-z]+ [^`]+)`", page.read_text())


def words(command: str) -> list[str]:
    return shlex.split(command)[1:]


@pytest.mark.parametrize(
    "command", sorted({*(line for page in PAGES for line in typed(page)), *named(RUNBOOK)}), ids=str
)
def test_a_written_command_is_one_that_there_is(command):
    arguments = build_parser().parse_args(words(command))
    assert callable(arguments.action)
    for word in words(command):
        assert not word.startswith("playbooks/") or (ROOT / word).exists(), word


def test_the_runbook_names_files_of_ours_that_there_are():
    found = set(re.findall(r"\bplaybooks/[\w./-]*\w", RUNBOOK.read_text()))
    assert {"playbooks/hosts/sudoers-orch", "playbooks/nightly/orch-nightly.timer"} <= found
    assert [name for name in sorted(found) if not (ROOT / name).exists()] == []


def test_the_files_of_the_runbook_can_be_planned_as_they_stand(tmp_path, monkeypatch, capsys):
    shutil.copy(ROOT / "playbooks/testbeds/example-rack.yaml", tmp_path / "rack.yaml")
    files = dict(re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", RUNBOOK.read_text(), re.DOTALL))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    planned = [words(line) for line in typed(RUNBOOK) if line.startswith("orch plan ")]
    assert {argv[1] for argv in planned} == set(files) == {"first.yaml", "nightly.yaml"}
    for argv in planned:
        assert main(argv) == 0, capsys.readouterr().err
    assert main(["plan", "first.yaml", "--set", "traffic=[]"]) == 0
