"""Processes that read captures of many flows and many packets, beside nfpcapd and capinfos in the same minutes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench import packets
from tests.bench.commands import ROOT, CommandError, call
from tests.bench.figure import Figure, Settings

OURS, NFPCAPD, CAPINFOS = "orch capture", "nfpcapd", "capinfos -c"
FEW = 50  # flows
FLOWS = (10_000, 200_000, 1_000_000)
WITHIN_S = 600.0
_SMALL = 1_000  # packets of a capture that takes no time to read


def measure(settings: Settings) -> Iterator[Figure]:
    """Seconds and peak memory over packets and over flows; what twenty million packets take beyond five.

    Files are in the page cache; programs take turns. nfpcapd writes its own files of flows, without bins of time.
    """
    count, turns = settings.times(5_000_000, 200_000), settings.times(5, 2)
    shapes = [*((number, FEW) for number in (count // 5, count, 4 * count)), *((count, flows) for flows in FLOWS)]
    for number, flows in shapes:
        path = packets.write(settings.scratch / "one.pcap", number, flows=flows)
        axes = [("flows", float(flows))] if number == count else []
        axes += [("packets", float(number))] if flows == FEW else []
        yield from _beside_peers(path, f"{number / 1e6:g} million packets, {flows:,} flows", turns, axes)
        path.unlink()
    yield from _slopes(settings, count, turns)
    small = packets.write(settings.scratch / "small.pcap", _SMALL, flows=FEW)
    yield Figure(
        what=f"{OURS} of {_SMALL:,} packets",
        unit="s",
        values=tuple(_taken(_ours(small))[0] for _ in range(2 * turns)),
        against="goal",
        reference=(0.4,),
    )


def _beside_peers(path: Path, what: str, turns: int, axes: Sequence[tuple[str, float]]) -> Iterator[Figure]:
    seconds: dict[str, list[float]] = {}
    peaks: dict[str, list[float]] = {}
    for _ in range(turns):
        for name, argv in {OURS: _ours(path), f"{OURS} --parquet": _tables(path), **_peers(path)}.items():
            took, peak = _taken(argv)
            seconds.setdefault(name, []).append(took)
            peaks.setdefault(name, []).append(peak / 1e6)
    for name in (OURS, f"{OURS} --parquet"):
        for peer in _peers(path):
            yield Figure(
                what=f"{name}, {what}",
                unit="s",
                values=tuple(seconds[name]),
                against=peer,
                reference=tuple(seconds[peer]),
                over=tuple((axis, place, name) for axis, place in axes),
            )
        yield Figure(
            what=f"{name}, {what}: memory", unit="MB", values=tuple(peaks[name]), against="goal", reference=(400.0,)
        )
    if NFPCAPD in peaks:
        yield Figure(what=f"{NFPCAPD}, {what}: memory", unit="MB", values=tuple(peaks[NFPCAPD]))


def _slopes(settings: Settings, count: int, turns: int) -> Iterator[Figure]:
    """Millions of packets a second, of what is read beyond the first `count`; of one file and of four."""
    parts = [
        packets.write(settings.scratch / f"set.pcap{number}", count, flows=FEW, first=number * count)
        for number in range(4)
    ]
    whole = packets.write(settings.scratch / "whole.pcap", 4 * count, flows=FEW)
    ways: dict[str, tuple[list[str], list[str]]] = {
        "one file": (_ours(parts[0]), _ours(whole)),
        "a rotated set": (_ours(parts[0]), _ours(*parts)),
    }
    ways |= {name: (argv, _peers(whole)[name]) for name, argv in _peers(parts[0]).items()}
    rates: dict[str, list[float]] = {}
    for _ in range(turns):
        for name, (few, many) in ways.items():
            beyond = _taken(many)[0] - _taken(few)[0]
            rates.setdefault(name, []).append(3 * count / max(beyond, 1e-3) / 1e6)
    for file in (*parts, whole):
        file.unlink()
    for kind, against in (("a rotated set", "one file"), *(("one file", peer) for peer in _peers(whole))):
        yield Figure(
            what=f"slope over packets: {kind}",
            unit="Mpackets/s",
            values=tuple(rates[kind]),
            against=against,
            reference=tuple(rates[against]),
        )


def _ours(*paths: Path) -> list[str]:
    return [sys.executable, "-m", "orchestrator.cli.main", "capture", *(f"all={path}" for path in paths)]


def _tables(path: Path) -> list[str]:
    return [*_ours(path), "--parquet", str(path.with_suffix(".tables"))]


def _peers(path: Path) -> dict[str, list[str]]:
    """What of these programs is installed."""
    flows = path.with_suffix(".nfcapd")
    flows.mkdir(exist_ok=True)
    known = {NFPCAPD: ["nfpcapd", "-r", str(path), "-l", str(flows)], CAPINFOS: ["capinfos", "-c", str(path)]}
    return {name: argv for name, argv in known.items() if shutil.which(argv[0])}


# A program's ru_maxrss counts what the process was before it became that program: this one is small.
_TAKEN = """
import os, sys, time
quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
began = time.perf_counter()
process = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
_, status, used = os.wait4(process, 0)
print(time.perf_counter() - began, used.ru_maxrss * 1024, os.waitstatus_to_exitcode(status))
"""


def _taken(argv: Sequence[str]) -> tuple[float, int]:
    """Seconds and peak memory (bytes) of a whole process."""
    said = call([sys.executable, "-I", "-S", "-c", _TAKEN, *argv], within_s=WITHIN_S, cwd=ROOT).stdout
    seconds, peak, status = said.split()
    if int(status):
        raise CommandError(f"{' '.join(argv)}: status {status}")
    return float(seconds), int(peak)
