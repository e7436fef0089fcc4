"""Starts, watches and removes launches in containers, and looks up images.

A runtime may keep a container under a daemon, far from this agent. So the container's first process calls back at a
socket (`container_rank.py`): the kernel says which process that is, and the socket's end that it is over. What a
runtime keeps of a container, whose id its client has put into a file, is removed by an entry of the journal, which was
on the disk before the container was there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import time
from typing import IO, Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from .children import Child, Children, hit
from .commands import Commands, Completed
from .container_call import Call, Words
from .container_lines import (
    COMMAND_SCRIPT,
    PROGRAM,
    SOCKET,
    Container,
    checked,
    client,
    host_of,
    key_of,
    line,
    with_image,
)
from .folders import CONTAINERS, Folder, RunFolder
from .loop import Loop, Task
from .proc import descendants, process_table
from .steps import Refusal, Steps
from .undo import Changes, Pending

LEAVE_S = 5.0  # for a runtime to forget a container whose first process has ended, until its client is killed
LOOK_S = 0.02
# Removes the container whose id is in a file; one that is not there any more is no error, and one that docker's daemon
# is about to remove is waited for. Where podman makes control groups itself (cgroupfs) it leaves empty ones whose last
# process has not quite ended.
REMOVE = """
[ -s "$0" ] || exit 0
id=$(cat "$0")
case $id in *[!0-9a-f]*) echo "$0 holds no id of a container"; exit 1;; esac
"$@" kill "$id" >/dev/null 2>&1  # `rm --force` gives a live one ten seconds first
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
    said=$("$@" rm --force "$id" 2>&1) && said=
    case $said in *"already in progress"*) sleep 0.1;; *) break;; esac
done
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    groups=$(find /sys/fs/cgroup -depth -type d -path "*/libpod-*$id*" 2>/dev/null)  # conmon's, too
    [ "$groups" ] || break
    rmdir $groups 2>/dev/null && break
    sleep 0.1
