"""An inventory of hosts that nobody prepared for us: stock sshd behind a jump host, an ordinary user with sudo."""

from __future__ import annotations

import os

import pytest

from tests.helpers.foreign_hosts import JUMP, up
from tests.helpers.orch_runs import SMALL, last_json, nothing_is_left, orch, write

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.alone,
    pytest.mark.variants,
    pytest.mark.skipif(os.geteuid() != 0, reason="networks between containers are root's to make"),
]


def states(hosts):
    """Queues, routes and work folders; what is mounted below /var/tmp, as this checkout may be, is there before too."""
    network = [hosts.on(name, "tc", "qdisc") + hosts.on(name, "ip", "route") for name in hosts.names]
    return network, [hosts.on(name, "find", "/var/tmp", "-mindepth", "1") for name in (JUMP, *hosts.names)]


def test_a_first_experiment_is_valid_at_the_first_try_and_leaves_the_hosts_as_they_were(tmp_path):
    """As README's quickstart is, but for the model, and without a word about offloads, which stand as they come."""
    with up("h1", "h2", "h3") as hosts:
        rack = write(tmp_path, hosts.inventory(), "rack.yaml")
        before = states(hosts)
        path = write(
            tmp_path,
            {
                **SMALL,
                "testbed": {"inventory": rack.name},
                "traffic": [{"iperf": {"from": "h1", "to": "h3", "load": "100mbit", "streams": 2}}],
                "collect": ["tcpdump", "nic", "qdisc", "tcp", "cpu"],
            },
        )
        assert orch("doctor", rack)[0] == 0
        status, out, err = orch("run", path, "--results", tmp_path / "results", "--json", "--no-report")
        assert status == 0, out + err
        (run,) = last_json(out)["runs"]
        assert run["windows"][0]["valid"]
        nothing_is_left(run["run"])
        assert states(hosts) == before
