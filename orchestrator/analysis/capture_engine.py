"""Read captures on the workers of a Dask cluster, or of one made for it in a Slurm allocation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Executor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import metadata
from typing import Any

from orchestrator.core.errors import ConfigError, TestbedError
from orchestrator.testbed.slurm import dask_cluster

CONNECT_S = 10.0
SLURM = "slurm"
_ADDRESS = re.compile(r"(tcp|tls|ucx|ws|wss)://\S+")
_PACKAGE = "orch-testbed"


@contextmanager
def engine(address: str) -> Iterator[Executor]:
    """Connect to the Dask scheduler at an address, such as `tcp://head:8786`; yield its workers as an executor.

    `slurm`: those of a scheduler that is here for as long as the block, one on each node of this process's allocation.

    They find files under the paths that they are called by here, and have this package. ConfigError for what is no
    address or where `distributed` is missing, TestbedError for a scheduler that cannot be reached, has no such workers,
    or loses them.
    """
    if address == "hosts":
        raise ConfigError(
            "--engine hosts: hosts read the captures of runs on them, as soon as these are made; accepted: "
            "tcp://HOST:PORT of a Dask scheduler, slurm",
            hint="say `captures: {stay: true}` in the experiment",
        )
    if address != SLURM and not _ADDRESS.fullmatch(address):
        raise ConfigError(
            f"--engine {address}: no address of a Dask scheduler; accepted: such as tcp://head:8786, "
            "or slurm in an allocation"
        )
    try:
        from distributed import KilledWorker
    except ImportError:
        raise ConfigError("--engine needs the package distributed", hint="pip install 'orch-testbed[dask]'") from None
    with _scheduler(address) as scheduler, _client(scheduler, address) as client:
        _refuse_others(client.run(metadata.version, _PACKAGE, on_error="return"), address)
        try:
            yield client.get_executor(pure=False)
        except (KilledWorker, CancelledError) as error:
            raise TestbedError(f"--engine {address}: its workers were lost while they read: {error}") from None


def _scheduler(address: str) -> AbstractContextManager[Any]:
    """Return what a Dask client connects to."""
    return dask_cluster.scheduler() if address == SLURM else nullcontext(address)


def _client(scheduler: Any, address: str) -> Any:
    from distributed import Client

    try:
        return Client(scheduler, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:  # TLS without its certificates is a TypeError
        raise TestbedError(f"--engine {address}: no Dask scheduler answers: {error}") from None


def _refuse_others(versions: Mapping[str, Any], address: str) -> None:
    """Raise TestbedError where there is no worker, or one without this version of orch."""
    if not versions:
        raise TestbedError(f"--engine {address}: the scheduler has no workers", hint="dask worker ADDRESS on each host")
    mine = metadata.version(_PACKAGE)
    for worker, version in sorted(versions.items()):
        if version != mine:
            has = f"version {version}" if isinstance(version, str) else "none"
            raise TestbedError(
                f"--engine {address}: the worker {worker} has {has} of {_PACKAGE}, and this is {mine}",
                hint=f"pip install {_PACKAGE}=={mine} for its interpreter",
            )
