"""Stands in for `all_reduce_perf` of NVIDIA's nccl-tests where no GPUs are: takes its arguments, prints its lines.

Ranks meet by the real Open MPI, and gloo carries the messages. None of what it tells shows that NCCL works.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from mpi4py import MPI

ROW = "{:12}  {:12}  {:>8}  {:>6}  {:6}  {:7.2f}  {:6.2f}  {:6.2f}  {:6.0f}  {:7.2f}  {:6.2f}  {:6.2f}  {:6.0f}"


def measured(mpi: MPI.Intracomm, size: int, iterations: int, checks: int, *, in_place: bool) -> tuple[float, ...]:
    """Microseconds, algorithm and bus bandwidth in GB/s, and wrong values."""
    message = torch.ones(size // 4)

    def once() -> torch.Tensor:
        result = message if in_place else message.clone()
        dist.all_reduce(result)
        return result

    once()
    mpi.Barrier()
    begin = time.perf_counter()
    for _ in range(iterations):
        once()
    seconds = mpi.allreduce((time.perf_counter() - begin) / iterations) / mpi.size
    wrong = 0
    for _ in range(checks):
        message.fill_(1.0)
        wrong += mpi.allreduce(int((once() != mpi.size).sum()))
    return seconds * 1e6, size / seconds / 1e9, 2 * (mpi.size - 1) / mpi.size * size / seconds / 1e9, wrong


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in "befnwgcaN":
        parser.add_argument(f"-{name}", type=int, required=True)
    parser.add_argument("-d", choices=["float"], required=True)
    asked = parser.parse_args()
    if asked.g != 1 or asked.a != 1 or asked.N != 0:
        sys.exit("this stub knows one GPU a rank, the mean over ranks, and no end")
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"].lstrip("=")  # NCCL takes the exact name so
    mpi = MPI.COMM_WORLD
    store = dist.FileStore(str(Path(sys.argv[0]).with_name(f"store-{os.environ['ORCH_RUN']}")), mpi.size)
    dist.init_process_group("gloo", store=store, rank=mpi.rank, world_size=mpi.size)
    device = os.environ["NCCL_TESTS_DEVICE"]
    devices = mpi.gather(f"#  Rank {mpi.rank:2} Group  0 Pid {os.getpid():6} on stub device {device:>2} [0x00] none")
    if mpi.rank == 0:
        print("# a recording stub, not nccl-tests\n# Using devices", *devices, "#", sep="\n", flush=True)
    for _ in range(asked.w):
        for size in (asked.e, asked.b):
            dist.all_reduce(torch.ones(size // 4))
    while True:
        size = asked.b
        while size <= asked.e:
            beside = measured(mpi, size, asked.n, asked.c, in_place=False)
            within = measured(mpi, size, asked.n, asked.c, in_place=True)
            if mpi.rank == 0:
                print(ROW.format(size, size // 4, "float", "sum", -1, *beside, *within), flush=True)
            size *= asked.f


if __name__ == "__main__":
    main()
