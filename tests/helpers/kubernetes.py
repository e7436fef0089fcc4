"""A cluster of Kubernetes on this machine, of its own programs: one control plane, and machines with a kubelet each.

A machine is a process in namespaces of its own (processes, network, mounts, name), so that all of it goes with that one
process: daemons, containers, devices, rules and mounts. What else is changed is undone at the end: control groups, and
the settings of the kernel that every kubelet makes. It needs root and control groups of version 1, as the kubelet of
Kubernetes 1.20 takes them here; `KUBERNETES_BIN` names the folder of etcd, kube-apiserver, kube-controller-manager,
kube-scheduler and kubelet. Containerd, runc, the plugins of CNI, kubectl and a compiler of C are this machine's own.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.helpers.orch_runs import wait_for

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
IMAGE = "docker.io/library/machine:1"
_SERVER = "10.90.0.254"  # the control plane, on the network between machines
_SWITCH = "machines"
_CGROUPS = Path("/sys/fs/cgroup")
# Those that `setupKernelTunables` of the kubelet writes (pkg/kubelet/cm/container_manager_linux.go).
_KUBELET_SETS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
_USERS = {
    "admin": ("admin", "system:masters"),
    "user": ("user", ""),
    "manager": ("system:kube-controller-manager", "system:masters"),
    "scheduler": ("system:kube-scheduler", ""),
}
_PAUSE = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"
_LINKS = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}


class Machine:
    """A process in its own namespaces, and what runs in them; all of it ends with the process."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        own = ["--pid", "--fork", "--kill-child", "--mount-proc", "--mount", "--net", "--uts"]
        private = " && ".join(f"mount -t tmpfs tmpfs {at}" for at in ("/run", "/var/lib", "/var/log"))
        setup = f"hostname {name} && {private} && ip link set lo up && exec sleep infinity"
        self._holder = subprocess.Popen(["unshare", *own, "sh", "-c", setup])
        self._started: list[subprocess.Popen[bytes]] = []
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        wait_for(lambda: children.read_text().strip(), what=f"the machine {name}")
        self.pid = int(children.read_text())
        wait_for(lambda: Path(f"/proc/{self.pid}/comm").read_text() == "sleep\n", what=f"the machine {name}")

    def argv(self, *argv: str) -> list[str]:
        """The command that runs another one in this machine."""
        return ["nsenter", f"--target={self.pid}", "--pid", "--mount", "--net", "--uts", "--", *argv]

    def run(self, *argv: str) -> bytes:
        """What a command in this machine prints."""
        return subprocess.run(self.argv(*argv), stdin=subprocess.DEVNULL, check=True, capture_output=True).stdout

    def start(self, *argv: str) -> None:
        """Start a daemon in this machine; what it says goes to a file of its name."""
        with (self._folder / f"{self.name}-{Path(argv[0]).name}.log").open("ab") as log:
            self._started.append(
                subprocess.Popen(self.argv(*argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder)
            )

    def end(self) -> None:
        """End the machine as if its power went."""
        self._holder.kill()
        for process in (*self._started, self._holder):
            process.wait()


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that is up: where kubectl works, and its machines."""

    folder: Path
    server: Machine
    machines: Sequence[Machine]

    def kubeconfig(self, user: str = "admin") -> Path:
        """The kubeconfig of a user: `admin`, or `user` who may do nothing yet."""
        return self.folder / f"{user}.kubeconfig"

    def entering(self) -> list[str]:
        """The words before a command of this machine that has to reach the cluster; nothing else is different in it."""
        return ["nsenter", f"--target={self.server.pid}", "--net", "--"]

    def kubectl(self, *argv: str, given: str | None = None, user: str = "admin") -> str:
        """What kubectl prints."""
        command = [*self.entering(), "kubectl", f"--kubeconfig={self.kubeconfig(user)}", *argv]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create objects."""
        self.kubectl("apply", "--filename=-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


def missing(binaries: Path) -> list[str]:
    """The programs that a cluster lacks here."""
    lacks = [name for name in PROGRAMS if not os.access(binaries / name, os.X_OK)]
    return lacks + [name for name in ("containerd", "ctr", "runc", "kubectl", "cc") if not shutil.which(name)]


@contextmanager
def up(folder: Path, binaries: Path, machines: int) -> Iterator[Cluster]:
    """A cluster with so many machines, ready for pods of `IMAGE` (see `pod_spec`)."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as undo:
        undo.enter_context(_settings_kept())
        server = Machine("server", folder)
        undo.callback(server.end)
        server.run("ip", "link", "add", _SWITCH, "type", "bridge")
        server.run("ip", "address", "add", f"{_SERVER}/24", "dev", _SWITCH)
        server.run("ip", "link", "set", _SWITCH, "up")
        _control_plane(server, folder, binaries, machines)
        image = _image(folder)
        found = []
        for number in range(1, machines + 1):
            undo.enter_context(_control_groups(f"n{number}"))
            machine = Machine(f"n{number}", folder)
            undo.callback(machine.end)
            _plugged(server, machine, number, machines)
            _kubelet(machine, number, folder, binaries, image)
            found.append(machine)
        cluster = Cluster(folder, server, found)
        wait_for(lambda: _ready(cluster) == machines, what="machines that are ready", within_s=120)
        wait_for(
            lambda: "default" in cluster.kubectl("get", "serviceaccounts"), what="the account of pods", within_s=60
        )
        yield cluster


def _ready(cluster: Cluster) -> int:
    told = cluster.kubectl("get", "nodes", "--output=json")
    states = [item["status"].get("conditions", ()) for item in json.loads(told)["items"]]
    return sum(any(one["type"] == "Ready" and one["status"] == "True" for one in state) for state in states)


@contextmanager
def _settings_kept() -> Iterator[None]:
    files = [Path("/proc/sys") / name for name in _KUBELET_SETS]
    before = {file: file.read_text() for file in files}
    try:
        yield
    finally:
        for file, value in before.items():
            file.write_text(value)


def _own_group() -> str:
    """The group of this process that stops and resumes it: pods stand below it, and obey to it as well."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "freezer":
            return path.rstrip("/")
    raise OSError("no control groups of version 1")


def _hierarchies() -> list[Path]:
    """Where each hierarchy of control groups is mounted, links left out."""
    return [path for path in sorted(_CGROUPS.iterdir()) if path.is_dir() and not path.is_symlink()]


@contextmanager
def _control_groups(machine: str) -> Iterator[None]:
    """A group in every hierarchy for a machine's containers; those of containers that were killed go with it."""
    group = f"{_own_group()}/{machine}".lstrip("/")
    made: list[Path] = []
    try:
        for hierarchy in _hierarchies():
            for part in (*reversed(Path(group).parents), Path(group)):
                folder = hierarchy / part
                if not folder.exists():
                    folder.mkdir()
                    made.append(folder)
                    for name in ("cpuset.cpus", "cpuset.mems"):
                        if (folder / name).exists():
                            (folder / name).write_text((folder.parent / name).read_text())
        yield
    finally:
        for folder in reversed(made):
            for inner, _, _ in os.walk(folder, topdown=False):
                wait_for(lambda inner=inner: _removed(Path(inner)), what=f"{inner} without processes")


def _removed(folder: Path) -> bool:
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()


def _plugged(server: Machine, machine: Machine, number: int, machines: int) -> None:
    """Give a machine a device eth0 that leads to the others, and routes to their pods."""
    link = ["type", "veth", "peer", "name", "eth0", "netns", "/proc/self/fd/0"]
    with Path(f"/proc/{machine.pid}/ns/net").open("rb") as network:
        subprocess.run(server.argv("ip", "link", "add", machine.name, *link), stdin=network, check=True)
    server.run("ip", "link", "set", machine.name, "master", _SWITCH, "up")
    machine.run("ip", "address", "add", f"10.90.0.{number}/24", "dev", "eth0")
    machine.run("ip", "link", "set", "eth0", "up")
    machine.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    for other in range(1, machines + 1):
        if other != number:
            machine.run("ip", "route", "add", f"10.91.{other}.0/24", "via", f"10.90.0.{other}")


def _control_plane(server: Machine, folder: Path, binaries: Path, machines: int) -> None:
    key, tokens = folder / "accounts.key", folder / "tokens.csv"
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    users = {
        **_USERS,
        **{f"n{number}": (f"system:node:n{number}", "system:nodes") for number in range(1, machines + 1)},
    }
    tokens.write_text("".join(f'token-{key},{name},{key},"{group}"\n' for key, (name, group) in users.items()))
    tokens.chmod(0o600)
    for user in users:
        (folder / f"{user}.kubeconfig").write_text(json.dumps(_kubeconfig(f"token-{user}")))
    server.start(str(binaries / "etcd"), f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync")
    server.start(
        str(binaries / "kube-apiserver"),
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={_SERVER}",
        f"--cert-dir={folder / 'certificates'}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--service-cluster-ip-range=10.92.0.0/24",
        "--service-account-issuer=https://kubernetes",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--kubelet-preferred-address-types=InternalIP",
    )
    wait_for(lambda: _healthy(server), what="the API server", within_s=180)
    server.start(
        str(binaries / "kube-controller-manager"),
        f"--kubeconfig={folder / 'manager.kubeconfig'}",
        f"--service-account-private-key-file={key}",
        "--leader-elect=false",
    )
    server.start(
        str(binaries / "kube-scheduler"), f"--kubeconfig={folder / 'scheduler.kubeconfig'}", "--leader-elect=false"
    )


def _healthy(server: Machine) -> bool:
    words = ["nsenter", f"--target={server.pid}", "--net", "--", "curl", "-sk", f"https://{_SERVER}:6443/readyz"]
    return subprocess.run(words, capture_output=True, check=False).stdout == b"ok"


def _kubeconfig(token: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"https://{_SERVER}:6443", "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "lab",
    }


def _kubelet(machine: Machine, number: int, folder: Path, binaries: Path, image: Path) -> None:
    """Start a machine's containerd and kubelet."""
    own = folder / machine.name
    (own / "cni").mkdir(parents=True)
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": f"10.91.{number}.0/24"}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(own / "addresses"),
        },
    }
    network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
    (own / "cni/10-pods.conflist").write_text(json.dumps(network))
    socket = "/run/containerd/containerd.sock"
    (own / "containerd.toml").write_text(f"""version = 2
root = "{own}/containerd"
state = "/run/containerd"
[grpc]
address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{own}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{IMAGE}"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{own}/cni"
""")
    machine.start("/usr/bin/containerd", f"--config={own / 'containerd.toml'}")
    ctr = ("ctr", f"--address={socket}", "--namespace=k8s.io")
    wait_for(
        lambda: subprocess.run(machine.argv(*ctr, "version"), capture_output=True, check=False).returncode == 0,
        what=f"containerd of {machine.name}",
        within_s=60,
    )
    machine.run(*ctr, "images", "import", str(image))
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"{_own_group()}/{machine.name}",
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "100Mi"},
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "volumePluginDir": str(own / "volumes"),
    }
    (own / "kubelet.json").write_text(json.dumps(settings))
    machine.start(
        str(binaries / "kubelet"),
        f"--config={own / 'kubelet.json'}",
        f"--kubeconfig={folder / machine.name}.kubeconfig",
        f"--hostname-override={machine.name}",
        f"--node-ip=10.90.0.{number}",
        f"--root-dir={own / 'kubelet'}",
        f"--cert-dir={own / 'certificates'}",
        f"--seccomp-profile-root={own / 'seccomp'}",
        "--container-runtime=remote",
        f"--container-runtime-endpoint=unix://{socket}",
    )