done
case $said in ""|*[Nn]"o such container"*|*"no container with"*) exit 0;; esac
echo "$said"; exit 1
"""


class Usage(NamedTuple):
    """Resources that a rank has used, by the names of `getrusage`."""

    ru_utime: float
    ru_stime: float
    ru_maxrss: int


class Inside:
    """A launch in a container, with the interface of a child process."""

    def __init__(self, name: str, client: Child, key: str) -> None:
        self.name = name
        self.client = client
        self.key = key  # of what removes it, in the journal
        self.pid = client.pid  # the launch's own, once it runs
        self.stdin: Any = None
        self.status: Optional[int] = None
        self.usage: Any = None
        self.ended_ns = 0
        self.call: Optional[Call] = None  # to the container's first process, while it lives
        self.up = False  # whether the launch has begun
        self.trouble = ""  # why it did not
        self.cleared = False

    def members(self) -> List[int]:
        """Return the living processes of the container, parents first; none when its first one has ended."""
        if self.call is None:
            return []
        table = process_table()
        return [pid for pid in (self.call.first, *descendants(table, self.call.first)) if pid in table]

    def end(self, status: int, usage: Any = None) -> None:
        """Note how the launch ended; the first source to report it counts."""
        if self.status is None:
            self.status, self.usage, self.ended_ns = status, usage, time.time_ns()

    def call_off(self) -> None:
        """End a container whose launch has not begun yet."""
        if self.call is None and self.client.status is None:
            hit([self.client.pid], signal.SIGKILL)


class Containers:
    """The containers of this agent's launches."""

    def __init__(self, loop: Loop, run_folder: RunFolder, children: Children, changes: Changes) -> None:
        self.loop = loop
        self.run_folder = run_folder
        self.children = children
        self.changes = changes
        self.ids: Dict[str, str] = {}  # of the images that were looked for here
        self.all: List[Inside] = []

    def members(self) -> List[int]:
        """Return the living processes of all containers."""
        return [pid for inside in self.all for pid in inside.members()]

    def environment(self, container: Container) -> Dict[str, str]:
        """Return the environment of the runtime's client: the user's variables, and a local testbed's images."""
        env = self.children.environment("", {}, privileged=False)
        storage = self.run_folder.storage
        return dict(env, CONTAINERS_STORAGE_CONF=storage) if storage and container["runtime"] == "podman" else env

    def start(
        self,
        name: str,
        container: Container,
        words: Words,
        *,
        folder: Folder,
        within_s: float,
        streams: Mapping[str, IO[bytes]],
    ) -> Inside:
        """Start a container that becomes the launch."""
        identity = self.ids.get(key_of(container))
        if identity is None:
            raise Refusal("bad-request", "nobody has looked for the image %s here" % container["image"])
        with self.run_folder.below(CONTAINERS, self.run_folder.owner) as place:
            cidfile = place.path_of(name + ".cid")
        key = self.note(name, container, cidfile)
        tags = {tag: words.env[tag] for tag in ("ORCH_RUN", "ORCH_NODE", "ORCH_LAUNCH")}
        meant = with_image(container, identity)
        call = Call(folder, self.run_folder.owner.uid, self.run_folder.owner.gid, words)
        try:
            argv = line(
                meant,
                host_of(self.run_folder.owner, self.run_folder.user),
                folder=folder.path,
                cidfile=cidfile,
                label="/".join(tags.values()),
                env=["%s=%s" % pair for pair in tags.items()],
                command=["-I", "-S", "%s/%s" % (folder.path, PROGRAM), folder.path, SOCKET],
            )
            with open(os.devnull, "rb") as null:
                client = self.children.spawn(
                    argv,
                    folder,
                    privileged=False,
                    env=self.environment(container),
                    stdin=null,
                    stdout=streams["stderr"],
                    stderr=streams["stderr"],
                )
        except (OSError, Refusal):
            call.close()
            self.changes.book().done(key)
            raise
        inside = Inside(name, client, key)
        inside.stdin = call.stdin
        self.all.append(inside)
        self.loop.tasks.append(Task(None, self.live(inside, call, within_s)))
        return inside

    def note(self, name: str, container: Container, cidfile: str) -> str:
        """Write down how to remove a container before it exists: as the user who owns it, by its id in a file."""
        key = "container of " + name
        user, storage = self.run_folder.user, self.run_folder.storage
        words = ["runuser", "-u", user.pw_name, "--", "env", "HOME=" + user.pw_dir] if user else ["env"]
        words += ["CONTAINERS_STORAGE_CONF=" + storage] if storage else []
        known = container["runtime"] in ("podman", "docker")
        undo = [[*words, "sh", "-c", REMOVE, cidfile, container["runtime"]]] if known else []
        journal = self.changes.book()
        journal.add(key, Pending(undo, None))
        journal.mark(key, whole=True)
        return key

    def live(self, inside: Inside, call: Call, within_s: float) -> Steps[None]:
        """Run the whole life of a container: wait for its call, start the launch, wait for its end, and remove it."""
        try:
            yield from call.answered(lambda: inside.client.status, within_s)
            inside.call = call
            inside.pid = yield from call.told(within_s)
            self.list_first(inside)
            inside.up = True
        except (OSError, Refusal) as error:
            inside.trouble = str(error)
            hit(inside.members()[:1] or [inside.client.pid], signal.SIGKILL)
            status = inside.client.status
            inside.end(status or -signal.SIGKILL)
        else:
            call.watch(self.loop, lambda: self.heard(inside, call))
        self.loop.woken = True
        while inside.up and not call.over:
            if inside.client.status is not None and inside.status is None:
                hit(inside.members()[:1], signal.SIGKILL)  # the kernel ends the others with the first
            yield 3600.0 if inside.client.status is None else LOOK_S
        inside.end(-signal.SIGKILL)
        inside.call = None
        call.close()
        yield from self.clear(inside)

    def heard(self, inside: Inside, call: Call) -> None:
        """Note how the launch ended, if the first process said so before its own end."""
        about = call.hear()
        with contextlib.suppress(LookupError, TypeError, ValueError):  # it is the image's, after all
            if about:
                usage = Usage(float(about["user_s"]), float(about["system_s"]), int(about["max_rss_kib"]))
                inside.end(int(about["status"]), usage)
        self.loop.woken = True

    def list_first(self, inside: Inside) -> None:
        """List for samplers which process is the container's first: it may be no descendant of this agent."""
        with self.run_folder.below(CONTAINERS) as place:
            fd = place.replace(inside.name + ".pid", 0o644, self.run_folder.owner)
        with open(fd, "w") as file:
            file.write("%d\n" % (inside.call.first if inside.call else inside.pid))

    def clear(self, inside: Inside) -> Steps[None]:
        """Wait until the runtime has forgotten a container that is over, and remove what it has not."""
        end = time.monotonic() + LEAVE_S
        while inside.client.status is None:
            if time.monotonic() >= end:
                hit([inside.client.pid], signal.SIGKILL)
            yield LOOK_S
        try:
            yield from self.drop(inside.key, inside.name)
        except Refusal as refusal:  # it stays in the journal, and is tried again at the end
            inside.trouble = str(refusal)
        inside.cleared = True
        self.all.remove(inside)
        self.tidy()
        self.loop.woken = True

    def drop(self, key: str, name: str) -> Steps[None]:
        """Have the runtime remove a container that is over; its id stays on the disk until that is done."""
        yield from self.changes.undo(key=key)
        with contextlib.suppress(OSError, Refusal), self.run_folder.below(CONTAINERS) as place:
            for file in (name + ".cid", name + ".pid"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file, dir_fd=place.fd)

    def tidy(self) -> None:
        """Remove the folder with the containers' ids and logs, unless a client is about to write there."""
        if not self.all:
            with contextlib.suppress(OSError):
                os.rmdir(CONTAINERS, dir_fd=self.run_folder.folder.fd)


