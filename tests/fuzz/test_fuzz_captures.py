"""Mutated capture files: nothing but the project's own errors may come out, and every sum must hold.

So many, the same each time; ORCH_FUZZ_SECONDS goes on for longer, and ORCH_FUZZ_SEED takes another way.
"""

from __future__ import annotations

import gzip
import os
import random
import struct
import time
from pathlib import Path

import pyarrow as pa
import pytest

from orchestrator.analysis import capturesets, capturetables
from orchestrator.errors import OrchError
from tests.nasty import NASTY

DATA = Path(__file__).parents[1] / "data" / "pcap"
SECONDS = float(os.environ.get("ORCH_FUZZ_SECONDS", "0"))
AT_LEAST = 600
SEED = int(os.environ.get("ORCH_FUZZ_SEED", "1"))
ODD = (0, 1, 2, 3, 4, 7, 8, 11, 12, 13, 16, 20, 28, 127, 128, 255, 256, 0x7FFF, 0xFFFF, 262_144, 262_145, 0x7FFFFFFF,
       0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)  # fmt: skip


def samples():
    plain = [*NASTY.values(), *(path.read_bytes() for path in sorted(DATA.glob("*.pcap")))]
    packed = [gzip.compress(plain[0]), bytes(pa.Codec("zstd").compress(plain[-1], asbytes=True))]
    return [*plain, *packed]


def mutated(data, source):
    """The file with a few bytes, words or stretches of it changed, moved, repeated, cut out or cut off."""
    data = bytearray(data)
    for _ in range(source.randint(1, 8)):
        at = source.randrange(len(data) + 1)
        if source.random() < 0.3:
            at = min(at, 120)
        match source.randrange(7):
            case 0:
                data[at : at + 1] = bytes([source.randrange(256)])
            case 1:
                data[at : at + 4] = struct.pack(source.choice("<>") + "I", source.choice(ODD))
            case 2:
                data[at : at + 2] = struct.pack(source.choice("<>") + "H", source.choice(ODD) & 0xFFFF)
            case 3:
                del data[at : at + source.randint(1, 40)]
            case 4:
                data[at:at] = data[at : at + source.randint(1, 200)]
            case 5:
                data[at:at] = source.randbytes(source.randint(1, 40))
            case _ if source.random() < 0.3:
                del data[at:]
            case _:
                data[at : at + 1] = bytes([data[at] ^ 1 << source.randrange(8)]) if at < len(data) else b""
    return bytes(data)


def test_mutated_captures(tmp_path):
    source, files, path = random.Random(SEED), samples(), tmp_path / "x"  # noqa: S311
    tried = 0
    end = time.monotonic() + SECONDS
    while tried < AT_LEAST or time.monotonic() < end:
        tried += 1
        path.write_bytes(mutated(source.choice(files), source))
        began = time.monotonic()
        try:
            found = capturesets.read_set(
                capturesets.CaptureSet(name="x", files=(path,)), bin_ns=source.choice((1000, 10**6)), bin_budget=500
            )
            found = capturesets.merged([found, found])
            check(found)
        except OrchError:
            continue
        except Exception:  # noqa: BLE001 - which one it is tells the kept file
            kept = Path(os.environ.get("ORCH_FUZZ_KEEP", str(tmp_path)), f"crash-{SEED}-{tried}")
            kept.write_bytes(path.read_bytes())
            pytest.fail(f"not one of the project's own errors; the file is kept as {kept}")
        assert time.monotonic() - began < 60, "it does not end"
    print(f"{tried} files")


def check(found):
    assert len({point.packets for point in found.points}) == 1
    point, flows, bins = found.points[0], found.flows, found.bins
    assert flows.packets.sum() == bins.packets.sum() == 2 * point.packets
    assert flows.wire_bytes.sum() == bins.wire_bytes.sum() == 2 * point.wire_bytes
    assert flows.payload_bytes.sum() == bins.payload_bytes.sum()
    assert flows.repeated_bytes.sum() == bins.repeated_bytes.sum() <= flows.payload_bytes.sum()
    for name in ("packets", "payload_bytes", "retransmitted", "out_of_order", "window_bytes"):
        assert (getattr(flows, name) >= 0).all()
    assert (flows.first_ns <= flows.last_ns).all()
    assert found.queue_pairs.opcodes.sum() == found.queue_pairs.packets.sum()
    assert (found.queue_pairs.sizes.sum(axis=1) == found.queue_pairs.messages).all()
    for table in (capturetables.flows, capturetables.pairs, capturetables.queue_pairs):
        capturetables.rows(table(found))
