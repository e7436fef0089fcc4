from __future__ import annotations

import contextlib
import resource

import numpy as np
import pytest

from orchestrator.analysis.capture import capture_sets, flowtable
from orchestrator.analysis.capture.flowtable import BinRows, GrowingTables
from orchestrator.analysis.capture.stages import accounting
from orchestrator.core.errors import CaptureError
from tests.helpers.made_packets import UDP, ethernet, ip4, pcap, udp

WORDS = (3, 64)
MANY = 1 << 16  # rows, 34 MB


@contextlib.contextmanager
def files_of_at_most(count: int):
    """As on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def filled(tables: GrowingTables, rows: int) -> None:
    for number, array in enumerate(tables.arrays):
        fresh = array[: rows // 2] if rows > 1 << 10 else array[:0]
        assert not array[len(fresh) :].any()
        array[len(fresh) :] = np.arange(len(fresh), rows)[:, None] + number


def test_rows_stay_as_they_are_when_tables_grow_onto_disk_and_leave_memory():
    tables = GrowingTables(WORDS, most=MANY, held=1 << 20)
    before = flowtable._resident()
    rows = 1 << 10
    while rows <= MANY:
        tables.grow(rows)
        filled(tables, rows)
        rows *= 2
    assert flowtable._resident() - before > 30e6
    tables.evict()
    assert flowtable._resident() - before < 5e6
    for number, array in enumerate(tables.arrays):
        assert (array == np.arange(MANY)[:, None] + number).all()


def test_tables_that_may_be_held_have_no_file():
    tables = GrowingTables(WORDS, most=MANY, held=1 << 30)
    with files_of_at_most(1 << 12):
        tables.grow(1 << 12)
        tables.grow(MANY)
    tables.evict()
    assert [len(array) for array in tables.arrays] == [MANY, MANY]


def test_a_disk_without_room_is_one_error():
    tables = GrowingTables(WORDS, most=MANY, held=1 << 10)
    with files_of_at_most(1 << 20), pytest.raises(CaptureError, match=r"flows cannot wait in .*: File") as caught:
        tables.grow(MANY)
    assert "TMPDIR" in caught.value.hint


def test_a_capture_whose_flows_find_no_room_says_so(tmp_path):
    frames = [ethernet(ip4(udp(b"x", sport=1 + n), protocol=UDP)) for n in range(3000)]
    (tmp_path / "x.pcap").write_bytes(pcap(frames))
    one = capture_sets.CaptureSet(name="x", files=(tmp_path / "x.pcap",))
    with files_of_at_most(1 << 20):
        found = capture_sets.read_set(one, bin_ns=1_000_000, memory=4 << 20)
    assert "flows cannot wait" in " ".join(found.points[0].unread)


def test_bins_that_found_no_room_leave_those_before_as_they_were():
    """What reads on after such an error, as other files of a capture do, unpacks what was taken and nothing else."""
    random = np.random.default_rng(1)
    taken = [random.integers(0, 1 << 62, (accounting.BIN_WORDS, 1000)) for _ in range(3)]
    more = random.integers(0, 1 << 62, (accounting.BIN_WORDS, 1500))
    bins = BinRows(held=1000)
    with files_of_at_most(1 << 18):
        for part in taken:
            bins.add(part, part.shape[1])
        for _ in range(2):
            with pytest.raises(CaptureError, match="bins cannot wait"):
                bins.add(more, more.shape[1])
        taken.append(more[:, :500].copy())
        bins.add(taken[-1], 500)
    assert bins.count == sum(part.shape[1] for part in taken)
    for one, other in zip(bins.parts(), taken, strict=True):
        np.testing.assert_array_equal(one, other)
