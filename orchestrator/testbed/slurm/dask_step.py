"""A Dask cluster in a job of Slurm: the scheduler in this process, and by one srun a worker on each node.

All of it ends with this process: workers end with their connection to the scheduler, and srun with the last of them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from orchestrator.core.errors import TestbedError
from orchestrator.testbed.slurm import job as jobs
from orchestrator.testbed.slurm.dask_worker import LOOPBACK, PLAIN, Settings, encoded, own_address
from orchestrator.testbed.slurm.job import Job
from orchestrator.testbed.slurm.step import ended, srun_argv, started

UP_S = 120.0  # for workers on all nodes to be there
END_S = 10.0  # for srun to end once the scheduler has
_LOOK_S = 0.5
_SAID_BYTES = 4096


@contextmanager
def scheduler() -> Iterator[Any]:
    """A `LocalCluster` of distributed's with a worker on each node of this process's job, and nothing after the block.

    It listens by TLS alone, with a key made for it, on this machine's address in the network of the job's nodes.
    ImportError without `distributed`; TestbedError outside of an allocation, or where a worker does not come up.
    """
    import dask
    from distributed import LocalCluster, Security

    if not jobs.id_here():
        raise TestbedError(
            "--engine slurm: this is not inside an allocation of Slurm",
            hint="salloc -N 4 orch capture FILES --engine slurm",
        )
    job = jobs.current()
    host, security = _own_address(job), Security.temporary()
    with dask.config.set(PLAIN):
        cluster = LocalCluster(
            n_workers=0,
            processes=False,
            protocol="tls",
            host=host,
            scheduler_port=jobs.free_port(host, job.ports),
            dashboard_address=LOOPBACK,
            security=security,
        )
    port = int(cluster.scheduler_address.rpartition(":")[2])
    tls = {name: getattr(security, name) for name in ("tls_ca_file", "tls_worker_cert", "tls_worker_key")}
    with tempfile.TemporaryFile() as said, cluster:
        program = (sys.executable, "-m", "orchestrator.testbed.slurm.dask_worker")
        argv = srun_argv(job, job.nodes, program, name="orch-dask")
        step = started(argv, encoded(Settings(host=host, port=port, tls=tls)), said)
        over = threading.Event()
        threading.Thread(target=_watch, args=(step, cluster, over), name="srun", daemon=True).start()
        try:
            _wait(cluster, len(job.nodes), step, lambda: _tail(said))
            yield cluster
        finally:
            over.set()
            cluster.close()
            ended(step, END_S)


def _own_address(job: Job) -> str:
    """This machine's address on the way to the job's nodes; loopback where there is no other node than this."""
    addresses = [own_address(jobs.address(node)) for node in job.nodes]
    return next((address for address in addresses if not address.startswith("127.")), addresses[0])


def _wait(cluster: Any, count: int, step: subprocess.Popen[bytes], tail: Callable[[], str]) -> None:
    """Wait until every node's worker is there; TestbedError where one is not to come."""
    until = time.monotonic() + UP_S
    while len(cluster.scheduler_info["workers"]) < count:
        words = tail()
        if step.poll() is not None or " has no package " in words or time.monotonic() > until:
            raise TestbedError(
                f"--engine slurm: {len(cluster.scheduler_info['workers'])} of {count} nodes have a worker",
                tail=words,
                hint=f"pip install 'orch-testbed[dask]' for {sys.executable} on every node",
            )
        time.sleep(_LOOK_S)


def _watch(step: subprocess.Popen[bytes], cluster: Any, over: threading.Event) -> None:
    """End the scheduler once srun has ended, and with it all workers: else what is asked of it would wait for more."""
    step.wait()
    if not over.is_set():
        cluster.close()


def _tail(said: IO[bytes]) -> str:
    size = said.seek(0, 2)
    said.seek(max(0, size - _SAID_BYTES))
    return said.read().decode(errors="replace")
