"""PID 1 of a local testbed: builds namespaces for a switch and its hosts, and takes them down when its owner goes.

One file, since it is started as a program by its path, with Python isolated from everything beside it (-I -S).

Started inside fresh user (without root), network, mount, PID, UTS and IPC namespaces with one argument: the number of
a descriptor, one end of a SOCK_SEQPACKET pair whose other end only the owner holds. One JSON object a message.

    owner:   {"files": {path: text}, "bind": [[source, target]], "limit_s": seconds, "ip": version of IP,
              "neighbours": {device: {address: mac}},
              "switch": {"ip": [line], "tc": [line], "plain": [device]},
              "nodes": [{"name", "folder", "work", "network": whether it has one of its own,
                         "first": whether the others wait until it is set up,
                         "links": [line, with "{pid[NODE]}" for a node's PID], "ip": [line], "tc": [line],
                         "plain": [device], "sysctls": {name: value}, "files": {path: [mode, text]}, "sshd": [word],
                         "joins": whether it is a container's}]}
             and for each node that is a container's its network and its mount namespace as ancillary data
    sandbox: {"ready": seconds} or {"error": what, "step": which, "argv": [...], "tail": output, "node": name}
    owner:   {"socket": node}
    sandbox: {"socket": node} with an unconnected TCP socket of that node as ancillary data, or {"error": what, "tail"}

The end of the owner's stream ends this process at any time, and with it, by the kernel, everything in the namespaces.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Union

if TYPE_CHECKING:
    from orchestrator.agents.local.sandbox_messages import Failure, NodeSetup, Outcome, Setup, SocketRequest

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x20000000,
    0x40000000,
)
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MNT_DETACH = 2, 4, 8, 32, 4096, 2
MS_REC, CONTROL_GROUPS = 16384, "/sys/fs/cgroup"
SIOCETHTOOL = 0x8946
ETHTOOL_GSTRINGS, ETHTOOL_GSSET_INFO, ETHTOOL_SFEATURES, ETH_SS_FEATURES, STRING_BYTES = 0x1B, 0x37, 0x3B, 4, 32
MESSAGE_BYTES, MOST_DESCRIPTORS = 4 << 20, 253  # the kernel passes on no more of them at once
# addr_gen_mode 1: no address of the link's own; who has none asks for no router.
QUIET_IPV6 = {"disable_ipv6": 0, "accept_ra": 0, "autoconf": 0, "dad_transmits": 0, "addr_gen_mode": 1}
LIBC = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """A step of the set-up failed; `report` goes to the owner."""

    def __init__(
        self, error: str, *, step: str, argv: Sequence[str] = (), tail: str = "", node: Optional[str] = None
    ) -> None:
        super().__init__(error)
        self.report: Failure = {"error": error, "step": step, "argv": list(argv), "tail": tail, "node": node}


class Joined(NamedTuple):
    """Descriptors of a container's namespaces."""

    network: int
    mounts: int


