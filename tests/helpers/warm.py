"""Programs in processes forked off one that has imported torch: they start in a tenth of a second, not in four."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

IMPORTED = ["torch", "torch.distributed", "torch.distributed.fsdp", "torch._dynamo", "torch.nn.parallel.distributed"]
THREADS = "OMP_NUM_THREADS"  # read when torch is imported


class Warm:
    """A program that runs on this interpreter, in the words of subprocess.Popen; its output goes to files."""

    def __init__(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        os.environ.setdefault(THREADS, "1")
        assert env.get(THREADS, "1") == os.environ[THREADS]
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(IMPORTED)
        reader, writer = context.Pipe(duplex=False)
        with reader, writer:
            self._process = context.Process(target=_become, args=(list(argv), str(cwd), dict(env), reader))
            self._process.start()
            self.stdin = os.fdopen(os.dup(writer.fileno()), "wb")

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _become(argv: list[str], cwd: str, env: dict[str, str], stdin: Connection) -> None:
    """Be what `python -u argv` would be in this folder."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    os.dup2(stdin.fileno(), 0)
    stdin.close()
    for number, name in ((1, "stdout"), (2, "stderr")):
        with Path(name).open("wb") as file:
            os.dup2(file.fileno(), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  # the standard streams, of which there is no path
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    sys.dont_write_bytecode = True
    sys.argv, sys.path[:0] = argv, [cwd]
    runpy.run_path(argv[0], run_name="__main__")
