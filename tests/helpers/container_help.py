"""What tests of containers share: stores and daemons of their own, and images made of programs of this machine."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.testbed.local import runtimes
from orchestrator.testbed.local.host_image import Tree, host_tree

PATIENCE_S = 120.0
RUNTIMES = [
    "podman",
    pytest.param(
        "docker",
        marks=[
            pytest.mark.variants,
            pytest.mark.skipif(os.geteuid() != 0, reason="hosts that docker runs are root's alone"),
        ],
    ),
]


def soon() -> Deadline:
    return Deadline.after(PATIENCE_S)


@contextlib.contextmanager
def own_store(folder: Path) -> Iterator[Path]:
    """podman with a store of its own, so that no image and no container of anybody else's is touched, or stays.

    Its `runroot` does not lie in the folder: `podman container cleanup`, which forgets a container when its first
    process has ended, refuses one of more than 50 characters, and says so to /dev/null (podman 4.3).
    """
    config = folder / "storage.conf"
    driver = "overlay" if layered(folder) else "vfs"
    short = Path(tempfile.mkdtemp(prefix="orch-", dir="/tmp"))
    config.write_text(f'[storage]\ndriver = "{driver}"\ngraphroot = "{folder}/graph"\nrunroot = "{short}"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_STORAGE_CONF", str(config))
        try:
            yield folder
        finally:
            _forget(folder, short)


def layered(folder: Path) -> bool:
    """Whether containers can share an image's files here, by overlays; else each has a copy of all of them."""
    mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    _, kind = max((place, kind) for place, kind in mounts if folder.is_relative_to(place))
    return os.geteuid() == 0 and kind in ("ext4", "xfs") and "overlay" in Path("/proc/filesystems").read_text()


def _forget(*folders: Path) -> None:
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        if line.split()[1].startswith(tuple(map(str, folders))):
            subprocess.run(["umount", "--lazy", line.split()[1]], check=True)
    if os.geteuid() != 0:  # files of other users of the containers
        subprocess.run(["podman", "unshare", "rm", "-rf", *folders], check=True, timeout=PATIENCE_S)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def own_daemon(folder: Path) -> Iterator[None]:
    """A docker daemon of our own, without a network, whose images and containers go with it."""
    address = f"unix://{folder}/socket"
    argv = [
        "setpriv",
        "--pdeathsig",
        "TERM",
        "--",  # it goes with us, also when we are killed
        "dockerd",
        "--data-root",
        folder / "data",
        "--exec-root",
        folder / "exec",
        "--pidfile",
        folder / "pid",
        "--host",
        address,
        "--bridge",
        "none",
        "--iptables=false",
        "--ip6tables=false",
        "--storage-driver",
        "overlay2" if layered(folder) else "vfs",
    ]
    with (folder / "log").open("wb") as log, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        daemon = subprocess.Popen(list(map(str, argv)), stdout=log, stderr=log, start_new_session=True)

        def answers() -> bool:
            assert daemon.poll() is None, (folder / "log").read_text()[-2000:]
            return not runtimes.problems("docker")

        try:
            soon().poll(answers, every_s=0.1, waiting_for="dockerd")
            yield
        finally:
            daemon.terminate()
            daemon.wait(PATIENCE_S)
            _forget(folder)


PYTHON = "/usr/bin/python3"
_UNUSED = ("dist-packages", "test", "idlelib", "lib2to3", "pydoc_data", "tkinter", "ensurepip")


def python_image(programs: Iterable[str]) -> Tree:
    """An image of the system's own Python and these programs."""
    library = Path("/usr/lib", Path(PYTHON).resolve().name)
    compiled = (library / "lib-dynload").glob("*.so")
    made = program_image(["sh", "python3", *programs, *compiled])
    made.copy(library, without=(*_UNUSED, *(path.name for path in library.glob("config-*"))))
    return made


def program_image(programs: Iterable[str | Path]) -> Tree:
    """An image of these programs of this machine and the libraries that they load, and nothing of its others."""
    made = host_tree(etc=False)
    for name in programs:
        path = shutil.which(name, path="/usr/bin:/usr/sbin:/bin:/sbin", mode=os.F_OK)
        assert path is not None, name
        for place in map(Path, [path, *_libraries(path)]):
            made.file(str(place.parent.resolve() / place.name), place.read_bytes(), mode=0o755)
    made.file("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
    made.file("/etc/group", "root:x:0:\n")
    return made


def _libraries(path: str) -> list[str]:
    done = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    return re.findall(r"(/\S+) \(0x", done.stdout)


def import_image(runtime: str, made: Tree, name: str) -> str:
    runtimes.detected(runtime).ask("import", "-", name, deadline=soon(), data=made.archive())
    return name
