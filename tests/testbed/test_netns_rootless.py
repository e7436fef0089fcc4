"""What a user is told who cannot make a local testbed."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import tempfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.testbed, pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")]
ROOT = Path(__file__).parents[2]
PROJECT = ("orchestrator", "workloads", "cross_traffic")
NEEDED = ("paramiko", "pydantic", "pytest", "xdist", "hypothesis", "cryptography")


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
