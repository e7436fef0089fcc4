"""Ordinary users of real hosts: what sudo grants is what they get, and what it does not is told with its remedy."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError, TransportError
from orchestrator.parts.launch import Exited, Launch, Line, Requirement
from orchestrator.remote.agent_client import AgentClient
from orchestrator.testbed.inventory import Inventory, InventoryTestbed
from tests.helpers.orch_runs import measured, nothing_is_left, orch, wait_for, write
from tests.helpers.sudo_hosts import ALL, ONLY_THE_WRAPPER, processes_of, up

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.skipif(os.geteuid() != 0, reason="users and rules for sudo are root's to make"),
]


def soon() -> Deadline:
    return Deadline.after(60)


@pytest.fixture(scope="module")
def machine():
    with up() as hosts:
        yield hosts


@pytest.fixture
def hosts(machine):
    """The hosts, on which nothing of another test is left: no rule, no wrapper, no work folder."""
    machine.rules.unlink(missing_ok=True)
    machine.wrapper.unlink(missing_ok=True)
    yield machine
    shutil.rmtree(machine.programs, ignore_errors=True)
    work = Path(f"/var/tmp/orch-{machine.uid}")
    left = [work, *sorted(work.rglob("*"))] if work.exists() else []
    shutil.rmtree(work, ignore_errors=True)  # tests that follow begin without it
    assert not left


def client_on(hosts, sudo, name="a"):
    testbed = InventoryTestbed(Inventory.model_validate(hosts.inventory(sudo)))
    node = testbed.topology.node(name)
    channel = testbed.connect(name, soon())
    return AgentClient(node, channel, run=f"sudo-{time.time_ns()}", holder={}, on_event=lambda _: None)


def greeted(hosts, sudo):
    """Who an agent says that it is."""
    client = client_on(hosts, sudo)
    try:
        greeting = client.hello(soon())
        client.remove(soon())
        return greeting
    finally:
        client.close(soon())


def refused(hosts, sudo):
    client = client_on(hosts, sudo)
    try:
        with pytest.raises(TransportError, match="channel to the agent ended") as caught:
            client.hello(soon())
    finally:
        client.close(soon())
    return caught.value


def granted(hosts, way):
    """`sudo:` of an inventory, once sudo's rules are there."""
    hosts.install()
    hosts.sudo(ONLY_THE_WRAPPER if way == "the wrapper" else ALL)
    return str(hosts.wrapper) if way == "the wrapper" else True


@pytest.mark.parametrize("way", ["all of root", "the wrapper"])
def test_a_whole_run_of_an_ordinary_user(hosts, tmp_path, way):
    sudo = granted(hosts, way)
    before = [hosts.on(name, "tc", "qdisc", "show", "dev", "eth0") for name in ("a", "b")]
    summary, results = measured(write(tmp_path, hosts.experiment(tmp_path, sudo)), tmp_path / "r", "--no-report")
    (run,) = summary["runs"]
    folder = results / "own" / run["run"]
    assert run["windows"][0]["cross_traffic"][0]["achieved_bps"] == pytest.approx(30e6, rel=0.1)
    assert pq.read_table(folder / "tables/iterations.parquet").num_rows >= 80
    assert (folder / "hosts/b/tcpdump.b/capture.pcap").stat().st_size > 1000
    assert [hosts.on(name, "tc", "qdisc", "show", "dev", "eth0") for name in ("a", "b")] == before
    nothing_is_left(run["run"], 60)
    wait_for(lambda: not processes_of(hosts.uid), 60, f"the end of {processes_of(hosts.uid)}")


