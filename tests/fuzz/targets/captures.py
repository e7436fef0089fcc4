"""Captures, plain and packed, with tunnels and interfaces: tables and text come out whose sums hold, or a CaptureError.

Most are made of whole files; some of packets within each other's tunnels on several interfaces, cut and mutated, since
damage to a file seldom leads to tunnels that fit into each other.
"""

from __future__ import annotations

import functools
import gzip
import random
import zlib
from pathlib import Path

import pyarrow as pa

from orchestrator.analysis.capture import capture_sets, flowtable, trace_tables
from orchestrator.analysis.capture.trace import Trace
from orchestrator.cli import capture
from orchestrator.core.errors import OrchError
from tests.fuzz import mutate
from tests.fuzz.target import Target
from tests.helpers import made_packets as craft
from tests.helpers.odd_packets import NASTY, ODD, connection

DATA = Path(__file__).parents[2] / "data" / "pcap"


@functools.cache
def _seeds() -> tuple[bytes, ...]:
    samples = [path.read_bytes() for path in sorted(DATA.glob("*.pcap*")) if path.suffix != ".json"]
    plain = [*NASTY.values(), *ODD.values(), *samples]
    packed = [gzip.compress(plain[0]), bytes(pa.Codec("zstd").compress(plain[-1], asbytes=True))]
    return (*plain, *packed)


def _read(data: bytes, folder: Path) -> None:
    path = folder / "x"
    path.write_bytes(data)
    one = capture_sets.CaptureSet(name="x", files=(path,))
    settings = {"bin_ns": (1000, 10**6)[zlib.crc32(data) % 2], "bin_budget": 500}
    found = capture_sets.read_set(one, **settings)
    again = capture_sets.read_set(one, **settings, piece_bytes=1 << 10)
    _check(capture_sets.merged([found, again]))


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
    inside = flows.tunnel > 0
    assert (flows.outer_src[~inside] == -1).all()
    assert (flows.outer_src[inside] >= 0).all()
    assert sum(part.packets for part in point.tunnels) == flows.packets[inside & (flows.point == 0)].sum()
    assert not point.interfaces or sum(part.packets for part in point.interfaces) == point.packets
    for table in (trace_tables.flows, trace_tables.pairs, trace_tables.queue_pairs):
        trace_tables.rows(table(found))
    assert capture.as_text(found, top=10)
    assert "".join(capture.as_json(found))


_INSIDE_OF = (  # frames to frames, of whatever they hold
    lambda one: craft.datagram(craft.vxlan(one, network=len(one) % 3), 4789),
    lambda one: craft.datagram(craft.vxlan(one[14:], flags=0x0C, following=1), 4790),
    lambda one: craft.datagram(craft.geneve(one), 6081),
    lambda one: craft.ethernet(craft.ip4(craft.gre(one, 0x6558, key=len(one) << 12), protocol=47, **craft.OUTSIDE)),
    lambda one: craft.ethernet(craft.ip4(craft.gre(one[14:], number=1, checksum=True), protocol=47)),
    lambda one: craft.ethernet(craft.ip4(craft.gre(b"\x10\0\0\x05" + bytes(4) + one, 0x88BE, number=1), protocol=47)),
    lambda one: craft.ethernet(craft.ip4(one[14:], protocol=4, **craft.OUTSIDE)),
    lambda one: craft.ethernet(craft.ip6(one[14:], following=4), 0x86DD),
    lambda one: craft.ethernet(craft.labels(one[14:], 7, 8), 0x8847),
    lambda one: craft.ethernet(craft.labels(bytes(4) + one, 7), 0x8847, tags=((0x9100, 3),)),
    lambda one: craft.ethernet(craft.pppoe(one[14:]), 0x8864),
    lambda one: craft.datagram(craft.gtp(one[14:], number=1, extensions=b"\x85\x01\0\0\0"), 2152),
    lambda one: craft.ethernet(b"\0\0\0\x09" + one, 0x88E7),
)


def _layered(source: random.Random) -> bytes:
    """A file of packets in tunnels, on several interfaces."""
    frames = [craft.ethernet(one) for one in connection(size=source.choice((0, 10, 1400)))]
    for _ in range(source.randrange(1, 11)):
        frames = list(map(source.choice(_INSIDE_OF), frames))
    torn = [bytearray(one[: source.randrange(len(one) + 1)] if source.random() < 0.3 else one) for one in frames]
    for one in torn:
        for _ in range(source.randrange(3) if one else 0):
            one[source.randrange(min(len(one), 200))] = source.choice(
                (0, 4, 6, 0x45, 0x60, 0xFF, source.randrange(256))
            )
    kind = source.randrange(3)
    if kind == 0:
        return craft.pcap([bytes(one) for one in torn], snap=source.choice((60, 96, 160, 65535)))
    if kind == 1:
        return craft.patched([bytes(one) for one in torn], index=source.randrange(1 << 32))
    data = craft.section() + b"".join(craft.interface(name=name) for name in ("eth0", "", source.choice("ab"), ""))
    for number, one in enumerate(torn):
        data += craft.enhanced(10**6 + number * source.randrange(20_000), bytes(one), source.randrange(5))
    return data


def _made(source: random.Random) -> bytes:
    if source.random() < 0.4:
        return _layered(source)
    return mutate.havoc(source, _seeds(), (b"\x0a\x0d\x0d\x0a", b"\xd4\xc3\xb2\xa1", b"\0" * 16))


TARGETS = (Target(name="captures", make=_made, read=_read, ours=(OrchError,), share=100, mib=400, warm=flowtable.warm),)
