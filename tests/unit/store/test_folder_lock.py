"""Folders are held by one process at a time, by a file that a server of NFS sees; mounts that hide locks are told."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from orchestrator.core.errors import StoreError
from orchestrator.store import folder_lock, rundir
from orchestrator.store.compact import compacting
from tests.helpers.experiments import orch
from tests.helpers.killed_at import killed_at
from tests.helpers.night_runs import write_run

NFS = "36 25 0:31 / {place} rw,relatime shared:1 - {kind} server:/export rw,vers=4.2,{options}\n"


def _adding(folder):
    """Add to a number in a file as only who is alone may: how often it was refused."""
    refused = 0
    for _ in range(50):
        while True:
            try:
                with folder_lock.held(folder, "taken"):
                    number = folder / "number"
                    number.write_text(str(int(number.read_text()) + 1))
                break
            except StoreError:
                refused += 1
    return refused


def test_processes_take_turns_and_leave_nothing(tmp_path):
    (tmp_path / "number").write_text("0")
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("fork")) as pool:
        list(pool.map(_adding, [tmp_path] * 3))
    assert (tmp_path / "number").read_text() == "150"
    assert [path.name for path in tmp_path.iterdir()] == ["number"]


def test_a_lock_is_a_file_that_is_written_and_is_free_once_its_holder_is_killed(tmp_path):
    def hold():
        with folder_lock.held(tmp_path, "taken"):
            (tmp_path / "there").write_text("")

    assert killed_at(2, hold)
    assert (tmp_path / folder_lock.FILE).exists()
    assert not (tmp_path / "there").exists()
    with folder_lock.held(tmp_path, "taken"):
        lock = (tmp_path / folder_lock.FILE).stat()
        (mine,) = [fd for fd in Path("/proc/self/fd").iterdir() if fd.exists() and os.path.samestat(fd.stat(), lock)]
        about = Path("/proc/self/fdinfo", mine.name).read_text().splitlines()
        flags = next(int(line.split()[1], 8) for line in about if line.startswith("flags"))
        assert flags & os.O_RDWR, "over NFS a lock needs a file that may be written"
        with (
            pytest.raises(StoreError, match="another process works"),
            folder_lock.held(tmp_path, "another process works"),
        ):
            pass


@pytest.mark.parametrize("planted", ["link", "fifo"])
def test_what_somebody_planted_in_a_locks_place_is_not_written(tmp_path, planted):
    (tmp_path / "mine").write_text("mine")
    if planted == "link":
        (tmp_path / folder_lock.FILE).symlink_to(tmp_path / "mine")
        with pytest.raises(StoreError, match="cannot be locked"), folder_lock.held(tmp_path, "taken"):
            pass
    else:
        os.mkfifo(tmp_path / folder_lock.FILE)
        with folder_lock.held(tmp_path, "taken"):
            pass
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_lock_that_a_killed_prune_left_is_no_file_of_the_run(tmp_path):
    run = write_run(tmp_path, iterations=5)
    (run / folder_lock.FILE).write_bytes(b"")
    folder = rundir.RunFolder(run, rundir.opened(run).manifest)
    folder.hash_files()
    assert folder_lock.FILE not in {one.path for one in folder.manifest.artifacts}


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("nfs4", "local_lock=none", False),
        ("nfs", "nolock,local_lock=all", True),
        ("nfs4", "local_lock=flock", True),
        ("nfs", "local_lock=posix", False),
        ("fuse.sshfs", "user_id=0", True),
        ("cifs", "nobrl", True),
        ("9p", "trans=virtio", True),
        ("ext4", "errors=remount-ro", False),
        ("fuseblk", "user_id=0", False),
    ],
)
def test_a_store_on_a_mount_that_keeps_locks_to_itself_is_told(tmp_path, monkeypatch, kind, options, told):
    results, mounts = tmp_path / "a b" / "results", tmp_path / "mountinfo"
    write_run(results, iterations=5)
    place = str(tmp_path / "a b").replace(" ", "\\040")
    mounts.write_text(
        "22 1 254:0 / / rw - ext4 /dev/vda rw\nnonsense\n"
        + NFS.format(place=place, kind=kind, options=options)
        + NFS.format(place=f"{tmp_path}/a", kind="fuse.sshfs", options="x")
    )
    monkeypatch.setattr(folder_lock, "MOUNTS", mounts)
    status, _, err = orch("store", "compact", "--results", str(results))
    assert status == 0
    assert (f"lies on {kind}, where another machine may not see that it is locked" in err) == told
    assert ("let one machine alone compact, push and prune it" in err) == told
    with compacting.alone(results):
        assert orch("store", "compact", "--results", str(results))[0] == 1
