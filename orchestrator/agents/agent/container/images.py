"""Images of containers: which very one a name means on this host, and what is in it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from typing import List, Mapping, NamedTuple, Optional, Tuple

from ..disk.run_folder import CONTAINERS, RunFolder
from ..processes.commands import Commands, Completed
from ..steps import Refusal, Steps
from .container_lines import COMMAND_SCRIPT, Container, checked, client, host_of, key_of, line, with_image
from .containers import Containers

LOOK_S = 15.0
PROBE_S = 60.0  # for the first container of an image, whose files may have to be read from a disk
STORAGE = "/run/orch-podman/storage.conf"
SUPERBLOCK = 96  # bytes of a squashfs: when it was made, and how large each of its tables is
PROBE = """
import importlib.util, json, os, shutil, sys
if sys.version_info < (3, 8):
    sys.exit("its Python is %d.%d, and programs of ranks need 3.8 or later" % sys.version_info[:2])
wanted = json.loads(sys.argv[1])
found = {"python": "%d.%d.%d" % sys.version_info[:3], "modules": {}, "programs": {}}
for name in wanted["modules"]:
    try:
        spec = importlib.util.find_spec(name.partition(".")[0])
    except (ImportError, ValueError) as error:
        found["modules"][name] = [False, str(error)]
    else:
        found["modules"][name] = [spec is not None, "" if spec else "no such module in the image"]
for name in wanted["programs"]:
    path = name if "/" in name and os.access(name, os.X_OK) else shutil.which(name)
    found["programs"][name] = [bool(path), path or "no such program in the image"]
found.update((name, os.readlink("/proc/self/ns/" + name)) for name in ("net", "ipc"))
print(json.dumps(found))
"""


class ImageFound(NamedTuple):
    """The answer to `image`: which very one it is, the runtime's version and that of the image's Python.

    Of modules and programs that it should have: whether, and where or why not.
    """

    image: str
    version: str
    python: str
    modules: Mapping[str, Tuple[bool, str]]
    programs: Mapping[str, Tuple[bool, str]]


class Images:
    """What is known of images on this host."""

    def __init__(self, run_folder: RunFolder, commands: Commands, containers: Containers) -> None:
        self.run_folder = run_folder
        self.commands = commands
        self.containers = containers
        self.probes = 0

    def look(
        self, *, container: Container, modules: List[str], programs: List[str], storage: Optional[str] = None
    ) -> Steps[ImageFound]:
        """Resolve an image, and start a container of it, as a launch would be, that says what it has.

        So what keeps launches from starting shows here: no such image, no such Python, a user who may not.
        `storage` is what podman's storage.conf is to say on a host of a local testbed, whose /run is its own.
        """
        checked(container)
        if storage is not None:
            os.makedirs(os.path.dirname(STORAGE), mode=0o700, exist_ok=True)
            with open(STORAGE, "w") as file:
                file.write(storage)
            self.run_folder.storage = STORAGE
        with self.run_folder.below(CONTAINERS, self.run_folder.whose) as place:
            host = host_of(self.run_folder.whose, self.run_folder.user)
            number = yield from self.identify(container, client(container, host))
            meant = with_image(container, number)
            wanted = json.dumps({"modules": modules, "programs": programs})
            self.probes += 1
            name = ".probe%d" % self.probes  # of no launch: these have names without a leading dot
            cidfile = place.path_of(name + ".cid")
            if container["runtime"] == "enroot":
                with open(place.replace(COMMAND_SCRIPT, 0o644, self.run_folder.whose), "w") as file:
                    file.write('exec "$@"\n')
            argv = line(
                meant,
                host,
                folder=place.path,
                cidfile=cidfile,
                label="probe",
                env=(),
                command=["-I", "-c", PROBE, wanted],
            )
            key = self.containers.note(name, container, cidfile)
            try:
                done = yield from self.ask(container, argv, PROBE_S)
            except (OSError, Refusal):
                with contextlib.suppress(Refusal):
                    yield from self.containers.drop(key, name)
                raise
            with contextlib.suppress(Refusal):  # it stays in the journal, and is tried again at the end
                yield from self.containers.drop(key, name)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(COMMAND_SCRIPT, dir_fd=place.fd)
        try:
            told = json.loads(done.stdout.splitlines()[-1])
            found = ImageFound(number, "", told["python"], told["modules"], told["programs"])
            spaces = (("net", told["net"]), ("ipc", told["ipc"]))
        except (ValueError, LookupError, TypeError):
            raise Refusal("image", "its Python printed something else than it was asked", tail=done.stdout) from None
        for name, namespace in spaces:
            if namespace != os.readlink("/proc/self/ns/" + name):
                message = "containers of %s are not in this host's %s namespace: its daemon belongs to another host"
                raise Refusal("image", message % (container["runtime"], name))
        version = yield from self.version(container)
        self.containers.ids[key_of(container)] = number
        self.containers.tidy()
        return found._replace(version=version)

    def identify(self, container: Container, words: List[str]) -> Steps[str]:
        """What tells an image from any other: its id; of a squashfs its superblock, as reading all of it takes long."""
        if container["runtime"] in ("podman", "docker"):
            done = yield from self.ask(
                container, [*words, "image", "inspect", "--format", "{{.Id}}", container["image"]], LOOK_S
            )
            return done.stdout.strip().rpartition(":")[2]
        if not os.path.isfile(container["image"]):
            return container["image"]  # a name that enroot or a registry knows
        with open(container["image"], "rb") as file:
            identity = b"%d %s" % (os.fstat(file.fileno()).st_size, file.read(SUPERBLOCK))
        return "squashfs-" + hashlib.sha256(identity).hexdigest()

    def version(self, container: Container) -> Steps[str]:
        """The runtime's version, as it says it."""
        if container["runtime"] == "enroot":
            argv = ["enroot", "version"]
        elif container["runtime"] == "docker":
            argv = ["docker", "version", "--format", "{{.Server.Version}}"]
        else:
            argv = [client(container, host_of(self.run_folder.whose, self.run_folder.user))[0], "--version"]
        done = yield from self.ask(container, argv, LOOK_S)
        return done.stdout.strip().split(" ")[-1]

    def ask(self, container: Container, argv: List[str], within_s: float) -> Steps[Completed]:
        """Run a command of the runtime as the user; refused with what it printed where it fails."""
        storage = self.run_folder.storage if container["runtime"] == "podman" else ""
        prefix = ["env", "CONTAINERS_STORAGE_CONF=" + storage] if storage else []
        done = yield from self.commands.command([*prefix, *argv], within_s, privileged=False)
        if done.timed_out:
            raise Refusal(
                "image", "%s does not answer within %g s" % (container["runtime"], within_s), tail=done.stderr
            )
        if done.status:
            said = (done.stderr.strip().splitlines() or ["it ended with status %d" % done.status])[-1]
            raise Refusal("image", said, tail=done.stdout + done.stderr)
        return done
