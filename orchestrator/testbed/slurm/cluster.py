"""A Slurm cluster on this machine, for tests: a login host with slurmctld, and hosts with a slurmd each.

Its hosts are those of a local testbed, and its daemons processes of agents there: what ends this process ends them all.
Munge, by which Slurm knows users, runs on every host with one key, made for this cluster.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import MissingRequirement
from orchestrator.core.machines import machine
from orchestrator.core.machines.packages import remedy
from orchestrator.parts.launch import Launch, Listening
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.testbed.local.netns import LocalSpec, NetnsTestbed
from orchestrator.testbed.local.netns_needs import find_program

LOGIN = "login"
DAEMONS = ("munged", "slurmctld", "slurmd", "srun")
CALL_S = 60.0
CONTROLLER_PORT, NODE_PORT = 6817, 6818
FOLDER = "/run/slurm"
CONFIG = f"{FOLDER}/conf"  # where Slurm's programs look when /etc has none
CGROUPS = "CgroupPlugin=cgroup/v1\n"  # said, since slurmd looks for those of the machine otherwise; none is used
GPUS = ("/dev/null", "/dev/zero")  # what stands for those of a node: any files
MUNGE = "/run/munge"  # the socket's usual place
_IDLE_EVERY_S = 0.02


def spec(hosts: int, *, link_bps: float) -> LocalSpec:
    """Return a local testbed of n1, n2, ... and a login host."""
    names = (*(f"n{number}" for number in range(1, hosts + 1)), LOGIN)
    return LocalSpec(hosts=names, rates=dict.fromkeys(names, link_bps))


def missing() -> list[str]:
    """Return what this machine lacks for a Slurm cluster."""
    return [program for program in DAEMONS if find_program(program) is None]


def config_text(login: Node, nodes: Sequence[Node], *, cpus: int, memory_mb: int) -> str:
    """Return the slurm.conf of a cluster whose nodes all are this machine.

    Every node offers what the machine has: Slurm would refuse one that promised more. Its GPUs are so in name only, to
    try what jobs get. Processes are followed by their parents (proctrack/linuxproc), since hosts of a local testbed
    have no control groups of their own.
    """
    common = f"CPUs={cpus} RealMemory={memory_mb} Gres=gpu:{len(GPUS)} State=UNKNOWN"
    return "\n".join(
        [
            "ClusterName=orch",
            f"SlurmctldHost={login.name}({login.address})",
            "SlurmUser=root",
            "SlurmdUser=root",
            "AuthType=auth/munge",
            "CredType=cred/munge",
            f"StateSaveLocation={FOLDER}/state",
            f"SlurmdSpoolDir={FOLDER}/spool",
            f"SlurmctldPidFile={FOLDER}/slurmctld.pid",
            f"SlurmdPidFile={FOLDER}/slurmd.pid",
            f"SlurmctldPort={CONTROLLER_PORT}",
            f"SlurmdPort={NODE_PORT}",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
            "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0",
            "ReturnToService=2",
            "GresTypes=gpu",
            *(f"NodeName={node.name} NodeAddr={node.address} {common}" for node in nodes),
            f"PartitionName=all Nodes={','.join(node.name for node in nodes)} Default=YES MaxTime=INFINITE State=UP",
            "",
        ]
    )


class LocalCluster:
    """A Slurm cluster that is up from `open` to `close`, or to the end of this process."""

    __test__ = False

    def __init__(self, hosts: int, *, link_bps: float, run_id: str) -> None:
        self.testbed = NetnsTestbed(spec(hosts, link_bps=link_bps), run_id)
        self.idle_s = 0.0  # how long the nodes took from the start of the daemons until all were idle
        self._clients: dict[str, AgentClient] = {}

    @property
    def login(self) -> AgentClient:
        """The agent of the login host."""
        return self._clients[LOGIN]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The hosts with a slurmd."""
        return tuple(host for host in self.testbed.topology.hosts if host.name != LOGIN)

    def open(self, folder: Path, deadline: Deadline) -> None:
        """Start hosts and daemons, and wait until every node is idle."""
        if lacking := missing():
            hint = "; ".join(dict.fromkeys(map(remedy, lacking)))
            raise MissingRequirement(f"no program {', '.join(lacking)} here", hint=hint)
        try:
            self.testbed.open(folder, deadline)
            hosts = [host.name for host in self.testbed.topology.hosts]
            self._clients = fanout.each(hosts, partial(self._agent, deadline), deadline=deadline, what="agents")
            began = time.monotonic()
            self._start(deadline)
            deadline.poll(self._all_idle, every_s=_IDLE_EVERY_S, waiting_for="Slurm's nodes")
            self.idle_s = time.monotonic() - began
        except BaseException:
            self.close()
            raise

    def _agent(self, deadline: Deadline, name: str) -> AgentClient:
        client = AgentClient(
            self.testbed.topology.node(name),
            self.testbed.connect(name, deadline),
            run=self.testbed.run_id,
            holder={},
            on_event=lambda _: None,
        )
        client.hello(deadline)
        return client

    def _start(self, deadline: Deadline) -> None:
        here = machine.local()
        login = self.testbed.topology.node(LOGIN)
        text = config_text(login, self.nodes, cpus=int(here.processors) or 1, memory_mb=1000)
        gres = "".join(f"Name=gpu File={path}\n" for path in GPUS)
        key = secrets.token_bytes(128)

        def start(name: str) -> None:
            client = self._clients[name]
            folders = [f"{FOLDER}/{one}" for one in ("state", "spool")]
            client.run(("mkdir", "-p", "-m", "755", MUNGE, FOLDER, CONFIG, *folders), deadline)
            for path, content in (("slurm.conf", text), ("cgroup.conf", CGROUPS), ("gres.conf", gres)):
                client.run(("dd", "status=none", f"of={CONFIG}/{path}"), deadline, stdin=content.encode())
            client.start(_munged(name, key), deadline)
            daemon = "slurmctld" if name == LOGIN else "slurmd"
            client.start(_daemon(name, daemon), deadline)

        fanout.each(self._clients, start, deadline=deadline, what="starting Slurm")

    def _all_idle(self) -> bool:
        done = self.login.run(("sinfo", "--noheader", "--format", "%D %T"), Deadline.after(CALL_S))
        return done.stdout.split() == [str(len(self.nodes)), "idle"]

    def close(self) -> None:
        """End the cluster; a second call does nothing."""
        clients, self._clients = self._clients, {}
        try:
            if clients:
                ended = Deadline.after(CALL_S)
                fanout.each(clients.values(), lambda one: one.close(ended), deadline=ended, what="ending Slurm")
        finally:
            self.testbed.close()


def _munged(host: str, key: bytes) -> Launch:
    options = ("--foreground", "--force", "--key-file=key", f"--socket={MUNGE}/munge.socket.2", "--num-threads=2")
    files = ("--pid-file=pid", "--seed-file=seed", "--log-file=log")
    return Launch(
        name="munged",
        node=host,
        role="condition",
        argv=("munged", *options, *files),
        files={"key": key},
        privileged=True,
    )


def _daemon(host: str, program: str) -> Launch:
    argv = (program, "-D", "-f", f"{CONFIG}/slurm.conf", *(("-N", host) if program == "slurmd" else ()))
    port = NODE_PORT if program == "slurmd" else CONTROLLER_PORT
    return Launch(
        name=program,
        node=host,
        role="condition",
        argv=argv,
        ready=Listening(port),
        ready_within_s=CALL_S,
        privileged=True,
    )
