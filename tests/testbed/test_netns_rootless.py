"""Runs the tests of the local testbed once more as an ordinary user."""

from __future__ import annotations

import os
import pwd
import shutil
import site
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.skipif(os.geteuid() != 0, reason="all tests run as an ordinary user here"),
]
ROOT = Path(__file__).parents[2]
USER = "orchtest"
PROJECT = ("orchestrator", "workloads", "cross_traffic")
NEEDED = ("paramiko", "pydantic", "pytest", "xdist", "hypothesis", "cryptography")


def users_with_a_range():
    owners = {line.split(":")[0] for line in Path("/etc/subuid").read_text().splitlines()}
    return [entry.pw_name for entry in pwd.getpwall() if entry.pw_name in owners and entry.pw_uid >= 1000]


@contextmanager
def ordinary_user():
    """A user with a range of further ids: one who is there, or one made for the test and removed after it."""
    there = users_with_a_range()
    if there:
        yield there[0]
        return
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", USER], check=True)
    try:
        yield USER
    finally:
        subprocess.run(["userdel", "--remove", USER], check=True, capture_output=True)


@pytest.fixture
def as_user():
    """Run Python as an ordinary user who can read a copy of the project: `as_user(argv)`."""
    if not shutil.which("newuidmap"):
        pytest.skip("the program newuidmap is not installed: apt-get install uidmap")
    with ordinary_user() as user, tempfile.TemporaryDirectory(dir="/tmp") as folder:
        for name in (*PROJECT, "tests", "pyproject.toml"):
            source, target = ROOT / name, Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, target)
        subprocess.run(["chown", "-R", user, folder], check=True)
        paths = os.pathsep.join([folder, *site.getsitepackages()])
        home = pwd.getpwnam(user).pw_dir
        settings = [f"HOME={home}", "PATH=/usr/bin:/bin", f"PYTHONPATH={paths}", f"TMPDIR={folder}"]
        prefix = ["runuser", "-u", user, "--", "env", "-i", *settings]

        def run(argv, limit_s=900):
            return subprocess.run(
                [*prefix, *argv], cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False
            )

        probe = f"import {', '.join(NEEDED)}"
        for python in (
            sys.executable,
            f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}",
            "/usr/bin/python3",
        ):
            if run([python, "-c", probe]).returncode == 0:
                break
        else:
            pytest.skip("no Python that an ordinary user can run finds the project's packages")
        yield lambda argv: run([python, *argv])


@pytest.mark.variants
@pytest.mark.parametrize("which", ["not alone", pytest.param("alone", marks=pytest.mark.alone)])
def test_all_works_without_root(as_user, which):
    done = as_user(
        [
            *("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-rs", "-n", "2", "--dist", "worksteal"),
            *("-m", which, "tests/testbed/test_netns.py", "tests/testbed/test_netns_conditions.py"),
        ]
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_without_a_range_of_ids_the_error_says_what_to_do():
    script = (
        "from orchestrator.testbed.local.netns import requirements_problems as p\n"
        "for what, remedy in p(): print(what, '|', remedy)"
    )
    python = "/usr/bin/python3"
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        for name in PROJECT:
            shutil.copytree(ROOT / name, Path(folder, name))
        Path(folder).chmod(0o755)
        paths = os.pathsep.join([folder, *site.getsitepackages()])
        done = subprocess.run(
            [
                "runuser",
                "-u",
                "nobody",
                "--",
                "env",
                "-i",
                "PATH=/usr/bin:/bin",
                f"PYTHONPATH={paths}",
                python,
                "-c",
                script,
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    if any(f"No module named '{name}'" in done.stderr for name in NEEDED):
        pytest.skip("no Python that an ordinary user can run finds the project's packages")
    assert "the user nobody has no range in /etc/subuid" in done.stdout, done.stderr
    assert "usermod --add-subuids" in done.stdout
