"""Parts of other packages: broken ones harm nobody else. A sound one: tests/testbed/test_wheel_live.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from documentation import markdown
from tests.helpers.experiments import GOOD

ROOT = Path(__file__).parents[3]


# Packages as pip installs them: a folder of metadata beside a module.
SOUND = """
from orchestrator.core.fields import Model
NAME = "foreign"
class Config(Model):
    "Nothing."
def problems(config, topology): return []
def requirements(config, topology): return []
def launches(config, topology): return [][0]
def read(output): return {}
"""
BROKEN = {
    "raises": ("raise RuntimeError('no licence\\nfor this')", "RuntimeError: no licence"),
    "ends": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "missing": (None, "ModuleNotFoundError: No module named 'missing_module'"),
    "unnamed": (SOUND.replace('"foreign"', '"other"'), "has no NAME = 'unnamed'"),
    "loose": (SOUND.replace("(Model)", "").replace("foreign", "loose"), "has no Config"),
    "blind": (
        SOUND.replace("foreign", "blind").replace("launches", "starts"),
        "lacks one of launches, rank_launches, wrapper",
    ),
    "half": (SOUND.replace("foreign", "half").replace("def read", "def write"), "lacks read"),
    "nic": (SOUND.replace("foreign", "nic"), "this name is that of a part of orch"),
}


@pytest.fixture
def foreign(tmp_path):
    """Packages that each offer one collector, and `orch` where they are installed."""

    def install(**modules):
        for name, text in modules.items():
            about = tmp_path / "site" / f"{name}_parts-2.5.dist-info"
            about.mkdir(parents=True)
            (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-parts\nVersion: 2.5\n")
            (about / "entry_points.txt").write_text(f"[orch.collectors]\n{name} = {name}_module\n")
            if text is not None:
                (about.parent / f"{name}_module.py").write_text(text)

    def orch(*argv):
        path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])
        return subprocess.run(
            [sys.executable, "-m", "orchestrator.cli.main", *argv],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )

    (tmp_path / "good.yaml").write_text(GOOD)
    orch.install = install
    return orch


def collecting(folder, *names):
    data = {**yaml.safe_load(GOOD), "collect": list(names)}
    (folder / "e.yaml").write_text(yaml.safe_dump(data))
    return "e.yaml"


def test_broken_packages_are_named_once_and_break_nothing_else(foreign, tmp_path):
    foreign.install(**{name: text for name, (text, _) in BROKEN.items()})
    listed = foreign("ls")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert foreign("plan", "good.yaml").stderr == ""
    told = foreign("doctor").stdout
    for name, (_, why) in BROKEN.items():
        (line,) = [line for line in told.splitlines() if f"collector {name} of the package {name}-parts 2.5" in line]
        assert f"cannot be used: {why}" in line or f"_module {why}" in line, line
    unusable = sorted(set(BROKEN) - {"nic"})
    done = foreign("plan", collecting(tmp_path, *unusable))
    assert done.returncode == 2
    for name, line in zip(unusable, done.stderr.splitlines(), strict=True):
        assert line.startswith("e.yaml:")
        assert f"collector {name} of the package {name}-parts 2.5 cannot be used" in line


def test_what_a_foreign_part_raises_is_one_error_that_names_its_package(foreign, tmp_path):
    foreign.install(foreign=SOUND)
    done = foreign("plan", collecting(tmp_path, "foreign"))
    assert done.returncode == 1
    assert (
        "collector foreign of the package foreign-parts 2.5: launches: IndexError: list index out of range"
        in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_collectors_of_the_page_see_ranks_and_need_what_is_in_their_image(foreign, tmp_path):
    pages = markdown.blocks((ROOT / "docs/own-parts.md").read_text())
    blocks = {found[1]: block.text for block in pages if (found := re.search(r'NAME = "([a-z-]+)"', block.text))}
    needs = "[Requirement(node=h.name, kind='program', what='sh', remedy='x', needed_by=NAME) for h in topology.hosts]"
    text = (
        blocks["lifetime"]
        .replace("import Wrapper", "import Requirement, Wrapper")
        .replace("return []", "return " + needs)
    )
    text = text.replace(
        "def problems(config, topology):\n    return " + needs, "def problems(config, topology):\n    return []"
    )
    foreign.install(lifetime=text, resident=blocks["resident"])
    data = yaml.safe_load(GOOD)
    workload = {"argv": ["train"], "iterations": {"pattern": "x"}, "hosts": ["h1", "h2", "h2"]}
    workload["container"] = {"runtime": "podman", "image": "localhost/mine:1"}
    (tmp_path / "e.yaml").write_text(
        yaml.safe_dump({**data, "workload": {"command": workload}, "collect": ["lifetime", "resident"]})
    )
    done = foreign("plan", "e.yaml", "--json")
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    for rank in run["jobs"][0]["launches"]:
        assert rank["wrapped_by"] == ["collector.lifetime"]
        assert rank["argv"][:8] == ["python3", "-I", "-S", "-B", "wrapped_rank.py", "lifetime", "4", "sh"]
        assert {"wrapped_rank.py", "container_rank.py"} <= rank["files"].keys()
    watching = {one["node"]: one["argv"] for one in run["collectors"] if one["part"] == "collector.resident"}
    assert [word for word in watching["h2"] if "pid of" in word] == [
        f"training-rank{rank}={{pid of training-rank{rank}}}" for rank in (1, 2)
    ]
    assert watching.keys() == {"h1", "h2"}
    needed = [need for need in run["requirements"] if need["needed_by"] == "lifetime"]
    assert {need["node"] for need in needed} == {"h1", "h2"}
    assert {need["container"]["image"] for need in needed} == {"localhost/mine:1"}
    assert {need["remedy"] for need in needed} == {"build it into the image localhost/mine:1"}


def test_two_packages_with_one_name_keep_the_first_and_say_so(foreign, tmp_path):
    foreign.install(foreign=SOUND)
    about = tmp_path / "site" / "zz_parts-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: zz-parts\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[orch.collectors]\nforeign = zz_module\n")
    assert (
        "collector foreign of the package zz-parts 1 cannot be used: foreign-parts 2.5 offers one"
        in foreign("doctor").stdout
    )
