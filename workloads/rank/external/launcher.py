"""Run an external launcher, torchrun or srun, while its job lives; the arguments are the launcher's command."""

from __future__ import annotations

import sys

from ..mpi.mpirun import environment, keep


def main() -> None:
    keep(sys.argv[1:], environment())
