"""Command lines of container runtimes (podman, docker, enroot, pyxis): the one place with their options."""

from __future__ import annotations

import csv
import io
import json
import os
import pwd
import resource
import shutil
import socket
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, TypedDict

from .folders import Owner

PROGRAM = "container_rank.py"  # in the rank's folder: the container's first process
SOCKET = "container.socket"  # likewise, until it has called there
COMMAND_SCRIPT = "container_rc.sh"  # of enroot, in the place of the image's entry point
LABEL = "orch.launch"
UNCONFINED = ("seccomp=unconfined", "label=disable", "apparmor=unconfined")
UNIFIED = "/sys/fs/cgroup/unified"  # where it is both versions of cgroups are in use, and crun refuses to work
MOST_PROCESSES = 32768  # podman lowers its own hard limit to that, and none may be raised
LIMITS = ((resource.RLIMIT_NOFILE, "nofile"), (resource.RLIMIT_NPROC, "nproc"), (resource.RLIMIT_MEMLOCK, "memlock"))
SBIN = "/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin"
PINS = ("IPC_LOCK", "SYS_NICE")  # memory for RDMA, and policies of processors and memory: as bare ranks of root have


class Mount(TypedDict):
    """A folder of the host, and where a container sees it."""

    source: str
    target: str
    writable: bool


class Container(TypedDict):
    """The container of a launch, as it is sent: `parts.launch.Container` as JSON has it."""

    runtime: str
    image: str
    python: str
    mounts: List[Mount]
    gpus: bool


class Host(NamedTuple):
    """Properties of the host that a command line depends on: its user, its limits and its files.

    `limits` are the agent's hard limits by the runtimes' names for them, `node` is Slurm's name of the host.
    """

    uid: int
    gid: int
    groups: Tuple[int, ...]
    infiniband: bool
    runc: str  # with which podman has to be told to work; "" where its own choice does
    limits: Tuple[Tuple[str, int], ...]
    node: str


def host_of(owner: Owner, user: Optional[pwd.struct_passwd]) -> Host:
    """Return this host's properties, for the user `who` of the launches."""
    limits = []
    for number, name in LIMITS:
        hard = resource.getrlimit(number)[1]
        if number == resource.RLIMIT_NPROC:
            hard = MOST_PROCESSES if hard == resource.RLIM_INFINITY else min(hard, MOST_PROCESSES)
        if hard != resource.RLIM_INFINITY:
            limits.append((name, hard))
    return Host(
        uid=owner.uid,
        gid=owner.gid,
        groups=tuple(os.getgrouplist(user.pw_name, user.pw_gid) if user else os.getgroups()),
        infiniband=os.path.isdir("/dev/infiniband"),
        runc=(shutil.which("runc", path=SBIN) or "") if os.path.isdir(UNIFIED) else "",
        limits=tuple(limits),
        node=os.environ.get("SLURMD_NODENAME", socket.gethostname()),
    )


def checked(container: Container) -> Container:
    """Return a container as it was sent; ValueError for one that no line can be made of."""
    image = container["image"]
    if container["runtime"] not in LINES or not image or image.startswith("-") or not container["python"]:
        raise ValueError("not a container: %r" % (container,))
    for mount in container["mounts"]:
        if not isinstance(mount["source"], str) or not isinstance(mount["target"], str):
            raise TypeError("not a folder of a container: %r" % (mount,))
    return container


def key_of(container: Container) -> str:
    """Return a text that is the same for equal containers alone."""
    return json.dumps(container, sort_keys=True)


def with_image(container: Container, identity: str) -> Container:
    """Return the container with the found image's identity, where the runtime takes its identity for a name."""
    if container["runtime"] not in ("podman", "docker"):
        return container
    return {**container, "image": identity}


def _binds(folder: str, container: Container) -> List[Tuple[str, str, bool]]:
    """Return the bind mounts of a container: the launch's folder at the same path, and its mounts."""
    mounts = [(mount["source"], mount["target"], bool(mount["writable"])) for mount in container["mounts"]]
    return [(folder, folder, True), *mounts]


def client(container: Container, host: Host) -> List[str]:
    """Return the runtime's program with its global options, which go before every command."""
    runtime = container["runtime"]
    program = {"pyxis": "srun"}.get(runtime, runtime)
    return [program, *(("--runtime", host.runc) if runtime == "podman" and host.runc else ())]


def line(
    container: Container,
    host: Host,
    *,
    folder: str,
    cidfile: str,
    label: str,
    env: Sequence[str],
    command: Sequence[str],
) -> List[str]:
    """Return the line that runs a command of the image's Python in a container that sees the folder at the same path.

    `env` has variables, NAME=VALUE, that everybody may see.
    """
    make = LINES[container["runtime"]]
    return make(container, host, folder=folder, cidfile=cidfile, label=label, env=env, command=command)