def _image(folder: Path) -> Path:
    """Make an archive, as of `docker save`, of an image that holds a program that waits and places to mount at."""
    pause = folder / "pause"
    subprocess.run(["cc", "-static", "-x", "c", "-", "-o", pause], input=_PAUSE, text=True, check=True)
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(pause, "pause")
        for name in ("usr", "etc", "tmp", "var", "var/tmp", "run", "proc", "sys", "dev", "root"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
            tar.addfile(entry)
        for name, leads in _LINKS.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, leads
            tar.addfile(entry)
    (folder / "layer.tar").write_bytes(layer.getvalue())
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    about = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    (folder / "config.json").write_text(json.dumps(about))
    listed = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    (folder / "manifest.json").write_text(json.dumps(listed))
    archive = folder / "image.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("manifest.json", "config.json", "layer.tar"):
            tar.add(folder / name, name)
    return archive


def pod_spec(*, capabilities: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """A pod that waits, with this machine's programs, Python and project below it, read-only."""
    shown = ["/usr", "/etc", *_folders_of_python()]
    volumes = [{"name": f"v{place}", "hostPath": {"path": path}} for place, path in enumerate(shown)]
    mounts = [{"name": f"v{place}", "mountPath": path, "readOnly": True} for place, path in enumerate(shown)]
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "infinity"],
        "volumeMounts": mounts,
        "securityContext": {"runAsUser": 0, "capabilities": {"add": list(capabilities)}},
    }
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": volumes,
        **more,
    }


def _folders_of_python() -> list[str]:
    return sorted({os.path.realpath(path) for path in (sys.prefix, sys.base_prefix)} - {"/usr"})
