"""The simulation is compiled once on a machine, by one process, whatever may be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.predict.simulation import compiled

# Compiles one function of the simulation, and prints whether no kept code had it, then where its code lies.
COMPILE = """
from orchestrator.predict.simulation import compiled, machine
compiled.call(machine.seeded, 1)
print(sum(machine.seeded.stats.cache_misses.values()), compiled._folder())
"""


def begin(**changes: str) -> subprocess.Popen[str]:
    """Begin a process that compiles, and that keeps nothing beside the sources."""
    env = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    return subprocess.Popen(
        [sys.executable, "-B", "-c", COMPILE], env=env | changes, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )


def said(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return out.split()


@pytest.mark.parametrize(("variable", "below"), [("NUMBA_CACHE_DIR", ""), ("XDG_CACHE_HOME", "orch/compiled")])
def test_of_those_that_begin_at_once_one_compiles(variable: str, below: str, tmp_path: Path) -> None:
    found = [said(one) for one in [begin(**{variable: str(tmp_path)}) for _ in range(3)]]
    assert sorted(misses for misses, _ in found) == ["0", "0", "1"]
    assert {Path(folder).parent for _, folder in found} == {tmp_path / below}


def test_where_nothing_may_be_written_each_process_compiles(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.touch()
    assert said(begin(NUMBA_CACHE_DIR=str(taken), XDG_CACHE_HOME=str(taken))) == ["1", "None"]


def test_of_other_sources_the_newest_versions_stay_as_checkouts_share_a_cache(tmp_path: Path) -> None:
    others = [tmp_path / f"simulation-{number:016x}" for number in range(5)]
    for age, folder in enumerate(others, start=1):
        folder.mkdir()
        os.utime(folder, (1e9 - age, 1e9 - age))
    _, own = said(begin(NUMBA_CACHE_DIR=str(tmp_path)))
    assert {path.name for path in tmp_path.glob("simulation-*")} == {Path(own).name, *(one.name for one in others[:3])}


def test_a_change_of_any_source_gives_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = shutil.copytree(compiled._HERE, tmp_path / "sources")
    monkeypatch.setattr(compiled, "_HERE", sources)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    folders = {compiled._folder.__wrapped__()}
    for name in ("machine", "flows", "packets", "compiled"):
        with (sources / f"{name}.py").open("a") as file:
            file.write("# another line\n")
        folders.add(compiled._folder.__wrapped__())
    assert len(folders) == 5
