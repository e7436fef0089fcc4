"""Captures, plain and packed: flows, bins and queue pairs come out whose sums hold, or a CaptureError."""

from __future__ import annotations

import functools
import gzip
import random
import zlib
from pathlib import Path

import pyarrow as pa

from orchestrator.analysis.capture import capturesets, capturetables, flowtable, merging
from orchestrator.analysis.capture.trace import Trace
from orchestrator.core.errors import OrchError
from tests.fuzz import mutate
from tests.fuzz.target import Target
from tests.nasty import NASTY

DATA = Path(__file__).parents[2] / "data" / "pcap"


@functools.cache
def _seeds() -> tuple[bytes, ...]:
    plain = [*NASTY.values(), *(path.read_bytes() for path in sorted(DATA.glob("*.pcap")))]
    packed = [gzip.compress(plain[0]), bytes(pa.Codec("zstd").compress(plain[-1], asbytes=True))]
    return (*plain, *packed)


def _read(data: bytes, folder: Path) -> None:
    path = folder / "x"
    path.write_bytes(data)
    one = capturesets.CaptureSet(name="x", files=(path,))
    settings = {"bin_ns": (1000, 10**6)[zlib.crc32(data) % 2], "bin_budget": 500}
    found = capturesets.read_set(one, **settings)
    again = capturesets.read_set(one, **settings, workers=3, piece_bytes=1 << 10)
    _check(merging.merged([found, again]))


def _check(found: Trace) -> None:
    """What holds for the same file at two points, whatever it holds."""
    assert len({point.packets for point in found.points}) == 1
    point, flows, bins = found.points[0], found.flows, found.bins
    assert flows.packets.sum() == bins.packets.sum() == 2 * point.packets
    assert flows.wire_bytes.sum() == bins.wire_bytes.sum() == 2 * point.wire_bytes
    assert flows.payload_bytes.sum() == bins.payload_bytes.sum()
    assert flows.repeated_bytes.sum() == bins.repeated_bytes.sum() <= flows.payload_bytes.sum()
    for name in ("packets", "payload_bytes", "repeated", "late", "window_bytes"):
        assert (getattr(flows, name) >= 0).all()
    assert (flows.first_ns <= flows.last_ns).all()
    assert found.queue_pairs.opcodes.sum() == found.queue_pairs.packets.sum()
    assert (found.queue_pairs.sizes.sum(axis=1) == found.queue_pairs.messages).all()
    for table in (capturetables.flows, capturetables.pairs, capturetables.queue_pairs):
        capturetables.rows(table(found))


def _made(source: random.Random) -> bytes:
    return mutate.havoc(source, _seeds(), (b"\x0a\x0d\x0d\x0a", b"\xd4\xc3\xb2\xa1", b"\0" * 16))


TARGETS = (Target(name="captures", make=_made, read=_read, ours=(OrchError,), share=100, mib=400, warm=flowtable.warm),)
