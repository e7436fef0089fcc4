"""Files of one capture that tcpdump rotated: which come first, by the instants of their packets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.analysis.capture.files import pcap
from orchestrator.analysis.capture.stages import program
from orchestrator.core.errors import CaptureError

_LOOK_BYTES = 1 << 12


def first_stamp(path: Path) -> int | None:
    """When the first packet of a file was captured, in nanoseconds; None when there is none.

    CaptureError when it cannot be read.
    """
    with pcap.opened(path, piece_bytes=_LOOK_BYTES) as file:
        for piece in file.pieces():
            return piece.said(program.OPENING_NS)
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
