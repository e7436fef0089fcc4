"""Files are replaced whole by any number of writers at once, and what killed ones leave is no file of a run."""

from __future__ import annotations

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.store import atomic, baselines, front_page, index
from orchestrator.store.elsewhere import ranges
from tests.helpers import manifests
from tests.helpers.killed_at import killed_at

WRITERS = 300
WRITES = {
    "a file": lambda path, number: atomic.write(path, b"%d\n" % number),
    "a baseline": lambda path, number: baselines.save(path.parent, "main", of=(str(number),), runs=("e/r1",)),
    "whether a page is kept fresh": lambda path, number: front_page.keep_fresh(path.parent, yes=bool(number % 2)),
    "a block of the cache": lambda path, number: ranges.put(path, b"%d" % number),
    "the index": lambda path, number: index._write(path.parent, {}),
}


def _written(what: str, path: Path, number: int) -> None:
    WRITES[what](path, number)


def _by_threads(what: str, path: Path, first: int) -> None:
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda number: _written(what, path, number), range(first, first + WRITERS // 3)))


@pytest.mark.parametrize("what", WRITES)
def test_writers_at_once_all_succeed_and_leave_one_whole_file(tmp_path, what):
    path = tmp_path / "file"
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("fork")) as pool:
        list(pool.map(_by_threads, [what] * 3, [path] * 3, [0, 100, 200]))
    files = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert len(files) == 1, "nothing is left beside it"
    json.loads(files[0].read_bytes())


def test_a_writer_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "file"
    atomic.write(path, b"old")

    def fail():
        with atomic.replacing(path) as file:
            file.write(b"half")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"file": b"old"}


def test_what_a_killed_writer_left_is_no_file_of_the_run(tmp_path):
    folder = manifests.begun(tmp_path)
    assert killed_at(3, lambda: folder.save(folder.manifest))
    (folder.path / "hosts/h1").mkdir()
    (folder.path / "hosts/h1/.theirs.new").write_bytes(b"theirs")
    left = list(folder.path.glob(".*.new"))
    assert left, "it was killed before it renamed"
    folder.hash_files()
    assert [one.path for one in folder.manifest.artifacts] == ["hosts/h1/.theirs.new"]
    assert not list(folder.path.glob(".*.new"))
