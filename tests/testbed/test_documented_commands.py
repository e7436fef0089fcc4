"""Commands that pages mark `bash run on a testbed` end as they are written to, in a folder with the page's files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from documentation import tried
from tests.helpers.orch_runs import spoilt

pytestmark = [pytest.mark.testbed, pytest.mark.variants]

ROOT = Path(__file__).parents[2]
PAGES = [page for page in tried.pages() if any(command.how == "testbed" for command in tried.commands(page))]


@pytest.fixture
def shell(tmp_path):
    """A shell in a reader's folder, which finds `orch`: runs a line, and gives its status and output."""
    (tmp_path / "playbooks").symlink_to(ROOT / "playbooks")
    orch = tmp_path / "bin/orch"
    orch.parent.mkdir()
    orch.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m orchestrator.cli.main "$@"\n')
    orch.chmod(0o755)
    env = {**os.environ, "PATH": f"{orch.parent}:{os.environ['PATH']}"}

    def run(line):
        done = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=420, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("page", PAGES)
def test_commands_end_as_written(page, shell, tmp_path):
    for name, text in tried.files(page).items():
        (tmp_path / name).write_text(text)
    for command in tried.commands(page):
        if command.how == "testbed":
            status, said = shell(command.text)
            as_written = status == command.status or (status == 3 and spoilt(tmp_path / "results"))
            assert as_written, f"{command}: {said}"