@pytest.mark.variants
@pytest.mark.parametrize("way", ["all of root", "the wrapper"])
def test_the_user_reads_as_they_close_what_root_captures(hosts, tmp_path, way):
    """And drops it: captures stay in a folder of root's."""
    experiment = hosts.experiment(
        tmp_path,
        granted(hosts, way),
        captures={"stay": True, "reduce": "as-they-close"},
        collect=[{"tcpdump": {"rotate_every": "1s"}}, "nic"],
        measure={"warmup": 2, "iterations": 200, "at_most": "60s"},
        validity={"clock": "100ms", "load_course": "ignore"},  # a busy machine decides when packets are sent
    )
    experiment["testbed"]["inventory"]["defaults"]["python"] = sys.executable  # with numpy
    path = write(tmp_path, experiment)
    summary, results = measured(path, tmp_path / "r", "--no-report")
    (run,) = summary["runs"]
    folder = results / "own" / run["run"]
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert {one["node"] for one in manifest["stayed"] if one["sha256"]} == {"a", "b"}
    for name in ("a", "b"):
        ready, *files = (folder / "hosts" / name / "captures.as-they-close/stdout").read_text().splitlines()
        instants = [int(line.split()[0]) for line in files]
        assert instants, ready
        assert instants[0] < manifest["windows"][0]["end_ns"]
    assert pq.read_table(folder / "tables/capture_flows.parquet").num_rows
    nothing_is_left(run["run"], 60)
    status, out, err = orch("prune", "--results", results, "--drop-after", "1ms", "--testbed", path)
    assert status == 0, out + err
    assert json.loads((folder / "manifest.json").read_bytes())["stayed"] == []


def test_the_wrapper_gives_two_rights_and_no_more(hosts):
    hosts.install()
    hosts.sudo(ONLY_THE_WRAPPER)
    client = client_on(hosts, str(hosts.wrapper))
    try:
        greeting = client.hello(soon())
        assert (greeting.uid, greeting.user) == (hosts.uid, None)
        assert greeting.folder.startswith(f"/var/tmp/orch-{hosts.uid}/")
        rights = client.read(["/proc/self/status"], soon()).texts["/proc/self/status"]
        for name in ("Inh", "Prm", "Eff", "Bnd", "Amb"):
            assert re.search(rf"Cap{name}:\s0*3000\n", rights)
        for argv in (["cat", "/etc/shadow"], ["sudo", "-n", str(hosts.wrapper), "true"], ["chown", "root", "/var/tmp"]):
            assert client.run(argv, soon()).status != 0
        assert client.run(["ip", "link", "set", "lo", "mtu", "65535"], soon()).status == 0
        shown = Launch(name="p", node="a", role="rank", argv=("grep", "Cap", "/proc/self/status"), ready=Exited())
        client.start(shown, soon())
        assert not re.search(r"Cap(Prm|Eff|Amb):\s0*[1-9a-f]", client.read(["p/stdout"], soon()).texts["p/stdout"])
        client.remove(soon())
    finally:
        client.close(soon())


@pytest.mark.parametrize(
    ("apply", "undo"),
    [
        ("tc qdisc add dev eth0 root tbf rate 10mbit burst 5k latency 50ms", "tc qdisc delete dev eth0 root"),
        ("ip route change 198.18.7.0/24 dev eth0 congctl cubic", "ip route change 198.18.7.0/24 dev eth0"),
        ("nft add table inet orch-test", "nft delete table inet orch-test"),
        ("ethtool -K eth0 rx off", "ethtool -K eth0 rx on"),
    ],
    ids=["rate", "congestion-control", "packet-rules", "offloads"],
)
def test_what_conditions_do_with_the_wrapper(hosts, apply, undo):
    hosts.install()
    hosts.sudo(ONLY_THE_WRAPPER)
    client = client_on(hosts, str(hosts.wrapper))
    try:
        client.hello(soon())
        client.change("it", soon(), undo=[undo.split()], apply=[apply.split()])
        client.undo("it", soon())
        client.remove(soon())
    finally:
        client.close(soon())


