"""How the ranks of a training on torch.distributed meet."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lifecycle import fail, first_line

if TYPE_CHECKING:
    import torch


def connect(config: dict[str, Any], *, rank: int, world: int, device: torch.device) -> None:
    """Meet the other ranks; fail with one line when that does not work within `rendezvous_s`."""
    import torch.distributed as dist

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        store = dist.TCPStore(
            address, port, world, rank == 0, timeout=timedelta(seconds=config["rendezvous_s"]), wait_for_workers=True
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
        if rank == 0 and "EADDRINUSE" in str(error):
            fail(f"port {port} is in use by another program; the ranks need it to meet at {address}")
        fail(f"could not meet the other ranks at {address}:{port}: {first_line(error)}")
