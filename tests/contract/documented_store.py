"""A folder as a reader of the pages has it: the playbooks, an inventory, and a store with a few runs and nights."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.helpers.night_runs import write_night
from tests.helpers.sealed_run import loose, make_run

ROOT = Path(__file__).parents[2]
NIGHTS = 3


def make(folder: Path) -> None:
    """Fill an empty folder."""
    (folder / "playbooks").symlink_to(ROOT / "playbooks")
    shutil.copy(ROOT / "playbooks/testbeds/example-rack.yaml", folder / "rack.yaml")
    for number in (1, 2, 3):
        make_run(folder / "results/quickstart", repetition=number, tolerances=loose(), change=_quickstart)
    for night in range(NIGHTS):
        write_night(folder / "results", night)


def _quickstart(manifest: dict) -> None:
    manifest["experiment"] = "quickstart"