def test_captures_without_sudo_by_a_tcpdump_with_the_right_of_its_own(hosts, strays):
    hosts.capable("tcpdump")
    client = client_on(hosts, sudo=False)
    agent = client.hello(soon()).pid
    need = Requirement(node="a", kind="privilege", what="CAP_NET_RAW of tcpdump", remedy="", needed_by="")
    (finding,) = client.check([need], soon())
    assert (finding.found, finding.detail) == (True, f"{hosts.programs}/tcpdump has it of its own")
    argv = ("tcpdump", "-Z", "root", "-i", "eth0", "-w", "capture.pcap")
    capture = Launch(
        name="p", node="a", role="collector", argv=argv, privileged=True, ready=Line("listening on", "stderr")
    )
    client.start(capture, soon())
    os.kill(agent, signal.SIGKILL)
    with contextlib.suppress(OrchError):  # sshd goes with the connection
        client.close(soon())
    wait_for(lambda: not processes_of(hosts.uid), 60, f"the end of {processes_of(hosts.uid)}")
    again = client_on(hosts, sudo=False)
    try:
        again.hello(soon())
        (removed,) = again.sweep(soon(), keep_data=False).removed
        assert removed.endswith(".a")
        again.remove(soon())
    finally:
        again.close(soon())


def test_a_right_that_is_missing_is_named_with_what_would_give_it(hosts, tmp_path):
    hosts.install()
    status, _, err = orch("run", write(tmp_path, hosts.experiment(tmp_path, sudo=False)), "--results", tmp_path / "r")
    assert status == 1
    needs = rf"the agent is user {hosts.uid} \({hosts.user}\), without it"
    assert re.search(r"a: tcpdump needs privilege CAP_NET_RAW of tcpdump: " + needs, err), err
    assert re.search(r"a: condition rate needs privilege CAP_NET_ADMIN: " + needs, err), err
    assert "sudo: /usr/local/sbin/orch-agent" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("rules", "wrapper", "said", "remedy"),
    [
        (["USER ALL=(root) ALL"], None, "a password is required", "without a password"),
        (["USER ALL=(root) NOPASSWD: /bin/true"], None, "a password is required|not allowed", "sudoers-orch"),
        ([], None, "a password is required|not allowed|not in the sudoers", "sudoers-orch"),
        ([ONLY_THE_WRAPPER], "missing", "command not found", r"install \S+/orch-agent .*orch-agent says how"),
        ([], "installed", "a password is required|not allowed", "sudoers-orch"),
        ([ALL, "Defaults:USER requiretty"], None, "must have a tty", "!requiretty"),
    ],
    ids=["password", "another-program", "no-rule", "no-wrapper", "no-rule-for-the-wrapper", "requiretty"],
)
def test_what_sudo_refuses_is_told_with_its_remedy(hosts, rules, wrapper, said, remedy):
    if wrapper == "installed":
        hosts.install()
    hosts.sudo(*rules)
    error = refused(hosts, True if wrapper is None else str(hosts.wrapper))
    assert re.search(said, error.tail), error.tail
    assert re.search(remedy, error.hint), error.hint
    assert hosts.user not in Path("/etc/sudoers").read_text()


@pytest.mark.parametrize("setting", ["use_pty", "requiretty", "log_output"])
def test_settings_of_sudo_that_the_wrapper_lives_with(hosts, setting):
    hosts.install()
    hosts.sudo(f"Defaults:USER {setting}", ONLY_THE_WRAPPER)
    assert greeted(hosts, str(hosts.wrapper)).uid == hosts.uid


def test_the_wrapper_is_for_sudo_and_for_users(hosts):
    hosts.install()
    hosts.sudo(ALL)
    wrapper = str(hosts.wrapper)
    for argv in ([wrapper, "id"], ["sudo", "-n", wrapper, "id"], ["sudo", "-n", wrapper]):
        with pytest.raises(AssertionError, match="to be started by sudo, by a user who is not root, with a command"):
            hosts.on("a", *argv)