def _daemonic(
    container: Container,
    host: Host,
    *,
    folder: str,
    cidfile: str,
    label: str,
    env: Sequence[str],
    command: Sequence[str],
) -> List[str]:
    """Return the line of `podman run` or `docker run`: they differ in users, limits and groups."""
    words = [*client(container, host), "run", "--rm", "--pull", "never", "--log-driver", "none", "--sig-proxy=false"]
    words += ["--cidfile", cidfile] if cidfile else []
    words += ["--label", "%s=%s" % (LABEL, label), "--network", "host", "--ipc", "host", "--uts", "host"]
    words += ["--workdir", folder, "--pids-limit", "-1", *_each("--security-opt", UNCONFINED), *_user(container, host)]
    # podman's and docker's own limits may be higher than this user's, who could not set them.
    words += _each("--ulimit", ["%s=%d:%d" % (name, hard, hard) for name, hard in host.limits])
    words += _each(
        "--mount",
        [_fields("type=bind", "src=" + a, "dst=" + b, *_read_only(rw)) for a, b, rw in _binds(folder, container)],
    )
    words += ["--device", "/dev/infiniband"] if host.infiniband else []
    # By CDI, and all of them: ranks then count them as they do without a container.
    words += ["--device", "nvidia.com/gpu=all"] if container["gpus"] else []
    return [*words, *_each("--env", env), "--entrypoint", container["python"], container["image"], *command]


def _user(container: Container, host: Host) -> List[str]:
    """Return the options for the launches' user.

    Root in a rootless podman's container is that one, in one of docker's daemon root is root.
    """
    rights = _each("--cap-add", PINS) if host.uid == 0 else []
    if container["runtime"] == "podman":
        return ["--user", "0:0", *rights]
    return ["--user", "%d:%d" % (host.uid, host.gid), *_each("--group-add", map(str, host.groups)), *rights]


def _each(option: str, values: Iterable[str]) -> List[str]:
    return [word for value in values for word in (option, value)]


def _read_only(writable: bool) -> Tuple[str, ...]:
    return () if writable else ("readonly",)


def _fields(*fields: str) -> str:
    """Return the value of `--mount`: fields with commas between, quoted as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()


def _enroot(
    container: Container,
    host: Host,
    *,
    folder: str,
    cidfile: str,
    label: str,
    env: Sequence[str],
    command: Sequence[str],
) -> List[str]:
    """Return the line of `enroot start`: no daemon, namespaces of users and mounts alone, no entry point."""
    del cidfile, label
    words = [*client(container, host), "start", "--rw", "--rc", "%s/%s" % (folder, COMMAND_SCRIPT)]
    for source, target, writable in _binds(folder, container):
        words += ["--mount", "%s:%s:none:x-create=auto,rbind,%s" % (source, target, "rw" if writable else "ro")]
    if host.infiniband:
        words += ["--mount", "/dev/infiniband:/dev/infiniband:none:x-create=dir,rbind"]
    if container["gpus"]:
        words += ["--env", "NVIDIA_VISIBLE_DEVICES=all"]  # read by its hook for NVIDIA's driver
    for variable in env:
        words += ["--env", variable]
    return [*words, "--", container["image"], container["python"], *command]


def _pyxis(
    container: Container,
    host: Host,
    *,
    folder: str,
    cidfile: str,
    label: str,
    env: Sequence[str],
    command: Sequence[str],
) -> List[str]:
    """Return the line of an `srun` step on this very host, with the plugin pyxis, inside of the allocation."""
    del cidfile, label
    mounts = _binds(folder, container)
    mounts += [("/dev/infiniband", "/dev/infiniband", True)] if host.infiniband else []
    seen = ",".join("%s:%s%s" % (source, target, "" if rw else ":ro") for source, target, rw in mounts)
    words = [*client(container, host), "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=" + host.node, "--mem=0"]
    words += ["--container-image=" + container["image"], "--container-mounts=" + seen, "--container-workdir=" + folder]
    words += ["--no-container-mount-home", "--no-container-entrypoint", "--no-container-remap-root"]
    visible = ["NVIDIA_VISIBLE_DEVICES=all"] if container["gpus"] else []
    words += ["--export=" + ",".join(["ALL", *visible, *env])]
    return [*words, container["python"], *command]


LINES: Dict[str, Callable[..., List[str]]] = {
    "podman": _daemonic,
    "docker": _daemonic,
    "enroot": _enroot,
    "pyxis": _pyxis,
}
