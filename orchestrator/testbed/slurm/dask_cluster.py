"""Runs a Dask cluster in a Slurm job: the scheduler in this process, and by one srun a worker on each node.

A worker is `python -m orchestrator.testbed.slurm.dask_cluster`, with `WorkerSettings` as its input. All of it ends with
the scheduler's process: workers end with their connection to it, however that ends, or where they find none within
`DEATH_S`, and srun ends with the last of them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import IO, Any

from orchestrator.core.errors import TestbedError
from orchestrator.testbed.slurm import job as jobs
from orchestrator.testbed.slurm.job import SlurmJob
from orchestrator.testbed.slurm.testbed import ended, srun_argv, started

UP_S = 120.0  # for workers on all nodes to be there
END_S = 10.0  # for srun to end once the scheduler has
DEATH_S = 30.0  # after which a worker without a scheduler ends
_LOOK_S = 0.5
_SAID_BYTES = 4096
LOOPBACK = "127.0.0.1:0"  # where Dask's HTTP server listens, which cannot be left out, and which serves nothing
PLAIN: Mapping[str, Any] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The scheduler's address, and the TLS credentials of either side: fields of `distributed.Security`, in PEM."""

    host: str
    port: int
    tls: Mapping[str, str]


@contextmanager
def scheduler() -> Iterator[Any]:
    """Run a cluster of `distributed` with a worker on each node of this process's job, until the block ends.

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
        program = (sys.executable, "-m", "orchestrator.testbed.slurm.dask_cluster")
        argv = srun_argv(job, job.nodes, program, name="orch-dask")
        step = started(argv, encoded_settings(WorkerSettings(host=host, port=port, tls=tls)), said)
        over = threading.Event()
        threading.Thread(target=_watch, args=(step, cluster, over), name="srun", daemon=True).start()
        try:
            _wait(cluster, len(job.nodes), step, lambda: _tail(said))
            yield cluster
        finally:
            over.set()
            cluster.close()
            ended(step, END_S)


def _own_address(job: SlurmJob) -> str:
    """Return this machine's address on the way to the job's nodes; loopback where there is no other node than this."""
    addresses = [own_address(jobs.address(node)) for node in job.nodes]
    return next((address for address in addresses if not address.startswith("127.")), addresses[0])


def _wait(cluster: Any, count: int, step: subprocess.Popen[bytes], tail: Callable[[], str]) -> None:
    """Wait until every node's worker is there; TestbedError where one will not come."""
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
    """End the scheduler once srun, and with it all workers, has ended: else its clients would wait for workers."""
    step.wait()
    if not over.is_set():
        cluster.close()


def _tail(said: IO[bytes]) -> str:
    size = said.seek(0, 2)
    said.seek(max(0, size - _SAID_BYTES))
    return said.read().decode(errors="replace")


def own_address(host: str, port: int = 9) -> str:
    """Return this machine's address on the way to another host; nothing is sent."""
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as way:
        way.connect(place)
        return str(way.getsockname()[0])


async def work(settings: WorkerSettings) -> None:
    """Run a worker with as many threads as the step has processors here, until the scheduler is gone."""
    import dask
    from distributed import Security, Worker

    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    with dask.config.set(PLAIN):
        folder = tempfile.mkdtemp(prefix="orch-dask-")
        worker = Worker(
            f"tls://{host}:{settings.port}",
            host=own_address(settings.host),
            dashboard_address=LOOPBACK,
            nthreads=int(os.environ["SLURM_CPUS_ON_NODE"]),
            memory_limit=0,
            local_directory=folder,
            death_timeout=DEATH_S,
            security=Security(require_encryption=True, **settings.tls),
        )
        shutil.rmtree(folder)  # for what memory does not hold, which has no limit here: a killed worker leaves none
        async with worker:
            await worker.finished()


def main() -> int:
    import msgspec

    settings = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerSettings)
    try:
        asyncio.run(work(settings))
    except ImportError as error:
        print(f"{sys.executable} has no package {error.name}", file=sys.stderr)
        return 1
    return 0


def encoded_settings(settings: WorkerSettings) -> bytes:
    """Return a worker's input: its encoded settings."""
    import msgspec

    found: dict[str, Any] = asdict(settings)
    return msgspec.json.encode(found)


if __name__ == "__main__":
    sys.exit(main())
