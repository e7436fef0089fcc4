"""Runs hosts of a local testbed as containers, which end with the process that holds the end of a FIFO.

Containers whose owner has gone are found by their label and by the lock on their owner's folder.
"""

from __future__ import annotations

import os
import re
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from orchestrator.core import fanout, private_folder
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, OrchError, TestbedError
from orchestrator.core.private_folder import PrivateFolder
from orchestrator.testbed.local import host_image, runtimes
from orchestrator.testbed.local.host_image import digest
from orchestrator.testbed.local.local_spec import WORK, Containers
from orchestrator.testbed.local.runtimes import LABEL, Runtime
from workloads.common import environments

IMAGE = "localhost/orch-host"
OWNER = "orch.folder"  # the label with the folder whose lock tells whether a container's owner is alive
_INIT = Path(__file__).parents[2] / "agents" / "container_init.py"
_DOOR = "/run/orch-host"  # where a container finds the program of its PID 1, and its owner's FIFO
_ADDRESS = "@orch-host"  # as /proc/net/unix writes it
_GONE_S = 30.0
_READY_S = 0.02
_LIMIT_S = 60.0


def ensure_image(runtime: Runtime, deadline: Deadline) -> str:
    """Return our image, made if its content is new; older images are removed, unless containers still use them."""
    archive = host_image.host_tree().archive()
    image = f"{IMAGE}:{digest(archive)}"
    if not runtime.has_image(image, deadline):
        runtime.ask("import", "-", image, deadline=deadline, data=archive)
        for old in own_images(runtime, deadline):
            if old != image:
                with suppress(TestbedError):
                    runtime.ask("rmi", old, deadline=deadline)
    return image


def own_images(runtime: Runtime, deadline: Deadline) -> list[str]:
    """Return every image of ours that is there."""
    return runtime.ask("images", "--format", "{{.Repository}}:{{.Tag}}", IMAGE, deadline=deadline).split()


class ContainerHosts:
    """The containers of one testbed, from `open` to `close`."""

    def __init__(self, spec: Containers, addresses: Mapping[str, str], run_id: str) -> None:
        self.spec, self.addresses, self.run_id = spec, addresses, run_id
        self.about: dict[str, str] = {}
        self._closing = ExitStack()

    def open(self, folders: Mapping[str, Path], deadline: Deadline) -> dict[str, tuple[int, int]]:
        """Start the containers; return each host's network and mount namespace as descriptors, open until `close`.

        `folders` are the folders of this machine that lie at every host's work folder.
        """
        runtime = runtimes.able(self.spec.runtime)
        missing = [path for path in self.spec.mounts if not Path(path).is_dir()]
        if missing:
            raise TestbedError(
                f"no folder {', '.join(missing)} on this machine", hint="correct `mounts` of the testbed"
            )
        image = self._image(runtime, deadline)
        number = runtime.ask("inspect", "--type", "image", "--format", "{{.Id}}", image, deadline=deadline).strip()
        version = runtime.version(deadline)
        self.about = {"runtime": runtime.name, "version": version, "image": image, "image_id": number}
        own = PrivateFolder("hosts-")
        self._closing.callback(own.close)
        shared = own.path / "shared"
        shared.mkdir()
        (shared / "init.py").write_text(_INIT.read_text())
        os.mkfifo(shared / "owner", 0o600)
        self._closing.callback(self._wait_gone, runtime)
        self._closing.callback(os.close, os.open(shared / "owner", os.O_RDWR | os.O_CLOEXEC))
        common = ["--label", f"{OWNER}={own.path}", *runtimes.mount(str(shared), _DOOR, writable=True)]

        def start(name: str) -> tuple[int, int]:
            options = [*common, *runtimes.mount(str(folders[name]), WORK, writable=True)]
            self._start(runtime, image, name, options, deadline=deadline)
            return self._joined(runtime, name, shared, deadline)

        return fanout.each(self.addresses, start, deadline=deadline, what="starting containers")

    @property
    def users(self) -> tuple[str, ...]:
        """The prefix of a command that needs rights over the containers."""
        return runtimes.detected(self.spec.runtime).enter_users()

    def close(self) -> None:
        """End the containers, and wait until the runtime has forgotten them; a second call does nothing."""
        self._closing.close()

    def _image(self, runtime: Runtime, deadline: Deadline) -> str:
        image = self.spec.image
        if image is None:
            return ensure_image(runtime, deadline)
        if problem := no_image(runtime, image, deadline):
            what, hint = problem
            raise TestbedError(what, hint=hint)
        return image

    def _start(self, runtime: Runtime, image: str, name: str, options: list[str], *, deadline: Deadline) -> None:
        names = [word for host, address in self.addresses.items() for word in ("--add-host", f"{host}:{address}")]
        try:
            runtime.ask(
                "run",
                "--detach",
                "--rm",
                "--pull",
                "never",
                "--name",
                container(self.run_id, name),
                "--hostname",
                name,
                *names,
                "--network",
                "none",
                "--user",
                "0:0",
                "--workdir",
                "/",
                "--label",
                f"{LABEL}={self.run_id}",
                "--pids-limit",
                "-1",
                "--shm-size",
                str(_half_of_memory()),
                *runtimes.limits(),
                *runtimes.rights(),
                *options,
                *seen(self.spec),
                "--entrypoint",
                python(self.spec),
                image,
                "-I",
                f"{_DOOR}/init.py",
                _DOOR,
                name,
                deadline=deadline,
            )
        except TestbedError as error:
            error.node = name
            raise

    def _joined(self, runtime: Runtime, name: str, shared: Path, deadline: Deadline) -> tuple[int, int]:
        pid = int(runtime.ask("inspect", "--format", "{{.State.Pid}}", container(self.run_id, name), deadline=deadline))
        place = Path(f"/proc/{pid}")

        def ready() -> bool:
            try:
                return f" {_ADDRESS}\n" in (place / "net/unix").read_text()
            except OSError:
                raise _ended(name, shared) from None

        deadline.poll(ready, every_s=_READY_S, waiting_for="its first process", node=name)
        opened = []
        for kind in ("net", "mnt"):
            opened.append(os.open(place / "ns" / kind, os.O_RDONLY | os.O_CLOEXEC))
            self._closing.callback(os.close, opened[-1])
        return opened[0], opened[1]

    def _wait_gone(self, runtime: Runtime) -> None:
        """Wait until the containers are gone: their first processes end with the FIFO; those that stay are removed."""
        ends = Deadline.after(_GONE_S)
        with suppress(DeadlineExceeded):
            ends.poll(lambda: not runtime.of_ours(ends, self.run_id), every_s=0.1, waiting_for="the end of containers")
            return
        remove(runtime, runtime.of_ours(Deadline.after(_GONE_S), self.run_id), Deadline.after(_GONE_S))


