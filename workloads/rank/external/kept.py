"""Keeps a launcher of others, torchrun or srun, while its job lives; its arguments are the launcher's command."""

from __future__ import annotations

import sys

from ..mpi.open_mpi import environment, keep


def main() -> None:
    keep(sys.argv[1:], environment())