def libc(name: str, *arguments: Any) -> None:
    if getattr(LIBC, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def mount(
    source: "str | Path",
    target: "str | Path",
    kind: Optional[str] = None,
    *,
    flags: int = 0,
    data: Optional[str] = None,
) -> None:
    names = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    try:
        libc("mount", *names, ctypes.c_ulong(flags), None if data is None else data.encode())
    except OSError as error:
        what = "cannot mount %s at %s: %s" % (kind or source, target, error.strerror)
        raise Failed(what, step="mounts") from error


def batch(program: str, lines: Sequence[str], *, step: str) -> None:
    """Run many commands of ip or tc in one process."""
    if not lines:
        return
    argv = [program, "-batch", "-"]
    done = subprocess.run(  # noqa: PLW1510  # its status is read below, together with what it printed
        argv, input="\n".join(lines) + "\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
    )
    if done.returncode != 0:
        argv = [program, *guilty(lines, done.stdout)]
        raise Failed("cannot set up the %s" % step, step=step, argv=argv, tail=done.stdout)


def guilty(lines: Sequence[str], output: str) -> List[str]:
    """Return the words of the line that `ip -batch` or `tc -batch` complained of ("Command failed -:3")."""
    for word in output.split():
        if word.startswith("-:") and word[2:].isdigit() and 0 < int(word[2:]) <= len(lines):
            return lines[int(word[2:]) - 1].split()
    return ["-batch", "-"]


def ethtool(control: socket.socket, device: str, request: bytes) -> bytes:
    """Make one SIOCETHTOOL call (linux/ethtool.h) on a device; the kernel answers in the same bytes."""
    buffer = array.array("B", request)
    fcntl.ioctl(control, SIOCETHTOOL, struct.pack("16sP16x", device.encode(), buffer.buffer_info()[0]))
    return buffer.tobytes()


def super_packet_bits(control: socket.socket, device: str) -> Dict[int, int]:
    """Return the features that make or merge packets larger than the MTU, as bits in blocks of 32."""
    answer = ethtool(control, device, struct.pack("=IIQI", ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0))
    (count,) = struct.unpack_from("=I", answer, 16)
    request = struct.pack("=III", ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count) + bytes(count * STRING_BYTES)
    answer = ethtool(control, device, request)[12:]
    blocks = dict.fromkeys(range((count + 31) // 32), 0)
    for bit in range(count):
        name = answer[bit * STRING_BYTES : (bit + 1) * STRING_BYTES].split(b"\0")[0]
        if name.endswith(b"-segmentation") or name in (b"rx-gro", b"rx-lro", b"rx-gro-list"):
            blocks[bit // 32] |= 1 << bit % 32
    return blocks


def per_packet(devices: Sequence[str]) -> None:
    """Switch off segmentation and receive offloads, so that frames on the link are no larger than the MTU."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for device in devices:
            try:
                blocks = super_packet_bits(control, device)
                words = [word for block in sorted(blocks) for word in (blocks[block], 0)]
                ethtool(control, device, struct.pack("=%dI" % (2 + len(words)), ETHTOOL_SFEATURES, len(blocks), *words))
            except OSError as error:
                what = "cannot switch off the offloads of %s: %s" % (device, error.strerror)
                raise Failed(what, step="offloads") from error


def write_sysctls(settings: Dict[str, Union[int, str]]) -> None:
    for name, value in settings.items():
        path = Path("/proc/sys", name.replace(".", "/"))
        try:
            path.write_text("%s\n" % value)
        except OSError as error:
            what = "cannot set sysctl %s to %s: %s" % (name, value, error.strerror)
            raise Failed(what, step="sysctls") from error


def open_settings(mounts: int) -> None:
    """Make the settings of a container's network in /proc/sys writable."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            libc("setns", mounts, CLONE_NEWNS)
            mount("/proc/sys/net", "/proc/sys/net", flags=MS_BIND)
            mount("none", "/proc/sys/net", flags=MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOEXEC)
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1] != 0:
        raise Failed("cannot open the network's settings to the container", step="containers")


def no_router_chatter(version: int) -> None:
    """Switch off IPv6 for devices made from here on, whose own packets would be in every capture.

    Where the data plane is of IPv6 they carry it with the addresses that they are given, and ask nobody for more.
    """
    conf = Path("/proc/sys/net/ipv6/conf")
    if version == 4:
        if conf.exists():
            (conf / "default/disable_ipv6").write_text("1\n")
        return
    if not conf.exists():
        raise Failed("this kernel has no IPv6", step="addresses")
    for name, value in QUIET_IPV6.items():
        (conf / "default" / name).write_text("%d\n" % value)
    (conf / "all/disable_ipv6").write_text("0\n")


def private_files(files: Dict[str, str], binds: Sequence[Sequence[str]]) -> None:
    """Mount files that exist nowhere else over the machine's own, for everything in this mount namespace."""
    mount("tmpfs", "/run", "tmpfs", flags=MS_NOSUID | MS_NODEV, data="mode=755")
    for number, (target, text) in enumerate(sorted(files.items())):
        place = Path("/run/file%d" % number)
        place.write_text(text)
        place.chmod(0o600 if target.endswith("shadow") else 0o644)
        if Path(target).exists():
            mount(place, target, flags=MS_BIND)
    Path("/run/empty").mkdir(mode=0o755)
    for source, target in binds:
        if Path(target).exists():
            mount("/run/empty" if source == "empty" else source, target, flags=MS_BIND)
    libc("umount2", b"/run", MNT_DETACH)


# --- a node, from fork to sshd ---------------------------------------------------------------------------------------


def node_files(node: NodeSetup) -> None:
    """Mount a node's own /run, /dev/shm, /proc and /sys, and the node's run folder where the owner sees it too."""
    shared = os.open(node["folder"], os.O_PATH)
    mount("tmpfs", "/run", "tmpfs", flags=MS_NOSUID | MS_NODEV, data="mode=755")
    for folder in ("/run/sshd", "/run/lock", node["work"]):
        Path(folder).mkdir(mode=0o755, parents=True)
    mount("/proc/self/fd/%d" % shared, node["work"], flags=MS_BIND)
    os.close(shared)
    if Path("/dev/shm").is_dir():
        mount("tmpfs", "/dev/shm", "tmpfs", flags=MS_NOSUID | MS_NODEV, data="mode=1777")
    for name, (mode, text) in node["files"].items():
        path = Path(name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=mode)
        path.write_text(text)
    mount("proc", "/proc", "proc", flags=MS_NOSUID | MS_NODEV | MS_NOEXEC)
    # The control groups that the node is in: containers on it get theirs below.
    groups = os.open(CONTROL_GROUPS, os.O_PATH) if Path(CONTROL_GROUPS).is_dir() else None
    mount("sysfs", "/sys", "sysfs", flags=MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if groups is not None:
        mount("/proc/self/fd/%d" % groups, CONTROL_GROUPS, flags=MS_BIND | MS_REC)
        os.close(groups)


def known(node: NodeSetup, neighbours: Dict[str, Dict[str, str]]) -> List[str]:
    """Return commands of ip for permanent neighbour entries of all hosts, itself too: nothing asks for MACs."""
    line = "neigh replace %s lladdr %s dev %s nud permanent"
    rails = neighbours.items() if node["network"] else ()
    return [line % (address, mac, device) for device, hosts in rails for address, mac in hosts.items()]


def node_init(node: NodeSetup, version: int, go: int, report: int, waiting: socket.socket) -> None:
    """Become PID 1 of the node: set it up, wait for its link, then turn into sshd, which reaps what it inherits."""
    try:
        socket.sethostname(node["name"])
        node_files(node)
        if node["network"]:
            no_router_chatter(version)
        waiting.send(b"waiting")
        if not os.read(go, 1):
            return
        batch("ip", node["ip"], step="addresses")
        per_packet(node["plain"])
        write_sysctls(node["sysctls"])
        batch("tc", node["tc"], step="rate of the link")
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execve(node["sshd"][0], node["sshd"], dict(os.environ))  # noqa: S606  # an argument list
    except Failed as failure:
        failed: Failure = {**failure.report, "node": node["name"]}
    except OSError as error:
        failed = {"error": str(error), "step": "node", "node": node["name"]}
    os.write(report, json.dumps(failed).encode())


class Start(NamedTuple):
    """A forked node: its parent process, the pipe that lets it go on, and the one that reports failures."""

    middle: int
    told: socket.socket
    go: int
    report: int


def fork_node(node: NodeSetup, version: int, log: int, joined: "Optional[Joined]") -> Start:
    """Start a node, in a container's network where it has joined one."""
    separate = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID
    if node["network"] and joined is None:
        separate |= CLONE_NEWNET
    wait_go, go = os.pipe()
    report, tell = os.pipe()
    events, telling = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    middle = os.fork()
    if middle == 0:
        status = 1
        try:
            null = os.open(os.devnull, os.O_RDWR)
            for target, source in ((0, null), (1, null), (2, log)):
                os.dup2(source, target)
            os.close(go)
            if joined is not None:
                libc("setns", joined.network, CLONE_NEWNET)
            libc("unshare", separate)
            child = os.fork()
            if child == 0:
                os.setsid()
                node_init(node, version, wait_go, tell, telling)
            else:
                telling.send(b"%d" % child)
                status = 0
        except OSError as error:
            os.write(tell, json.dumps({"error": str(error), "step": "namespaces", "node": node["name"]}).encode())
        finally:
            os._exit(status)
    telling.close()
    os.close(wait_go)
    os.close(tell)
    return Start(middle, events, go, report)


def hear_pid(start: Start) -> int:
    """Return the node's PID as seen from here, once the node waits for its link; raise the failure it reports."""
    said = [start.told.recv(32), start.told.recv(32)]  # its first parent and itself, in any order
    start.told.close()
    os.waitpid(start.middle, 0)
    if b"" in said:
        hear_report(start)
        raise Failed("a node's namespaces could not be made", step="namespaces")
    said.remove(b"waiting")
    return int(said[0])


def let_go(start: Start) -> None:
    """Tell a node that its links are there."""
    os.write(start.go, b"g")
    os.close(start.go)


def text_of(descriptor: int) -> str:
    parts: List[bytes] = []
    while True:
        part = os.read(descriptor, 65536)
        if not part:
            return b"".join(parts).decode(errors="replace")
        parts.append(part)


def hear_report(start: Start) -> None:
    """Wait until the node has become sshd, which closes this descriptor; raise the failure it reports."""
    text = text_of(start.report)
    os.close(start.report)
    if text:
        raise Failed(**json.loads(text))


def wait_listening(name: str, pid: int, *, log: int, until: float) -> None:
    """Wait until something in the node listens on TCP port 22 of its loopback."""
    table = Path("/proc/%d/net/tcp" % pid)
    while True:
        try:
            rows = [row.split() for row in table.read_text().splitlines()[1:]]
        except OSError as error:
            raise Failed("sshd ended at once", step="sshd", tail=log_text(log), node=name) from error
        if any(row[1] == "0100007F:0016" and row[3] == "0A" for row in rows):
            return
        if time.monotonic() > until:
            raise Failed("sshd does not listen", step="sshd", tail=log_text(log), node=name)
        time.sleep(0.002)


def build(document: Setup, logs: Dict[str, int], joined: "Dict[str, Joined]") -> Dict[str, int]:
    """Build everything from an empty sandbox to hosts that answer; return the PID of every node."""
    private_files(document["files"], document["bind"])
    no_router_chatter(4)  # of the switch, whose ports have no addresses
    for container in joined.values():
        open_settings(container.mounts)
    per_node = document["nodes"]
    for node in per_node:
        node["ip"] += known(node, document["neighbours"])
    starts = {
        node["name"]: fork_node(node, document["ip"], logs[node["name"]], joined.get(node["name"])) for node in per_node
    }
    pids = {name: hear_pid(start) for name, start in starts.items()}
    batch("ip", document["switch"]["ip"], step="switch")
    links = [line.format(pid=pids) for node in per_node for line in node["links"]]
    batch("ip", links, step="links")
    first = [node["name"] for node in per_node if node["first"]]
    for name in first:
        let_go(starts[name])
    for name in first:
        hear_report(starts.pop(name))
    for start in starts.values():
        let_go(start)
    trouble: Optional[Failed] = None
    try:
        per_packet(document["switch"]["plain"])
        batch("tc", document["switch"]["tc"], step="rates of the switch's ports")
    except Failed as failure:
        trouble = failure
    for start in starts.values():  # a host that failed took its end of the link along, and is the cause
        hear_report(start)
    if trouble is not None:
        raise trouble
    until = time.monotonic() + document["limit_s"]
    for name, pid in pids.items():
        wait_listening(name, pid, log=logs[name], until=until)
    return pids


def log_text(log: int) -> str:
    return os.pread(log, 4096, max(0, os.fstat(log).st_size - 4096)).decode(errors="replace")


# --- PID 1 -----------------------------------------------------------------------------------------------------------


def hear_document(owner: socket.socket) -> "tuple[bytes, array.array[int]]":
    """Receive the owner's first message, and the descriptors that came along."""
    most = socket.CMSG_SPACE(4 * MOST_DESCRIPTORS)
    message, ancillary, _, _ = owner.recvmsg(MESSAGE_BYTES, most, socket.MSG_CMSG_CLOEXEC)
    given = array.array("i")
    for _, _, payload in ancillary:
        given.frombytes(payload)
    return message, given


def containers(document: Setup, given: Sequence[int]) -> "Dict[str, Joined]":
    """Return the namespaces of the nodes that are containers, by the nodes' names."""
    names = [node["name"] for node in document["nodes"] if node["joins"]]
    return {name: Joined(*given[2 * number : 2 * number + 2]) for number, name in enumerate(names)}


def start_builder(document: Setup, logs: Dict[str, int], joined: "Dict[str, Joined]") -> "tuple[int, int]":
    """Build in a process of its own, so that this one can watch its owner. Returns its PID and where it tells."""
    outcome, tell = os.pipe()
    builder = os.fork()
    if builder == 0:
        try:
            try:
                built: Outcome = {"pids": build(document, logs, joined)}
                message: Failure = built
            except Failed as failure:
                message = failure.report
            except (OSError, ValueError, KeyError) as error:
                message = {"error": repr(error), "step": "sandbox"}
            with os.fdopen(tell, "wb") as stream:
                stream.write(json.dumps(message).encode())
        finally:
            os._exit(0)
    os.close(tell)
    return builder, outcome


def wait_built(owner: socket.socket, outcome: int) -> Optional[Outcome]:
    """Return what the builder says, or None when the owner has gone first."""
    parts: List[bytes] = []
    poll = select.poll()
    poll.register(owner, select.POLLRDHUP)
    poll.register(outcome, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == owner.fileno():
                return None
            part = os.read(outcome, 65536)
            if not part:
                nothing = b'{"error": "the sandbox ended in the midst", "step": "sandbox"}'
                built: Outcome = json.loads(b"".join(parts) or nothing)
                return built
            parts.append(part)


def socket_in(namespace: int, own: int) -> socket.socket:
    """Create a TCP socket in another network namespace, to which it belongs from then on."""
    libc("setns", namespace, CLONE_NEWNET)
    try:
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    finally:
        libc("setns", own, CLONE_NEWNET)


def answer(
    owner: socket.socket, request: SocketRequest, *, namespaces: Dict[str, int], ended: "set[str]", logs: Dict[str, int]
) -> None:
    name = request["socket"]
    if name not in namespaces:
        owner.send(json.dumps({"error": "no such node", "tail": ""}).encode())
    elif name in ended:
        owner.send(json.dumps({"error": "its sshd has ended", "tail": log_text(logs[name])}).encode())
    else:
        with socket_in(namespaces[name], namespaces[""]) as made:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [made.fileno()]))]
            owner.sendmsg([json.dumps({"socket": name}).encode()], rights)


def opened_namespaces(pids: Dict[str, int], logs: Dict[str, int]) -> Dict[str, int]:
    """Open every node's network namespace, so that it outlives the node's sshd; "" is this process's own."""
    namespaces = {"": os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)}
    for name, pid in pids.items():
        try:
            namespaces[name] = os.open("/proc/%d/ns/net" % pid, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Failed("sshd ended at once", step="sshd", tail=log_text(logs[name]), node=name) from None
    return namespaces


def serve(owner: socket.socket, pids: Dict[str, int], namespaces: Dict[str, int], logs: Dict[str, int]) -> None:
    """Answer the owner until it goes."""
    names = {pid: name for name, pid in pids.items()}
    ended: "set[str]" = set()
    while True:
        message = owner.recv(MESSAGE_BYTES)
        if not message:
            return
        ended.update(names[pid] for pid in reaped() if pid in names)
        answer(owner, json.loads(message), namespaces=namespaces, ended=ended, logs=logs)


def reaped() -> Iterator[int]:
    """Yield the PIDs of children that have ended since the last call."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid


def main() -> None:
    begun = time.monotonic()
    owner = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(owner.fileno(), False)
    os.umask(0o022)
    try:
        message, given = hear_document(owner)
        if not message:
            return
        document: Setup = json.loads(message)
        joined = containers(document, given)
        logs = {node["name"]: os.memfd_create(node["name"]) for node in document["nodes"]}
        builder, outcome = start_builder(document, logs, joined)
        for descriptor in given:
            os.close(descriptor)
        built = wait_built(owner, outcome)
        if built is None:
            return
        os.waitpid(builder, 0)
        if "pids" not in built:
            owner.send(json.dumps(built).encode())
            return
        try:
            namespaces = opened_namespaces(built["pids"], logs)
        except Failed as failure:
            owner.send(json.dumps(failure.report).encode())
            return
        owner.send(json.dumps({"ready": time.monotonic() - begun}).encode())
        serve(owner, built["pids"], namespaces, logs)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ECONNRESET):
            raise


if __name__ == "__main__":
    main()
