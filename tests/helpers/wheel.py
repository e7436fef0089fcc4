"""A wheel of the sources, and an environment outside of the checkout that has it in place of the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MADE_OF = (
    *("orchestrator", "workloads", "cross_traffic", "playbooks"),
    *("pyproject.toml", "setup.py", "README.md", "LICENSE"),
)


def copy_sources(to: Path, source: Path = ROOT, made_of: tuple[str, ...] = MADE_OF) -> Path:
    """Copy what a project is built of into a new folder."""
    to.mkdir(parents=True)
    for name in made_of:
        if (source / name).is_dir():
            leave_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(source / name, to / name, symlinks=True, ignore=leave_out)
        else:
            shutil.copy(source / name, to)
    return to


def build(folder: Path, source: Path = ROOT, made_of: tuple[str, ...] = MADE_OF) -> Path:
    """The wheel of a project, built in `folder` from a copy of it, without a network."""
    copy = copy_sources(folder / "source", source, made_of)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(copy))
    (wheel,) = folder.glob("*.whl")
    return wheel


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment, and the folder in which its commands are run."""

    path: Path
    folder: Path

    def orch(self, *arguments: str, within_s: float = 240.0) -> subprocess.CompletedProcess[str]:
        """Run its `orch`, without anything of the tests' own environment."""
        return self.run(str(self.path / "bin/orch"), *arguments, within_s=within_s)

    def install(self, *wheels: Path) -> None:
        """Install wheels, without what they depend on."""
        _pip("--python", str(self.path / "bin/python"), "install", "--no-index", "--no-deps", *map(str, wheels))

    def run(self, *argv: str, within_s: float = 240.0) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(
            argv, cwd=self.folder, env=kept, capture_output=True, text=True, timeout=within_s, check=False
        )


def environment(folder: Path, *wheels: Path) -> Environment:
    """A new virtual environment with these wheels; what they depend on is that of the interpreter of the tests.

    A path in a .pth file adds the packages of that environment, not what its own .pth files add: not the checkout.
    """
    made, empty = folder / "venv", folder / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    empty.mkdir()
    site = Path(sysconfig.get_path("purelib", vars={"base": str(made), "platbase": str(made)}))
    (site / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    found = Environment(made, empty)
    found.install(*wheels)
    return found


def _pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
