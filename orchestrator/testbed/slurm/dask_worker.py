"""A Dask worker on a node of a job: `python -m orchestrator.testbed.slurm.dask_worker`, with `Settings` as its input.

It ends with its connection to the scheduler, however that ends, or where it finds none within `DEATH_S`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

DEATH_S = 30.0
LOOPBACK = "127.0.0.1:0"  # where Dask's HTTP server listens, which cannot be left out, and which serves nothing
PLAIN: Mapping[str, Any] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The scheduler's address, and what either side proves itself by: fields of `distributed.Security`, in PEM."""

    host: str
    port: int
    tls: Mapping[str, str]


def own_address(host: str, port: int = 9) -> str:
    """This machine's address on the way to another host; nothing is sent."""
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as way:
        way.connect(place)
        return str(way.getsockname()[0])


async def work(settings: Settings) -> None:
    """Be a worker with as many threads as the step has processors here, until the scheduler is gone."""
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

    settings = msgspec.json.decode(sys.stdin.buffer.read(), type=Settings)
    try:
        asyncio.run(work(settings))
    except ImportError as error:
        print(f"{sys.executable} has no package {error.name}", file=sys.stderr)
        return 1
    return 0


def encoded(settings: Settings) -> bytes:
    """What a worker reads."""
    import msgspec

    found: dict[str, Any] = asdict(settings)
    return msgspec.json.encode(found)


if __name__ == "__main__":
    sys.exit(main())
