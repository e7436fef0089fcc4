"""A repository of its own whose release is made by our `.ci/release`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def git(checkout: Path, *arguments: str) -> str:
    """Run git as somebody who has no settings of their own."""
    bare = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main")
    return subprocess.run(
        ["git", *who, *arguments], cwd=checkout, env=bare, check=True, capture_output=True, text=True
    ).stdout


def commit(checkout: Path) -> None:
    """Commit all that lies there."""
    git(checkout, "add", "--all")
    git(checkout, "commit", "-q", "-m", "x")


def committed(checkout: Path) -> Path:
    """Make a repository of a folder, with our program for releases in it."""
    (checkout / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/release", checkout / ".ci")
    git(checkout, "init", "-q")
    commit(checkout)
    return checkout


def release(checkout: Path, to: Path, *key: Path) -> subprocess.CompletedProcess[str]:
    """Make a release of a checkout with the interpreter of the tests; relative paths are those of its parent folder."""
    env = {**os.environ, "PYTHON": sys.executable, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_COMMITTER_NAME": "x"}
    env |= {"GIT_COMMITTER_EMAIL": "x@example.org"}
    return subprocess.run(
        [checkout / ".ci/release", to, *key], cwd=checkout.parent, env=env, capture_output=True, text=True, check=False
    )