def python(spec: Containers) -> str:
    """Return the interpreter that hosts run: this one on our image."""
    return sys.executable if spec.image is None else spec.python


def seen(spec: Containers) -> list[str]:
    """Return options that mount the folders of this machine that hosts see, read-only."""
    own: tuple[str, ...] = ()
    if spec.image is None:
        pythons = [str(environments.built(name)) for name in environments.NAMES]
        own = (*host_image.programs(), *host_image.environments(pythons))
    return [word for path in dict.fromkeys((*own, *spec.mounts)) for word in runtimes.mount(path, path)]


def no_image(runtime: Runtime, image: str, deadline: Deadline) -> tuple[str, str] | None:
    """Return the error that an image is not here, with a remedy; None when it is."""
    if runtime.has_image(image, deadline):
        return None
    name = runtime.name
    return f"{name} has no image {image} here, and a run downloads none", f"{name} pull {image}, or build it"


def _ended(name: str, shared: Path) -> TestbedError:
    said = shared / f"{name}.said"
    return TestbedError(
        "its container has ended, or its processes are not of this machine",
        node=name,
        tail=said.read_text() if said.exists() else "",
        hint="see that the image has Python 3.8 or later, and that the runtime runs on this machine itself",
    )


def container(run_id: str, host: str) -> str:
    """Return the name of a host's container."""
    return "orch-" + re.sub(r"[^A-Za-z0-9_.-]", "-", f"{run_id}-{host}")


def remove(runtime: Runtime, names: Iterable[str], deadline: Deadline) -> None:
    """End containers and wait until the runtime has forgotten them."""
    for name in names:
        with suppress(TestbedError):  # it goes by itself at this very moment
            runtime.ask("rm", "--force", name, deadline=deadline)
    left = set(names)
    deadline.poll(lambda: not left & runtime.of_ours(deadline).keys(), every_s=0.1, waiting_for="the end of containers")


def _half_of_memory() -> int:
    """Return half of the machine's memory in bytes, the kernel's default size of a tmpfs."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def remove_left_behind(*, images: bool) -> tuple[list[str], list[str]]:
    """Remove containers whose run has gone, of every runtime here; and our own images if asked for.

    Return what was done, and what failed.
    """
    done: list[str] = []
    failed: list[str] = []
    for name in typing.get_args(runtimes.Name):
        if runtimes.problems(name):
            continue  # what cannot run containers has none
        try:
            done += _remove_of(runtimes.detected(name), images=images)
        except OrchError as error:
            failed.append(f"could not remove containers of {name}: {error.message}")
    return done, failed


def _remove_of(runtime: Runtime, *, images: bool) -> Iterator[str]:
    deadline = Deadline.after(_LIMIT_S)
    left = left_behind(runtime, deadline)
    remove(runtime, left, deadline)
    for name, run in left.items():
        yield f"removed {runtime.name}'s container {name} of run {run}"
    for image in own_images(runtime, deadline) if images else ():
        runtime.ask("rmi", "--force", image, deadline=deadline)
        yield f"removed {runtime.name}'s image {image}"


def left_behind(runtime: Runtime, deadline: Deadline) -> dict[str, str]:
    """Return our containers whose owner has gone: the run of each, by name."""
    found = {}
    for name, number in runtime.of_ours(deadline).items():
        form = f'{{{{index .Config.Labels "{LABEL}"}}}} {{{{index .Config.Labels "{OWNER}"}}}}'
        try:
            run, _, folder = runtime.ask("inspect", "--format", form, number, deadline=deadline).strip().partition(" ")
        except TestbedError:
            continue  # it has just gone
        if folder and not private_folder.owned(Path(folder)):
            found[name] = run
    return found
