"""What a wheel holds, and that it works where there is no checkout."""

from __future__ import annotations

import re
import stat
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from orchestrator.cli import manpages
from orchestrator.core.paths import playbooks
from orchestrator.experiment import starter_files
from tests.helpers import releases, wheel

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return wheel.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    return wheel.environment(tmp_path_factory.mktemp("installed"), built)


def tracked(folder):
    """Files of a folder of the sources, as a clone has them."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".nbc", ".nbi")
    }


def test_a_wheel_holds_every_file_of_the_sources_and_nothing_beside(built):
    with zipfile.ZipFile(built) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name and "/share/man/" not in name}
    wanted = tracked("orchestrator") | tracked("workloads") | tracked("cross_traffic")
    wanted |= {f"orchestrator/{name}" for name in tracked("playbooks")}
    assert held == wanted


def test_a_release_is_the_same_bytes_each_time_and_its_source_archive_makes_the_same_wheel(built, tmp_path):
    checkout = wheel.copy_sources(tmp_path / "checkout", made_of=(*wheel.MADE_OF, "CHANGELOG.md"))
    released = releases.release(releases.committed(checkout), tmp_path / "released")
    assert "release: rehearsed" in released.stdout, released.stderr
    (made,) = (tmp_path / "released").glob("*.whl")
    with zipfile.ZipFile(built) as ours, zipfile.ZipFile(made) as theirs:
        kept = [{(file.filename, file.CRC) for file in archive.infolist()} for archive in (ours, theirs)]
    assert kept[0] == kept[1]


def test_playbooks_in_a_wheel_can_be_started_as_in_a_checkout(built):
    with zipfile.ZipFile(built) as archive:
        for path in (path for path in playbooks.HOSTS.rglob("*") if path.is_file()):
            mode = archive.getinfo(f"orchestrator/playbooks/hosts/{path.relative_to(playbooks.HOSTS)}").external_attr
            assert bool(mode >> 16 & stat.S_IXUSR) == bool(path.stat().st_mode & stat.S_IXUSR), path


def test_a_wheel_has_a_man_page_for_every_command(installed):
    folder = installed.path / "share/man/man1"
    assert {path.name for path in folder.iterdir()} == {f"{name}.1" for name in manpages.pages("")}
    assert f'"orch {metadata.version("orch-testbed")}"' in (folder / "orch-run.1").read_text()


def test_the_version_is_written_in_one_place(installed):
    (version,) = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert installed.orch("--version").stdout == f"orch {version}\n"
    elsewhere = [ROOT / name for name in tracked("orchestrator") if name.endswith(".py")]
    assert [path for path in elsewhere if re.search(r"__version__ *= *[\"']", path.read_text())] == []


def test_an_installed_wheel_begins_and_plans_the_quickstart_outside_of_the_checkout(installed):
    done = installed.run(str(installed.path / "bin/python"), "-c", "import orchestrator; print(orchestrator.__file__)")
    assert done.stdout.startswith(str(installed.path)), done
    assert installed.orch("init", "quickstart", "first").returncode == 0
    planned = installed.orch("plan", "first/quickstart.yaml")
    assert planned.returncode == 0, planned.stderr
    assert "h4" in planned.stdout
    studied = installed.orch("study", "salamy", "--quick", "--what")
    assert "traffic: websearch" in studied.stdout, studied.stderr
    checked = installed.orch("prepare", "--check", "--only", "torch", "--folder", "/nonexistent")
    assert "frameworks: building /nonexistent/torch-" in checked.stdout, checked.stderr


def test_a_wheel_below_somebodys_repository_has_no_commit_of_it(installed):
    """Its manifest would name the commit of sources that are not its own."""
    folder = installed.folder.parent
    git = ("git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@example.org")
    assert installed.run("git", "init", "-q", str(folder)).returncode == 0
    assert installed.run(*git, "commit", "-q", "--allow-empty", "-m", "x").returncode == 0
    code = "from orchestrator.execution import provenance as p; print(p.git_state(p.Path(p.__file__).parent))"
    said = installed.run(str(installed.path / "bin/python"), "-c", code)
    assert said.stdout == "None\n", said.stderr


def test_every_kind_of_start_has_a_folder():
    assert {path.name for path in playbooks.START.iterdir()} == set(starter_files.KINDS)


def test_getting_started_lists_the_kinds_of_start():
    page = " ".join((ROOT / "docs/getting-started.md").read_text().split())
    *first, last = [f"`{kind}`" for kind in starter_files.KINDS]
    assert f"of one of eight kinds: {', '.join(first)} or {last}." in page
    assert len(first) == 7
