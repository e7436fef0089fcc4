"""Two hosts that are no more than network namespaces with a cable between them, for what needs no agent."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.agents.agent import bpf
from orchestrator.core.deadline import Deadline
from orchestrator.parts.launch import Launch, Line
from orchestrator.parts.rows import LaunchOutput


@dataclass
class Pair:
    """Two namespaces, each held by a process, and what was started in them."""

    folder: Path
    holders: dict[str, subprocess.Popen] = field(default_factory=dict)
    started: list[subprocess.Popen] = field(default_factory=list)

    def argv(self, node: str, *argv: str) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.holders[node].pid}/ns/net", "--", *argv]

    def do(self, node: str, *argv: str) -> str:
        return subprocess.run(self.argv(node, *argv), check=True, capture_output=True, text=True, timeout=120).stdout

    def popen(self, node: str, *argv: str, **options) -> subprocess.Popen:
        process = subprocess.Popen(self.argv(node, *argv), text=True, **options)
        self.started.append(process)
        return process

    def launch(self, launch: Launch) -> tuple[subprocess.Popen, LaunchOutput]:
        """Start it in a folder with its files, and wait until it is ready by its own condition."""
        folder = self.folder / launch.name
        folder.mkdir()
        for name, source in launch.files.items():
            shutil.copy(source, folder / name)
        with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
            process = self.popen(launch.node, *launch.argv, cwd=folder, stdout=out, stderr=err)

        def ready() -> bool:
            assert process.poll() is None, (folder / "stderr").read_text()
            if isinstance(launch.ready, Line):
                text = (folder / launch.ready.file).read_text()
                return re.search(launch.ready.pattern, text, re.MULTILINE) is not None
            return f":{launch.ready.port} " in self.do(launch.node, "ss", "-Htln")

        Deadline.after(launch.ready_within_s).poll(ready, every_s=0.01, waiting_for=launch.name)
        return process, self.output(launch)

    def output(self, launch: Launch) -> LaunchOutput:
        return LaunchOutput(
            folder=self.folder / launch.name,
            node=launch.node,
            launch=launch.name,
            job=None,
            rank=None,
            window="w1",
            source="iperf0",
            offset_ns=0,
        )

    def stop(self, process: subprocess.Popen, launch: Launch) -> None:
        number, grace_s = launch.stop.signals[0]
        process.send_signal(number)
        assert process.wait(60 + grace_s) in launch.stop.ok


@contextmanager
def plugged(folder: Path) -> Iterator[Pair]:
    """h1 with the device ea (10.77.0.1) and h2 with eb (10.77.0.2), without offloads and IPv6."""
    made = Pair(folder=folder)
    try:
        for node in ("h1", "h2"):
            made.holders[node] = subprocess.Popen(["unshare", "--net", "--", "sleep", "3600"])
        own = Path("/proc/self/ns/net").readlink()
        spaces = [Path(f"/proc/{holder.pid}/ns/net") for holder in made.holders.values()]
        Deadline.after(60).poll(
            lambda: all(space.readlink() != own for space in spaces), every_s=0.005, waiting_for="namespaces"
        )
        quiet = "for d in all default; do echo 1 >/proc/sys/net/ipv6/conf/$d/disable_ipv6; done"
        for node in made.holders:  # or the kernel sends packets of its own whenever it likes
            made.do(node, "sh", "-c", quiet)
        peer = str(made.holders["h2"].pid)
        made.do("h1", "ip", "link", "add", "ea", "type", "veth", "peer", "name", "eb", "netns", peer)
        for node, device, address in (("h1", "ea", "10.77.0.1/24"), ("h2", "eb", "10.77.0.2/24")):
            made.do(node, "ip", "address", "add", address, "dev", device)
            made.do(node, "ethtool", "-K", device, "tso", "off", "gso", "off")
            made.do(node, "ip", "link", "set", device, "up")
            made.do(node, "ip", "link", "set", "lo", "up")
        yield made
    finally:
        for process in (*made.started, *made.holders.values()):
            process.kill()
            process.wait(60)


def attached(pair: Pair, node: str, device: str, where: int) -> int:
    """The number of programs at a device, as the kernel says (BPF_PROG_QUERY)."""
    folder = Path(bpf.__file__).parent
    code = (
        f"import sys, socket, struct; sys.path.insert(0, {str(folder)!r}); import bpf\n"
        f"query = struct.pack('=IIII', socket.if_nametoindex({device!r}), {where}, 0, 0)\n"
        "print(struct.unpack_from('=I', bpf.call(16, query)[1], 24)[0])"
    )
    return int(pair.do(node, sys.executable, "-I", "-S", "-c", code))
