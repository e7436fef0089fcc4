"""What editors and shells complete and check by: schemas of every file that we have, and completions that bash runs."""

from __future__ import annotations

import json
import subprocess

import jsonschema
import pytest
import yaml

from orchestrator.core.paths import playbooks
from orchestrator.experiment import editorschema
from tests.helpers.experiments import GOOD, orch

PACKAGE = playbooks.START / "package"  # its experiment has parts that are not installed here
FILES = sorted(path for path in playbooks.FOLDER.rglob("*.yaml") if PACKAGE not in path.parents)


def kind_of(data):
    if "figures" in data:
        return "paper"
    if "experiment" in data:
        return "sweep"
    return "experiment" if "testbed" in data else "inventory"


@pytest.fixture(scope="module")
def validators(tmp_path_factory):
    """A validator a kind, from the files that `orch schema --all` writes."""
    folder = tmp_path_factory.mktemp("schemas")
    assert orch("schema", "--all", str(folder))[0] == 0
    found = {}
    for kind in editorschema.KINDS:
        schema = json.loads((folder / f"{kind}.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        found[kind] = jsonschema.Draft202012Validator(schema)
    return found


def test_every_file_of_ours_is_valid_by_the_schema_of_its_kind(validators):
    kinds = set()
    for path in FILES:
        data = yaml.safe_load(path.read_text())
        kinds.add(kind_of(data))
        problems = [f"{path}: {error.message}" for error in validators[kind_of(data)].iter_errors(data)]
        assert problems == []
    assert kinds == set(editorschema.KINDS)


@pytest.mark.parametrize(
    ("change", "valid"),
    [
        ({}, True),
        ({"vars": {"load": "8gbit", "model": {"type": "text"}}}, True),
        ({"measure": {"iterations": "$count"}, "workload": {"ddp": {"model": "${model}"}}}, True),
        ({"repetitions": "$count"}, True),
        ({"vars": {"load": {"typ": "rate"}}}, False),
        ({"vars": {"seed": 3}}, False),
        ({"measure": {"iterations": "count"}}, False),
        ({"measure": {"iterations": 0}}, False),
        ({"traffic": [{"iperf": {"from": "h1", "to": "h2", "load": "8 gigabit"}}]}, False),
        ({"traffic": [{"iperf": {"from": "h1", "to": "h2", "load": "$load"}}]}, True),
        ({"includes": "base.yaml"}, False),
        ({"include": ["base.yaml", 3]}, False),
    ],
)
def test_references_and_includes_are_valid_and_mistakes_are_not(validators, change, valid):
    assert validators["experiment"].is_valid({**yaml.safe_load(GOOD), **change}) is valid


def test_what_a_file_lacks_its_includes_may_have(validators):
    assert not validators["experiment"].is_valid({"name": "x"})
    assert validators["experiment"].is_valid({"name": "x", "include": "base.yaml"})


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    status, _, err = orch("schema", "--all", str(tmp_path / "file"))
    assert status == 1
    assert "cannot be written" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["orch", "sw"], {"sweep"}),
        (["orch", "run", "--met"], {"--metrics"}),
        (["orch", "baseline", ""], {"set", "ls"}),
        (["orch", "completion", "fi"], {"fish"}),
    ],
)
def test_bash_completes_commands_options_and_choices(tmp_path, words, expected):
    assert expected <= completed(tmp_path, words)


def test_bash_completes_files_where_a_file_belongs(tmp_path):
    (tmp_path / "mine.yaml").touch()
    assert completed(tmp_path, ["orch", "run", "mi"]) == {"mine.yaml"}


def completed(folder, words):
    """What bash offers for the last of these words, by the script that `orch completion bash` prints."""
    (folder / ".orch").write_text(orch("completion", "bash")[1])
    asked = " ".join(f"'{word}'" for word in words)
    script = f"source .orch; COMP_WORDS=({asked}); COMP_CWORD={len(words) - 1}; _shtab_orch; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return set(done.stdout.split())


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_every_command(shell):
    status, out, _ = orch("completion", shell)
    assert status == 0
    for command in ("plan", "run", "sweep", "capture", "completion", "init"):
        assert command in out
