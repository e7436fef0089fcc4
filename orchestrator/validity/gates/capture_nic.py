"""Gate `capture-nic`: what a capture saw at a port is what the port's own counters say, packets and bytes.

A capture sees packets before the device cuts them (TSO) and after they were joined (GRO, LRO), with one set of headers
for many frames. What the counters see differs by device: some count what they are handed (virtio, ena, a veth that
sends), some frames as they are on the wire (mlx5, ixgbe, ice, i40e), with their checksums (e1000e) or without
Ethernet's headers (a veth that receives with GRO), and some frames with the bytes that they are handed (netvsc). A
window is judged by one of these readings alone. Of a local testbed's veth it is known; a meter sees packets before its
queue, which may cut them, so that there the nearer one of packets and frames counts. Of any other device it is the
one by which packets and bytes agreed best, and far more closely than the limit, when `orch doctor` measured it
(`manifest.device_readings`) and in the run's first seconds: until a fifth of its first window is over. Where one of
these alone tells, it judges; where they differ the gate says so. Where neither tells and too few packets passed in the
first seconds, a window that no reading explains fails, and of another one the gate remarks that it cannot tell. Where
no reading agreed, as of a device that counts some packets joined and some not, it cannot be told what is missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from orchestrator.core.fields import Share
from orchestrator.store.manifests.records import DeviceReading, Gate
from orchestrator.validity.declaration import GateSpec, Limit, verdict
from orchestrator.validity.window import MeasuredWindow, PortBytes

NAME = "capture-nic"
ORDER = 80
QUIET_BYTES = 1e6  # below it a direction of a port is too quiet to compare
READ_FRAMES = 1000  # least number by which a device is read
READ_OFF = 0.002  # largest difference at that: checksums are 0.26 % of full frames
ALIKE = 0.0005  # of what is due by two readings, below which they are one
HANDED, FRAMES = "packets as they are handed over", "frames"
Due = tuple[float, float]  # packets and bytes that a device counts for what was captured
READINGS: Mapping[str, Callable[[PortBytes], Due]] = MappingProxyType(
    {
        HANDED: lambda port: (port.packets, port.captured),
        FRAMES: lambda port: (port.frames, port.wire),
        "frames with their checksums": lambda port: (port.frames, port.wire + 4 * port.frames),
        "frames with all that stands between them": lambda port: (port.frames, port.wire + 24 * port.frames),
        "frames without Ethernet's headers": lambda port: (port.frames, port.wire - 14 * port.frames),
        "frames, and bytes as they are handed over": lambda port: (port.frames, port.captured),
    }
)
REMEDY = "the condition `offloads: off` has captures and counters see frames alike"
MOST_OFF = Limit(
    key="capture_nic",
    kind=Share,
    default=0.02,
    help="Largest difference between captured packets or bytes and the counters of the NIC.",
)
GATES = (
    GateSpec(
        name="capture-nic",
        passes="captured packets and bytes agree with the counters of the NIC",
        limit=MOST_OFF,
        remedy="Often a driver counts packets that it joined or will cut: use the condition `offloads: off`. It costs "
        "processor time for each frame. Where it is not known what a device counts, `orch doctor` measures it.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict for each direction of a port that is not quiet.

    Counters that were to be sampled, and of which nothing is known over the window, are a required gate's input lost.
    """
    limit = float(MOST_OFF.of(window.manifest.validity))
    local = window.manifest.topology.kind == "local"
    measured = {(one.node, one.port, one.direction): one for one in window.manifest.device_readings}
    for port in window.port_bytes:
        name = f"{port.node}:{port.port} {port.direction}"
        if math.isnan(port.captured):
            text = f"{name}: no whole capture to hold against the interface's counters"
            yield verdict("capture-nic", None, text, measured=math.nan, limit=limit, required=False)
        elif math.isnan(port.counted):
            text = f"{name}: no interface counters to hold the capture against"
            text += ", which were to be sampled" if port.counting else ""
            yield verdict("capture-nic", None, text, measured=math.nan, limit=limit, required=port.counting)
        elif max(port.counted, port.captured) >= QUIET_BYTES:
            known = _local(port) if local else _known(port, measured.get((port.node, port.port, port.direction)))
            yield _held(port, name, known, limit)


def readings(first: PortBytes | None) -> list[str]:
    """Return the readings by which a direction of a port agrees with its capture; none where too few packets passed."""
    if first is None or not _enough(first):
        return []
    due = {reading: count(first) for reading, count in READINGS.items()}
    known = [reading for reading in due if _agrees(first, due[reading], READ_OFF)]
    nearest = min(known, key=lambda reading: sum(map(abs, _off(first, due[reading]))), default=None)
    return [
        reading
        for reading in known
        if nearest and all(abs(a - b) <= ALIKE * b for a, b in zip(due[reading], due[nearest], strict=True))
    ]


