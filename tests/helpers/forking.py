"""An interpreter whose programs are forked off one process that has imported torch: a hundred ranks fit in memory.

    forking.py serve SOCKET            imports, then forks whoever asks at SOCKET; says `ready` first
    forking.py run SOCKET -u PROGRAM...  is that program, for whoever started it

What is forked has its asker's working folder, environment, standard streams and network; its asker passes signals on
and ends with its status, and it ends when its asker does.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

IMPORTED = ("torch", "torch.distributed", "torch.nn.parallel.distributed")
LONGEST = 1 << 17  # of what an asker says, in bytes
CLONE_NEWNET, PR_SET_PDEATHSIG = 0x40000000, 1
HERE = "/proc/self/cwd"  # a folder that has no path in this process's mounts
LIBC = ctypes.CDLL(None, use_errno=True)


def run(path: str, argv: Sequence[str]) -> int:
    """Have `argv` run by the process that serves at `path`; its exit status."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(path)

        def pass_on(number: int, _frame: object) -> None:
            with contextlib.suppress(OSError):  # it has just ended
                server.send(b"%d" % number)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, pass_on)
        told = json.dumps({"argv": list(argv), "env": dict(os.environ)}).encode()
        folder, network = os.open(".", os.O_PATH), os.open("/proc/self/ns/net", os.O_RDONLY)
        socket.send_fds(server, [told], [folder, network, 0, 1, 2])
        status = server.recv(16)
    return int(status) if status else 1


def serve(path: str) -> NoReturn:
    """Fork a program for each asker, until this process is killed."""
    for name in IMPORTED:
        importlib.import_module(name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, selectors.DefaultSelector() as selector:
        listener.bind(path)
        listener.listen(512)
        print("ready", flush=True)
        selector.register(listener, selectors.EVENT_READ, lambda: _accept(listener, selector))
        while True:
            for key, _ in selector.select():
                if key.fd in selector.get_map():  # not ended by an earlier one of this turn
                    key.data()


def _accept(listener: socket.socket, selector: selectors.BaseSelector) -> None:
    asker, _ = listener.accept()
    told, descriptors, _, _ = socket.recv_fds(asker, LONGEST, 5)
    pid = os.fork()
    if pid == 0:
        _become(json.loads(told), *descriptors)
    for fd in descriptors:
        os.close(fd)
    ended = os.pidfd_open(pid)

    def hear() -> None:
        said = asker.recv(16)
        os.kill(pid, int(said) if said else signal.SIGKILL)
        if not said:
            selector.unregister(asker)

    def end() -> None:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        selector.unregister(ended)
        os.close(ended)
        if asker in {key.fileobj for key in selector.get_map().values()}:
            selector.unregister(asker)
            with contextlib.suppress(OSError):  # it was killed
                asker.send(b"%d" % (status if status >= 0 else 128 - status))
        asker.close()

    selector.register(asker, selectors.EVENT_READ, hear)
    selector.register(ended, selectors.EVENT_READ, end)


def _become(told: dict[str, object], folder: int, network: int, *streams: int) -> NoReturn:
    """Be what `python -u PROGRAM...` would be where the asker is."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if LIBC.setns(network, CLONE_NEWNET) != 0:
        os._exit(99)
    os.fchdir(folder)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 1024)
    os.environ.clear()
    os.environ.update(told["env"])  # type: ignore[call-overload]
    argv = [word for word in told["argv"] if word != "-u"]  # type: ignore[attr-defined]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  # the standard streams, of which there is no path
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    sys.dont_write_bytecode = True
    for path in Path().glob("*.py"):  # what lies beside a program goes before what was imported under its name
        sys.modules.pop(path.stem, None)
    sys.argv, sys.path[:0] = argv, [HERE]
    status = 1
    try:
        runpy.run_path(f"{HERE}/{argv[0]}", run_name="__main__")
        status = 0
    except SystemExit as over:
        status = over.code if isinstance(over.code, int) else int(over.code is not None)
    except BaseException:  # noqa: BLE001 - as an interpreter tells it
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    what, where, *words = sys.argv[1:]
    sys.exit(serve(where) if what == "serve" else run(where, words))
