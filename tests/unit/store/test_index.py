"""The list of all runs: never wrong about what is there, whoever writes at the same time."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import msgspec
import pytest

from orchestrator.store import index, rundir
from orchestrator.store.manifests import coding, manifest
from orchestrator.store.stamps import MANIFEST
from tests.helpers import manifests
from tests.helpers.sweep_files import leave, window

ABOUT = {"name": "e", "id": "i", "points": {}}


def made(results, count=1, **more):
    return [leave(results, ABOUT, windows=[window("w1")], argv=["x" * 1000], **more) for _ in range(count)]


def listed(results):
    return {entry.path: entry.manifest for entry in index.entries(results)}


def test_a_brief_manifest_lacks_what_makes_it_large(tmp_path):
    (path,) = made(tmp_path)
    brief = listed(tmp_path)[path]
    assert not hasattr(brief, "argv")
    assert not hasattr(brief.windows[0], "gates")
    assert brief.windows[0].training == manifests.window(**window("w1")).training
    assert "x" * 1000 not in (tmp_path / index.FILE).read_text()


def test_what_is_new_changed_or_gone_shows_at_once(tmp_path):
    first, second = made(tmp_path, 2)
    assert set(listed(tmp_path)) == {first, second}
    path = first / MANIFEST
    manifest.save(path, replace(manifest.load(path), stage="changed"))
    shutil.rmtree(second)
    (third,) = made(tmp_path)
    assert set(listed(tmp_path)) == {first, third}
    assert listed(tmp_path)[first].stage == "changed"


def test_one_thread_alone_learns_a_type_that_several_read(monkeypatch):
    @dataclass
    class Kind:
        x: int

    made, inside, plain = [], threading.Semaphore(1), msgspec.json.Decoder

    def decoder(kind):
        assert inside.acquire(blocking=False), "two threads at once"
        time.sleep(0.02)
        inside.release()
        made.append(kind)
        return plain(kind)

    monkeypatch.setattr(msgspec.json, "Decoder", decoder)
    with ThreadPoolExecutor(index.READERS) as pool:
        found = list(pool.map(lambda x: coding.decoded(b'{"x": %d}' % x, Kind), range(20)))
    assert [one.x for one in found] == list(range(20))
    assert made == [Kind]


def test_it_says_what_reading_every_manifest_says(tmp_path):
    made(tmp_path, 3)
    made(tmp_path, 1, outcome="running", sealed=False)
    (tmp_path / "e" / "torn").mkdir()
    (tmp_path / "e" / "torn" / "manifest.json").write_text("{")
    for _ in range(2):
        assert [(entry.path, entry.outcome) for entry in index.entries(tmp_path)] == [
            (entry.path, entry.outcome) for entry in rundir.entries(tmp_path)
        ]


def test_what_was_indexed_is_not_read_again(tmp_path, monkeypatch):
    made(tmp_path, 3)
    index.entries(tmp_path)
    monkeypatch.setattr(manifest, "summary", lambda path: pytest.fail(f"{path} was read"))
    assert len(index.entries(tmp_path)) == 3


def test_what_cannot_be_read_is_told_every_time_and_read_once(tmp_path, monkeypatch):
    made(tmp_path, 2)
    damaged = manifests.left(tmp_path / "e" / "r1", scale="x") / MANIFEST
    later = manifests.left(tmp_path / "e" / "r2", format=99) / MANIFEST
    for _ in range(2):
        found = index.listing(tmp_path)
        assert len(found.entries) == 2
        assert [problem.partition(" and ")[0] for problem in found.problems] == [
            f"{damaged}: scale: expected `int`, got `str`",
            f"{later}: is of format 99,",
        ]
        monkeypatch.setattr(manifest, "summary", lambda path: pytest.fail(f"{path} was read again"))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 99, "runs": {}}', '{"format": 1, "runs": 3}'])
def test_an_index_that_is_none_is_made_anew(tmp_path, content):
    made(tmp_path, 2)
    (tmp_path / index.FILE).write_text(content)
    assert len(index.entries(tmp_path)) == 2
    assert json.loads((tmp_path / index.FILE).read_text())["format"] == index.FORMAT


def test_a_store_that_may_only_be_read_is_listed(tmp_path, monkeypatch):
    made(tmp_path, 2)
    (tmp_path / index.FILE).mkdir()  # nothing can be put in its place
    assert len(index.entries(tmp_path)) == 2
    assert [path.name for path in tmp_path.iterdir() if path.name != index.FILE] == ["e"]
    assert index.entries(tmp_path / "nowhere") == []


def work(results, number):
    for _ in range(10):
        leave(results, {**ABOUT, "name": f"e{number}"}, windows=[window("w1")])
        index.entries(results)


def test_several_controllers_write_at_once(tmp_path):
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=work, args=(tmp_path, number)) for number in range(4)]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
    assert [other.exitcode for other in others] == [0] * 4
    assert len(index.entries(tmp_path)) == 40
    assert len(index.entries(tmp_path)) == len(list(rundir.entries(tmp_path)))
    assert not list(tmp_path.glob(f"{index.FILE}.*"))
