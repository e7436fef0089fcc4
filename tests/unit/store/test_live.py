"""What goes on in a run, as a file: whole or not there, bounded, and gone with the run."""

from __future__ import annotations

import os
import time

import pytest

from orchestrator.core.errors import StoreError
from orchestrator.store import live
from orchestrator.store.live import Live, LiveJob
from tests.helpers import manifests


def test_what_is_written_is_read(tmp_path):
    state = Live(label="run 1 of 3", phase="window", jobs=(LiveJob(name="a", seconds=(0.1, 0.2)),))
    assert live.load(tmp_path) is None
    live.save(tmp_path, state)
    assert live.load(tmp_path) == state


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is not what a controller writes"),
        (b"[" * 100_000, "is not what a controller writes"),
        (b'{"label": 7}', "is not what a controller writes: Expected `str`, got `int` - at `\\$.label`"),
        (b'{"label": "x", "phase_began_ns": 1e400}', "is not what a controller writes"),
        (b'{"label": "x", "format": 99}', "is of format 99"),
        (b" " * (live.MOST_BYTES + 1), "is larger than"),
    ],
)
def test_what_no_controller_wrote_is_refused_in_a_line(tmp_path, content, why):
    (tmp_path / live.FILE).write_bytes(content)
    with pytest.raises(StoreError, match=why) as caught:
        live.load(tmp_path)
    assert "\n" not in caught.value.message


def test_no_link_is_followed(tmp_path):
    (tmp_path / live.FILE).symlink_to("/etc/passwd")
    with pytest.raises(StoreError, match="a link has this name"):
        live.load(tmp_path)


def test_whoever_watches_says_so_for_a_while_and_makes_nothing(tmp_path):
    live.watch(tmp_path)
    assert list(tmp_path.iterdir()) == []
    live.begin(tmp_path)
    assert not live.is_watched(tmp_path)
    live.watch(tmp_path)
    assert live.is_watched(tmp_path)
    before = time.time() - live.WATCHED_S - 1
    os.utime(tmp_path / live.WATCHED, (before, before))
    assert not live.is_watched(tmp_path)


def test_a_run_is_sealed_without_what_a_killed_controller_left_of_it(tmp_path):
    folder = manifests.begun(tmp_path)
    live.begin(folder.path)
    live.save(folder.path, Live(label="run 1 of 1"))
    folder.hash_files()
    assert folder.manifest.artifacts == ()
    assert sorted(path.name for path in folder.seal().iterdir()) == ["hosts", "manifest.json", "tables"]
