"""Paths of the playbooks that come with the package: behind a link in a checkout, the files themselves in a wheel."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[2] / "playbooks"
HOSTS = FOLDER / "hosts"  # scripts and rules that prepare machines
START = FOLDER / "start"  # what `orch init` writes, a folder each kind
PAPERS = FOLDER / "papers"  # a folder each
