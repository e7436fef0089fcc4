"""How fast files come home from an agent and how fast it answers, beside scp, sftp and commands over SSH."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.core.deadline import Deadline
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.transport import ssh
from orchestrator.remote.transport.ssh_config import SshTarget
from tests.bench import local
from tests.bench.commands import ROOT, call
from tests.bench.figure import Figure, Settings

NODE, OTHER = "h1", "h2"  # one reached through the SSH proxy, one directly
FETCH_S = 300.0


def measure(settings: Settings) -> Iterator[Figure]:
    """A file that does not compress from a host of a local testbed: through the SSH proxy all alike, then directly."""
    size = settings.times(256, 64) << 20
    folder = settings.scratch / "transport"
    with local.machine_to_ourselves(), local.up(local.made(2), folder) as testbed:
        proxy = testbed.ssh_proxy().folder
        target = SshTarget(name=NODE, host=NODE, config=proxy / "ssh_config")
        deadline = Deadline.after(local.CALL_S)
        python = testbed.topology.node(NODE).python
        with (
            local.client(testbed, NODE, ssh.connect(target, python=python, deadline=deadline)) as through_proxy,
            local.client(testbed, OTHER) as direct,
        ):
            names = {name: Path(testbed.topology.node(name).folder(testbed.run_id)).name for name in (NODE, OTHER)}
            big = folder / "hosts" / NODE / names[NODE] / "big"
            _random_file(big, size)
            (folder / "hosts" / OTHER / names[OTHER] / "big").hardlink_to(big)
            remote = f"{testbed.topology.node(NODE).folder(testbed.run_id)}/big"
            yield from _throughput(
                size,
                settings,
                ways={
                    "agent, through the SSH proxy": lambda to: _fetch(through_proxy, to),
                    "agent, direct": lambda to: _fetch(direct, to),
                    "scp": lambda to: _copy(
                        ["scp", "-q", "-F", str(proxy / "ssh_config"), f"{NODE}:{remote}", str(to)]
                    ),
                    "sftp": lambda to: _copy(
                        ["sftp", "-q", "-F", str(proxy / "ssh_config"), f"{NODE}:{remote}", str(to)]
                    ),
                },
            )
            yield from _round_trips(direct, proxy, settings)


def _throughput(size: int, settings: Settings, *, ways: dict[str, Callable[[Path], None]]) -> Iterator[Figure]:
    rates: dict[str, list[float]] = {name: [] for name in ways}
    target = settings.scratch / "fetched"
    for _ in range(settings.times(5, 2)):
        for name, bring in ways.items():
            began = time.perf_counter()
            bring(target)
            rates[name].append(size / (time.perf_counter() - began) / 1e6)
            if target.stat().st_size != size:
                raise AssertionError(f"{name} brought {target.stat().st_size} of {size} bytes")
            target.unlink()
    yield Figure(what="fetch by an agent, direct", unit="MB/s", values=tuple(rates["agent, direct"]))
    for peer in ("scp", "sftp"):
        yield Figure(
            what="fetch by an agent, through the SSH proxy",
            unit="MB/s",
            values=tuple(rates["agent, through the SSH proxy"]),
            against=peer,
            reference=tuple(rates[peer]),
        )


def _round_trips(client: AgentClient, proxy: Path, settings: Settings) -> Iterator[Figure]:
    """A question to an agent against the same by a command over a connection that is open already."""
    asked = [_timed(lambda: client.disk(Deadline.after(local.CALL_S))) for _ in range(settings.times(300, 100))]
    argv = ["ssh", "-F", str(proxy / "ssh_config"), "-o", f"ControlPath={proxy}/mux"]
    master = subprocess.Popen(
        [*argv, "-M", "-N", NODE],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=ROOT,
    )
    try:
        Deadline.after(local.CALL_S).poll((proxy / "mux").exists, every_s=0.01, waiting_for="ssh's connection")
        commands = [_timed(lambda: call([*argv, NODE, "df /run"], cwd=ROOT)) for _ in range(settings.times(30, 10))]
    finally:
        master.terminate()
        master.wait()
    ours, theirs = tuple(s * 1e3 for s in asked), tuple(s * 1e3 for s in commands)
    yield Figure(
        what="round trip to an agent (free disk space)",
        unit="ms",
        values=ours,
        against="ssh df, connection kept open",
        reference=theirs,
    )


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _random_file(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for _ in range(size >> 20):
            file.write(os.urandom(1 << 20))


def _fetch(client: AgentClient, target: Path) -> None:
    deadline = Deadline.after(FETCH_S)
    (big,) = (file for file in client.files(deadline) if file.path == "big")
    client.fetch(big, target.parent, deadline)
    (target.parent / big.path).rename(target)


def _copy(argv: list[str]) -> None:
    call(argv, within_s=FETCH_S, cwd=ROOT)
