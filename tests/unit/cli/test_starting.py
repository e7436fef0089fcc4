"""`orch init`: each folder is valid as it is written, and nothing that is there is overwritten."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from orchestrator.cli.commandline import build_parser
from orchestrator.experiment import starter_files
from orchestrator.papers import reading
from tests.helpers.experiments import orch

EACH = pytest.mark.parametrize("kind", starter_files.KINDS)
PLANNED = [
    kind for kind in starter_files.KINDS if kind != "package"
]  # tests/testbed/test_wheel_live.py installs its parts


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(kind):
        status, out, err = orch("init", kind, "here")
        assert (status, err) == (0, "")
        monkeypatch.chdir(tmp_path / "here")
        return out

    return write


@EACH
def test_every_file_says_what_it_is_for_and_every_command_that_it_names_is_one(kind, written, tmp_path):
    written(kind)
    for path in sorted(path for path in (tmp_path / "here").rglob("*") if path.is_file()):
        if "data" in path.parts:  # samples of what parts read
            continue
        lines = path.read_text().splitlines()
        assert any(line.startswith(('"""',) if path.suffix == ".py" else ("# ",)) for line in lines[:3]), path.name
        assert "playbooks/" not in path.read_text(), path.name
        for line in lines:
            if line.startswith(("#   orch ", "#  orch ")):
                argv = shlex.split(line.lstrip("# ").split("  ")[0])
                assert callable(build_parser().parse_args(argv[1:]).action), line


@EACH
def test_the_commands_that_come_next_are_printed_and_can_be_parsed(kind, written, tmp_path):
    out = written(kind)
    start = starter_files.KINDS[kind]
    assert "".join(f"  {command}\n" for command in (*start.before, *start.commands)) in out
    for command in start.commands:
        assert f"  {command}\n" in out
        arguments = build_parser().parse_args(shlex.split(command)[1:])
        named = getattr(arguments, "file", None)
        assert named is None or (tmp_path / "here" / named).is_file()


@pytest.mark.parametrize("kind", PLANNED)
def test_its_experiments_and_sweeps_are_planned_as_they_stand(kind, written, tmp_path):
    written(kind)
    planned = 0
    for path in sorted((tmp_path / "here").glob("*.yaml")):
        data = yaml.safe_load(path.read_text())
        if "testbed" in data or "experiment" in data:
            status, out, err = orch("plan", path.name, "--json", "--local")
            assert status in (0, 1), err  # 1: this machine is too small for it
            assert out
            planned += 1
    assert planned


def test_the_paper_is_read_all_it_prints_is_used_and_its_sweeps_are_said(written):
    written("paper")
    assert list(reading.unused(reading.paper(Path("paper.yaml")))) == []
    for version in (["--quick"], ["--local"]):
        status, out, err = orch("study", ".", "--what", *version)
        assert status == 0, err
        assert "link: 2gbit" in out


def test_units_of_a_night_name_this_folder_and_this_orch(written, tmp_path):
    written("nightly")
    service = (tmp_path / "here/orch-nightly.service").read_text()
    assert f"WorkingDirectory={tmp_path}/here\n" in service
    (line,) = [line for line in service.splitlines() if line.startswith("ExecStart=")]
    program, *argv = shlex.split(line.partition("=")[2])
    assert program.startswith("/")
    assert program.endswith("/bin/orch")
    assert (tmp_path / "here" / build_parser().parse_args(argv).file).is_file()
    assert "/srv/orch" not in service + (tmp_path / "here/crontab").read_text()


def test_a_night_repeats_until_it_is_known_ends_what_is_lost_and_says_how_to_look(written, tmp_path):
    written("nightly")
    text = (tmp_path / "here/nightly.yaml").read_text()
    assert yaml.safe_load(text)["until"]["interval"] == "2%"
    assert yaml.safe_load((tmp_path / "here/training.yaml").read_text())["lost"] == "again"
    (line,) = [line for line in text.splitlines() if line.startswith("#   orch watch ")]
    _, *argv = shlex.split(line.lstrip("# ").partition("  ")[0])
    assert build_parser().parse_args(argv).run == yaml.safe_load(text)["name"]


def test_what_is_there_is_not_overwritten(tmp_path):
    (tmp_path / "load.yaml").write_text("mine")
    (tmp_path / "quickstart.yaml").symlink_to("nowhere")
    status, _, err = orch("init", "quickstart", str(tmp_path))
    assert status == 2
    assert "there is already load.yaml, quickstart.yaml; nothing was written" in err
    assert (tmp_path / "load.yaml").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_a_kind_that_there_is_not_and_a_place_that_is_no_folder(tmp_path):
    status, _, err = orch("init", "cloud", str(tmp_path))
    assert status == 2
    assert all(f"  {kind} " in err for kind in starter_files.KINDS)
    (tmp_path / "file").touch()
    status, _, err = orch("init", "quickstart", str(tmp_path / "file"))
    assert status == 1
    assert "cannot be written" in err


def test_a_folder_whose_name_systemd_would_split_is_refused(tmp_path):
    status, _, err = orch("init", "nightly", str(tmp_path / "my nights"))
    assert status == 2
    assert "my nights" in err
    assert not (tmp_path / "my nights").exists()
