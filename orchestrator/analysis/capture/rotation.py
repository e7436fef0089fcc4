"""Files of one capture that tcpdump rotated: which come first, by the instants of their packets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.analysis.capture import framing, pcap
from orchestrator.core.errors import CaptureError


def first_stamp(path: Path) -> int | None:
    """When the first packet of a file was captured, in nanoseconds; None when there is none.

    CaptureError when it cannot be read.
    """
    with pcap.packets_of(path, framing.empty_frames(1)) as file:
        for batch in file.batches():
            return int(batch.frames[0, framing.STAMP])
    return None


def in_order(files: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """The files that can be read, by the instant of their first packet, since a ring of files wraps its names.

    Those without a packet come last. With it, what kept the others from being read. One file alone is not looked into,
    so that it may be a pipe.
    """
    if len(files) == 1:
        return list(files), []
    problems, stamped, without = [], [], []
    for file in files:
        try:
            stamp = first_stamp(file)
        except CaptureError as error:
            problems.append(error.message)
        else:
            if stamp is None:
                without.append(file)
            else:
                stamped.append((stamp, file))
    return [file for _, file in sorted(stamped)] + without, problems