RUNTIME_S = 15.0
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
    """The answer to `image`: the image's identity, the runtime's version and that of the image's Python.

    Of modules and programs that it should have: whether, and where or why not.
    """

    image: str
    version: str
    python: str
    modules: Mapping[str, Tuple[bool, str]]
    programs: Mapping[str, Tuple[bool, str]]


class Images:
    """Looks up container images on this host."""

    def __init__(self, run_folder: RunFolder, commands: Commands, containers: Containers) -> None:
        self.run_folder = run_folder
        self.commands = commands
        self.containers = containers
        self.probes = 0

    def look(
        self, *, container: Container, modules: List[str], programs: List[str], storage: Optional[str] = None
    ) -> Steps[ImageFound]:
        """Resolve an image and start a container of it, as for a launch, to find its Python, modules and programs.

        So what keeps launches from starting shows here: no such image, no such Python, a user who may not.
        `storage` is what podman's storage.conf is to say on a host of a local testbed, whose /run is its own.
        """
        checked(container)
        if storage is not None:
            os.makedirs(os.path.dirname(STORAGE), mode=0o700, exist_ok=True)
            with open(STORAGE, "w") as file:
                file.write(storage)
            self.run_folder.storage = STORAGE
        with self.run_folder.below(CONTAINERS, self.run_folder.owner) as place:
            host = host_of(self.run_folder.owner, self.run_folder.user)
            number = yield from self.identify(container, client(container, host))
            meant = with_image(container, number)
            wanted = json.dumps({"modules": modules, "programs": programs})
            self.probes += 1
            name = ".probe%d" % self.probes  # of no launch: these have names without a leading dot
            cidfile = place.path_of(name + ".cid")
            if container["runtime"] == "enroot":
                with open(place.replace(COMMAND_SCRIPT, 0o644, self.run_folder.owner), "w") as file:
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
        """Return the identity of an image: its id; of a squashfs its superblock, as reading all of it takes long."""
        if container["runtime"] in ("podman", "docker"):
            done = yield from self.ask(
                container, [*words, "image", "inspect", "--format", "{{.Id}}", container["image"]], RUNTIME_S
            )
            return done.stdout.strip().rpartition(":")[2]
        if not os.path.isfile(container["image"]):
            return container["image"]  # a name that enroot or a registry knows
        with open(container["image"], "rb") as file:
            identity = b"%d %s" % (os.fstat(file.fileno()).st_size, file.read(SUPERBLOCK))
        return "squashfs-" + hashlib.sha256(identity).hexdigest()

    def version(self, container: Container) -> Steps[str]:
        """Return the runtime's version, as it says it."""
        if container["runtime"] == "enroot":
            argv = ["enroot", "version"]
        elif container["runtime"] == "docker":
            argv = ["docker", "version", "--format", "{{.Server.Version}}"]
        else:
            argv = [client(container, host_of(self.run_folder.owner, self.run_folder.user))[0], "--version"]
        done = yield from self.ask(container, argv, RUNTIME_S)
        return done.stdout.strip().split(" ")[-1]

    def ask(self, container: Container, argv: List[str], within_s: float) -> Steps[Completed]:
        """Run a command of the runtime as the user and return its output.

        Raise Refused with what it printed where it fails.
        """
        storage = self.run_folder.storage if container["runtime"] == "podman" else ""
        prefix = ["env", "CONTAINERS_STORAGE_CONF=" + storage] if storage else []
        done = yield from self.commands.run([*prefix, *argv], within_s, privileged=False)
        if done.timed_out:
            raise Refusal(
                "image", "%s does not answer within %g s" % (container["runtime"], within_s), tail=done.stderr
            )
        if done.status:
            said = (done.stderr.strip().splitlines() or ["it ended with status %d" % done.status])[-1]
            raise Refusal("image", said, tail=done.stdout + done.stderr)
        return done
