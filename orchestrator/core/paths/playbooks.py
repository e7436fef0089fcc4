"""Paths of the playbooks that come with the package: in a checkout behind a link, in a wheel the files themselves."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[2] / "playbooks"
HOSTS = FOLDER / "hosts"  # scripts and rules that prepare machines
START = FOLDER / "start"  # what `orch init` writes, a folder each kind
STUDIES = FOLDER / "studies"
