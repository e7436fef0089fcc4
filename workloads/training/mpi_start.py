"""Runs mpirun, whose ranks are stubs for processes that stand already, and whose daemons are asked for by our agent.

Its arguments are mpirun's command. Of the environment it needs what `mpi_agent.py` and `mpi_stub.py` do.
"""

from __future__ import annotations

import os
import sys

from mpi_keep import environment, keep


def main() -> None:
    agent = f"{sys.executable} mpi_agent.py"
    keep(sys.argv[1:], {**environment(), "MPI_RUN_KEY": os.environ["MPI_RUN_KEY"], "OMPI_MCA_plm_rsh_agent": agent})


if __name__ == "__main__":
    main()
