"""Peak memory of the controller over the bytes of captures, of those that stay on their hosts and that come home."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator

from orchestrator.core.deadline import Deadline
from orchestrator.parts.shared import capture_files
from tests.bench import local, packets, size
from tests.bench.commands import INVALID, CommandError
from tests.bench.figure import Figure, Settings
from tests.helpers.fleet import Fleet, fleet, light

HOSTS, FILES = 4, 10  # files of each host
STAYING_GB, HOME_GB = (0.0, 1.0, 10.0, 100.0), (0.0, 1.0, 8.0)
QUICK_GB = (0.0, 0.2)
_PACKETS = 1_000
_DAMAGE = struct.pack("<IIII", 0, 0, 0xFFFFFFFF, 0)  # no packet is so long: what is behind it is hashed, but not read


def measure(settings: Settings) -> Iterator[Figure]:
    """Whole runs of four hosts, beside whose captures others are laid: few packets, damage, and a hole to their size.

    Hosts reduce and hash those that stay; those that come home are fetched, and fill the disk for as long.
    """
    for stay, sizes in ((True, STAYING_GB), (False, HOME_GB)):
        for gigabytes in QUICK_GB if settings.quick else sizes:
            folder = settings.scratch / f"{gigabytes:g}-{stay:d}"
            with local.machine_to_ourselves(), fleet(HOSTS, folder) as up:
                peak = _peak(up, gigabytes * 1e9, stay=stay)
            what = f"{gigabytes:g} GB of captures that {'stay' if stay else 'come home'}: peak memory of the controller"
            yield Figure(what=what, unit="MB", values=(peak / 1e6,), against="goal", reference=(size.MEMORY_GOAL_MB,))


def _peak(up: Fleet, total: float, *, stay: bool) -> int:
    """What the controller holds at most, in bytes, of a run whose captures have so many."""
    data = {**light(up.hosts, iterations=20), "collect": ["tcpdump"], "captures": {"stay": stay}}
    argv, peaks, results = size.command(up, up.files(data, up.inventory(jump=False)))
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as orch:
        try:
            Deadline.after(size.RUN_S).poll(
                lambda: "window" in dict(size.phases(size.events(results))), every_s=0.1, waiting_for="the window"
            )
            _lay(up, int(total / HOSTS / FILES))
            status = orch.wait(size.RUN_S)
        finally:
            orch.terminate()
    (manifest,) = (json.loads(path.read_bytes()) for path in results.glob("*/*/manifest.json"))
    held = [one for one in manifest["stayed" if stay else "artifacts"] if capture_files.FILE in one["path"]]
    if status not in {0, INVALID} or sum(one["bytes"] for one in held if one["sha256"]) < total:
        raise CommandError(f"{len(held)} captures were kept, of a run that {manifest['outcome']}: {manifest['error']}")
    return int(json.loads(peaks.read_bytes())["peak_bytes"])


def _lay(up: Fleet, file_bytes: int) -> None:
    """Lay files of so many bytes beside the captures of each host, whose file system they do not fill."""
    few = packets.write(up.folder / "few.pcap", _PACKETS, flows=50)
    with few.open("ab") as file:
        file.write(_DAMAGE)
    for host in up.hosts:
        line = (
            f"for folder in /run/orch/runs/*/tcpdump.{host}; do for number in $(seq {FILES}); do "
            f"cp {few} $folder/{capture_files.FILE}$number; "
            f"truncate -s '>{file_bytes}' $folder/{capture_files.FILE}$number; done; done"
        )
        subprocess.run(up.on(host, ["sh", "-c", line]), check=True, stdin=subprocess.DEVNULL, timeout=size.RUN_S)
