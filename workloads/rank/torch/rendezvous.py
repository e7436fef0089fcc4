"""How the ranks of a training on torch.distributed meet."""

from __future__ import annotations

import errno
import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

from ..base.lifecycle import fail, first_line
from .context import Settings

if TYPE_CHECKING:
    import torch


def connect(config: Settings, *, rank: int, world: int, device: torch.device) -> None:
    """Meet the other ranks; fail with one line when that does not work within `rendezvous_s`."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import TCPStore

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    listener = listening(address, port) if rank == 0 else None
    try:
        store = TCPStore(
            address,
            port,
            world,
            rank == 0,
            timeout=timedelta(seconds=config["rendezvous_s"]),
            wait_for_workers=True,
            # The store owns the descriptor from here on, and closes it.
            master_listen_fd=None if listener is None else listener.detach(),
        )
        dist.init_process_group(
            config["backend"],
            store=store,
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=config["collective_s"]),
            device_id=device if config["backend"] == "nccl" else None,
        )
    except RuntimeError as error:
        fail(f"could not meet the other ranks at {address}:{port}: {first_line(error)}")


def listening(address: str, port: int) -> socket.socket:
    """The socket of rank 0's store: it knows no passwords, and by itself would listen on every address of the host."""
    try:
        family, *_ = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server((address, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            fail(f"port {port} is in use by another program; the ranks need it to meet at {address}")
        fail(f"could not listen for the other ranks at {address}:{port}: {error.strerror}")