class _Known(NamedTuple):
    """The readings that a device may have, and how that is known; `doubt` says what is wrong where it is not."""

    readings: list[str]
    whence: str = ""
    doubt: str = ""


LOCAL = _Known([HANDED])
FIRST_SECONDS = "the run's first seconds"


def _local(port: PortBytes) -> _Known:
    """Return the reading of a device of a local testbed."""
    if not port.metered:
        return LOCAL
    return _Known([min((HANDED, FRAMES), key=lambda one: sum(map(abs, _off(port, READINGS[one](port)))))])


def _known(port: PortBytes, measured: DeviceReading | None) -> _Known:
    """Return the readings of a direction by the run's first seconds and by what `orch doctor` measured."""
    own = readings(port.earlier)
    kept = [reading for reading in measured.counts if reading in READINGS] if measured else []
    doctor = f"`orch doctor` on {_day(measured.when_ns)}" if measured else ""
    if both := [reading for reading in own if reading in kept]:
        return _Known(both, f"{doctor} and {FIRST_SECONDS}")
    if own and kept:
        doubt = f"by {doctor} it counts {_words(kept)}, by {FIRST_SECONDS} {_words(own)}"
        return _Known(own + kept, doubt=f"{doubt}: run `orch doctor` again")
    if own or kept:
        return _Known(own or kept, FIRST_SECONDS if own else doctor)
    if port.earlier is not None and _enough(port.earlier):
        return _Known([], doubt=f"in {FIRST_SECONDS} no reading agrees with the capture")
    return _Known([], doubt=f"in {FIRST_SECONDS} too few packets passed")


def _day(when_ns: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(when_ns / 1e9))


def _words(some: list[str]) -> str:
    return " or ".join(some)


def _enough(first: PortBytes) -> bool:
    return max(first.frames, first.counted_packets) >= READ_FRAMES


def _held(port: PortBytes, name: str, known: _Known, limit: float) -> Gate:
    """Judge a direction by the readings that its device may have; where they differ in the window none is known.

    Where too few packets passed before the window, one that no reading explains fails.
    """
    unread = not known.readings and (port.earlier is None or not _enough(port.earlier))
    some = list(READINGS) if unread else known.readings
    agree = {_agrees(port, READINGS[reading](port), limit) for reading in some}
    if len(agree) != 1 or (unread and agree == {True}):
        why = known.doubt or f"by {known.whence} several readings agree with the capture"
        text = f"{name}: cannot tell what its device counts: {why}; let `orch doctor` measure it, measure a longer "
        text += f"warm-up, or {REMEDY}"
        return verdict("capture-nic", None, text, measured=math.nan, limit=limit, required=not unread)
    near = agree == {True}
    by = {reading: _off(port, READINGS[reading](port)) for reading in some}
    nearest = min(by, key=lambda reading: max(map(abs, by[reading])))
    packets, size = by[nearest]
    text = f"{name}: captured {port.captured / 1e6:.4g} MB"
    text += f" ({port.wire / 1e6:.4g} MB as frames)" if port.joined else ""
    text += f", the interface counted {port.counted / 1e6:.4g} MB ({size:+.1%})"
    text += f"; {packets:+.1%} of its packets" if not near and abs(packets) > abs(size) else ""
    text += f"; it counts {_words(some)}, by {known.whence}" if known.whence else ""
    text += f"; {known.doubt}" if known.doubt and not unread else ""
    text += f"; {REMEDY}" if port.joined and not near else ""
    return verdict("capture-nic", near, text, measured=max(packets, size, key=abs), limit=limit)


def _agrees(port: PortBytes, due: Due, limit: float) -> bool:
    """Return whether these packets and bytes are what was counted, but for the limit and what the edges leave open."""
    packets, size = due
    alike = abs(size - port.counted) <= limit * port.counted + port.edges
    known = not math.isnan(port.counted_packets) and (port.counted_packets > 0 or packets > 0)
    return alike and (
        not known or abs(packets - port.counted_packets) <= limit * port.counted_packets + port.packet_edges
    )


def _off(port: PortBytes, due: Due) -> tuple[float, float]:
    """Return by which share packets and bytes that are due differ from those that were counted."""
    packets, size = due
    of_packets = packets / port.counted_packets - 1 if port.counted_packets > 0 else 0.0
    return of_packets, size / port.counted - 1 if port.counted > 0 else math.inf
