"""Reads the counters of hosts while a run goes on, for those who watch it live; results come from collectors."""

from __future__ import annotations

import itertools
import re

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError
from orchestrator.execution.observers.observing import HostSample
from orchestrator.execution.session import Session
from orchestrator.remote.agent_client import AgentClient

READ_S = 5.0
_DEVICE = ("rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped")
_SNMP = "/proc/net/snmp"


def sample(session: Session) -> dict[str, HostSample]:
    """One sample of every host that has data-plane devices, of all of them together; who cannot say is left out."""
    topology = session.testbed.topology
    devices = {host.name: host.devices for host in topology.hosts if host.devices}

    def ask(client: AgentClient) -> HostSample | None:
        mine = devices[client.node.name]
        paths = {name: [f"/sys/class/net/{device}/statistics/{name}" for device in mine] for name in _DEVICE}
        found = client.read([*itertools.chain(*paths.values()), _SNMP], Deadline.after(READ_S))
        if any(found.texts[path] is None for path in itertools.chain(*paths.values())):
            return None
        received, sent, received_dropped, sent_dropped = (
            sum(int(found.texts[path] or 0) for path in paths[name]) for name in _DEVICE
        )
        return HostSample(
            node=client.node.name,
            wall_ns=found.wall_ns,
            received_bytes=received,
            sent_bytes=sent,
            received_dropped=received_dropped,
            sent_dropped=sent_dropped,
            queue_dropped=sum(_queue_dropped(client, device) for device in mine),
            retransmits=retransmits(found.texts[_SNMP] or ""),
        )

    answers = session.each(devices, ask, what="reading counters", seconds=READ_S)
    return {node: answer for node, answer in answers.items() if answer is not None}


def _queue_dropped(client: AgentClient, device: str) -> int:
    try:
        done = client.run(
            ("tc", "-s", "qdisc", "show", "dev", device, "root"), Deadline.after(READ_S), privileged=False
        )
    except AgentError:
        return 0  # it has no tc: there are no queues of ours on it
    return queue_drops(done.stdout)


def queue_drops(text: str) -> int:
    """Packets that the root queueing discipline dropped, from what `tc -s qdisc` says; 0 where it does not."""
    found = re.search(r"dropped ([0-9]+)", text)
    return int(found[1]) if found else 0


def retransmits(snmp: str) -> int:
    """TCP segments that were sent again, from the text of /proc/net/snmp; 0 where it does not say."""
    lines = [line.split() for line in snmp.splitlines() if line.startswith("Tcp:")]
    if len(lines) != 2 or "RetransSegs" not in lines[0]:
        return 0
    return int(lines[1][lines[0].index("RetransSegs")])
