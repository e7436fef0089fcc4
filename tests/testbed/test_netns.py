from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import TestbedError
from orchestrator.remote.agent_client import AgentClient
from orchestrator.testbed.local import netns, netns_needs, ssh_proxy
from orchestrator.testbed.local.netns import LocalSpec, NetnsTestbed
from orchestrator.testbed.local.netns_setup import setup_document
from tests.helpers.netns_help import carries, processes_of, serve_once

pytestmark = [pytest.mark.testbed, pytest.mark.rights]
ROOT = Path(__file__).parents[2]


def this_machine():
    """What a testbed must not change: addresses, routes, named namespaces and mounts of this machine."""
    argvs = (["ip", "-o", "addr"], ["ip", "route", "show", "table", "all"], ["ip", "netns"], ["ip", "-o", "link"])
    shown = [subprocess.run(argv, capture_output=True, text=True, check=True).stdout for argv in argvs]
    return [text.replace("DOWN", "") for text in shown], Path("/proc/self/mounts").read_text()


@pytest.mark.parametrize("hosts", [2, 5, 16])
def test_every_node_answers_and_is_itself(up, on, hosts):
    testbed = up(hosts)
    for node in testbed.topology.nodes:
        assert on(testbed, node.name, "hostname").strip() == node.name
    last = testbed.topology.hosts[-1]
    said = on(testbed, last.name, "ip -o -4 addr show dev eth0; ip route; cat /etc/hosts; tail -n 2 /proc/self/status")
    assert f"{last.address}/24" in said
    assert "default" not in said
    assert f"198.18.0.1 {testbed.topology.hosts[0].name}" in said
    assert len(on(testbed, "switch", "ls /sys/class/net | grep -c ^p-").split()) == 1
    assert int(on(testbed, "switch", "ls /sys/class/net | grep -c ^p-")) == hosts


def test_hosts_reach_one_another_by_name_and_data_lie_on_the_controllers_disk(up, on):
    testbed = up(3, mtu=4000)
    on(testbed, "h3", "cd /run/orch && (python3 -m http.server 8000 --bind 198.18.0.3 >/dev/null 2>&1 &) ; echo hi > f")
    fetch = "import urllib.request as u; print(u.urlopen('http://h3:8000/f', timeout=30).read().decode())"
    again = 'for i in $(seq 600); do python3 -c "$0" 2>/dev/null && exit; sleep 0.1; done; exit 1'
    assert on(testbed, "h1", f"bash -c '{again}' \"{fetch}\"").strip() == "hi"
    seen = testbed.local_folder("h3") / "f"
    assert seen.read_text() == "hi\n"
    assert seen.stat().st_uid == os.geteuid()
    assert on(testbed, "h1", "cat /sys/class/net/eth0/mtu").strip() == "4000"
    assert on(testbed, "h1", "ls -A /run/orch") == ""


def test_a_hosts_first_process_reaps(up, on):
    testbed = up(2)
    on(testbed, "h1", "for i in 1 2 3; do setsid sh -c 'sleep 0.1 & exit' & done; wait")
    deadline = Deadline.after(60)
    deadline.poll(
        lambda: "Z" not in on(testbed, "h1", "sleep 0.2; ps -e -o stat="), every_s=0.05, waiting_for="no zombies"
    )


@pytest.mark.alone
def test_the_link_carries_its_rate_and_no_more(up, on):
    testbed = up(2, rate=1e9, scale=10)
    carries(on, testbed, "h1", "h2", line_bps=100e6)


def test_an_unlimited_link_has_no_bucket(up, on):
    testbed = up(2, rate=math.inf)
    assert "tbf" not in on(testbed, "h1", "tc qdisc") + on(testbed, "switch", "tc qdisc")


def test_frames_are_no_larger_than_the_mtu(up, on):
    testbed = up(2, rate=200e6)
    serve_once(on, testbed, "h2")
    capture = (
        "cd /run/orch; tcpdump -Z root -i eth0 -s 96 -w c.pcap tcp 2>err & until grep -q listening err; do sleep 0.02; "
        "done 2>/dev/null; iperf3 -c h2 -t 1 >/dev/null; sleep 1.3; kill -INT %1 || kill -INT $!; wait; "
        "tcpdump -r c.pcap -e -n 2>/dev/null | grep -o ', length [0-9]*: ' | tr -dc '0-9\\n' | sort -n | tail -n 1"
    )
    assert on(testbed, "h1", capture).split()[-1] == "1514"
    off = on(testbed, "h1", "ethtool -k eth0") + on(testbed, "switch", "ethtool -k p-h1")
    for name in ("tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload"):
        assert off.count(f"{name}: off") == 2


@pytest.mark.alone  # other tests mount what their containers need
def test_this_machine_is_not_touched(up, on):
    before = this_machine()
    testbed = up(4)
    assert this_machine() == before
    on(testbed, "h1", "true")
    testbed.close()
    testbed.close()
    assert this_machine() == before


def test_two_testbeds_do_not_meet(up, on):
    one, other = up(2), up(3)
    assert on(one, "h2", "hostname -I 2>/dev/null || ip -o -4 addr") == on(
        other, "h2", "hostname -I 2>/dev/null || ip -o -4 addr"
    )
    on(one, "h1", "ip link set eth0 down; echo one > /run/orch/mark")
    assert "UP" in on(other, "h1", "ip -o link show dev eth0")
    one.close()
    assert on(other, "h3", "hostname").strip() == "h3"
    assert not (other.local_folder("h1") / "mark").exists()


def test_long_names_of_hosts(up, on):
    names = ("gpu-node-with-a-long-name-0001", "gpu-node-with-a-long-name-0002")
    testbed = up(names)
    assert on(testbed, names[1], "hostname").strip() == names[1]


def test_sixty_four_hosts_come_up(up, on):
    testbed = up(64)
    assert on(testbed, "h64", "hostname").strip() == "h64"


HELD = """
import sys, time
from pathlib import Path
from orchestrator.core.deadline import Deadline
from orchestrator.testbed.local.local_spec import FabricSpec
from orchestrator.testbed.local.netns import LocalSpec, NetnsTestbed
from orchestrator.testbed.local.netns_setup import setup_document
names = ("h1", "h2", "h3", "h4")
more = {"fabric": FabricSpec(leaves=2, spines=2, hosts=2), "uplink": 1e8} if sys.argv[3] == "fabric" else {}
testbed = NetnsTestbed(LocalSpec(hosts=names, rates=dict.fromkeys(names, 1e8), **more), sys.argv[1])
print("opening", flush=True)
testbed.open(Path(sys.argv[2]), Deadline.after(120))
proxy = testbed.ssh_proxy()
from tests.helpers.netns_help import run_on
run_on(testbed, "h1", "setsid sleep 1000 >/dev/null 2>&1 & echo kept > /run/orch/data")
print("open", proxy.folder, flush=True)
time.sleep(600)
"""


@contextmanager
def controller(run_id, folder, kind="switch"):
    """A controller that holds a testbed until it is killed, with the test at the latest."""
    with subprocess.Popen(
        [sys.executable, "-c", HELD, run_id, str(folder), kind],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def command_lines(pids):
    """Of those that still live: the session of a command that was run there may be about to end."""
    for pid in pids:
        with suppress(OSError):
            yield Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")


def lives(pid):
    """Whether a process is more than an entry that this machine's init has yet to reap."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(run_id, pids=frozenset()):
    Deadline.after(60).poll(
        lambda: not processes_of(run_id) and not any(lives(pid) for pid in pids),
        every_s=0.01,
        waiting_for="the end of the sandbox",
    )


@pytest.mark.parametrize("kind", ["switch", "fabric"])
def test_kill_9_of_the_controller_leaves_nothing_but_data(up, tmp_path, kind):
    before = this_machine()
    run_id = f"killed-{os.getpid()}-{kind}"
    with controller(run_id, tmp_path / "run", kind) as process:
        assert process.stdout.readline() == "opening\n"
        word, proxy = process.stdout.readline().split()
        assert (word, Path(proxy).exists()) == ("open", True)
        pids = processes_of(run_id)
        commands = list(command_lines(pids))
        assert any(b"sleep 1000" in command for command in commands)
        assert sum(b"sshd" in command for command in commands) >= 4
        process.send_signal(signal.SIGKILL)
        process.wait()
        gone(run_id, pids)
    assert this_machine() == before
    assert (tmp_path / "run/hosts/h1/data").read_text() == "kept\n"
    up(2).ssh_proxy().close()
    assert not Path(proxy).exists()


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.02, 0.03, 0.05])
def test_kill_9_in_the_midst_of_the_setup_leaves_nothing(up, tmp_path, after_s):
    run_id = f"early-{os.getpid()}-{after_s}"
    with controller(run_id, tmp_path / "run") as process:
        assert process.stdout.readline() == "opening\n"
        time.sleep(after_s)  # where it is then does not matter: nothing may be left from any point on
        process.send_signal(signal.SIGKILL)
        process.wait()
    time.sleep(0.1)  # a process that has just been forked has no environment to find it by yet
    gone(run_id)


def refused(spec, folder):
    testbed = NetnsTestbed(spec, f"refused-{os.getpid()}")
    with pytest.raises(TestbedError) as caught:
        testbed.open(folder, Deadline.after(120))
    gone(testbed.run_id)
    return caught.value


def spec_of(**more):
    return LocalSpec(hosts=("h1", "h2"), rates={"h1": 1e8, "h2": 1e8}, **more)


def test_a_bad_mtu_is_one_clear_error(up, tmp_path):
    error = refused(spec_of(mtu=70000), tmp_path)
    assert "links" in error.message
    assert "70000" in " ".join(error.argv)
    assert "Invalid argument" in error.tail
    assert "mtu" in error.hint


def test_a_bad_sysctl_names_itself_and_its_host(up, tmp_path):
    error = refused(spec_of(sysctls={"net.ipv4.no_such": 1}), tmp_path)
    assert "net.ipv4.no_such" in error.message
    assert error.node == "h1"


def test_a_start_that_fails_and_leaves_a_process_says_why_and_leaves_none(up, tmp_path, monkeypatch):
    """As unshare does in a chroot, where the kernel allows no user namespace, for a user with subordinate ids."""
    refusal = "unshare failed: Operation not permitted"
    script = f"echo {refusal} >&2; ORCH_LOCAL_TESTBED=refused-{os.getpid()} sleep 600 & exit 1"
    monkeypatch.setattr(netns_needs, "UNSHARE", ("sh", "-c", script))
    error = refused(spec_of(), tmp_path)
    assert error.message == "a local testbed cannot run here: namespaces cannot be made: " + refusal


@pytest.mark.parametrize("broken", ["folder", "config", "program"])
def test_a_node_that_fails_to_start_is_named_with_what_it_printed(up, tmp_path, monkeypatch, broken):
    def breaking(*arguments, **named):
        document = setup_document(*arguments, **named)
        node = document["nodes"][1]
        if broken == "folder":
            node["folder"] = "/no/such/folder"
        elif broken == "config":
            mode, text = node["files"]["/run/orch-sshd/config"]
            node["files"]["/run/orch-sshd/config"] = (mode, text + "NoSuchWord yes\n")
        else:
            node["sshd"][0] = "/no/such/sshd"
        return document

    monkeypatch.setattr(netns, "setup_document", breaking)
    error = refused(spec_of(), tmp_path)
    assert error.node == "h2"
    assert {"folder": "/no/such/folder", "config": "NoSuchWord", "program": "/no/such/sshd"}[broken] in error.render()


@pytest.mark.parametrize(("program", "package"), [("tc", "iproute2"), ("sshd", "openssh-server")])
def test_a_missing_program_is_named_with_its_package(up, tmp_path, monkeypatch, program, package):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("unshare", "ip", "tc", "sshd", "newuidmap", "newgidmap"):
        path = netns_needs.find_program(name)
        if path and name != program:
            (folder / name).symlink_to(path)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(netns_needs, "SBIN", ())
    error = refused(spec_of(), tmp_path)
    assert f"the program {program} is not installed" in error.message
    assert f"apt-get install {package}" in error.hint


def test_a_host_whose_sshd_has_ended_says_so(up, on):
    testbed = up(2)
    (first,) = [pid for pid in processes_of(testbed.run_id) if is_home(pid, testbed.local_folder("h2"))]
    os.kill(first, signal.SIGKILL)
    Deadline.after(60).poll(lambda: answers_no(testbed, "h2"), every_s=0.05, waiting_for="the error")
    assert on(testbed, "h1", "hostname").strip() == "h1"


def is_home(pid, folder):
    """Whether the process sees this folder of the controller's as a node's work folder."""
    try:
        mounted = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    except OSError:
        return False
    roots = [line.split()[3] for line in mounted if line.split()[4] == "/run/orch"]
    # The folder as its file system has it: that may be mounted below `/`, and `/` may be a folder of it.
    return any(str(folder).endswith(root) or root.endswith(str(folder)) for root in roots)


def answers_no(testbed, node):
    try:
        testbed.socket_to(node, Deadline.after(60)).close()
    except TestbedError as error:
        return "ended" in str(error)
    return False


def test_ssh_reaches_a_host_through_the_ssh_proxy(up):
    proxy = up(2).ssh_proxy()
    assert proxy.folder.stat().st_mode & 0o077 == 0
    said = subprocess.run(
        ["ssh", "-F", str(proxy.folder / "ssh_config"), "h2", "hostname; cat"],
        input="through",
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    ).stdout
    assert said == "h2\nthrough"
    argv = ssh_proxy.connect_command(proxy.folder / "socket", "nobody")
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120)
    assert done.returncode == 1
    assert "nobody: no such node" in done.stderr
    proxy.close()
    assert not proxy.folder.exists()


def test_an_agent_makes_the_runs_folder_where_the_controller_sees_it(up):
    testbed = up(2)
    for name in ("h2", "switch"):
        channel = testbed.connect(name, Deadline.after(60))
        client = AgentClient(testbed.topology.node(name), channel, run="a-run", holder={}, on_event=lambda _: None)
        try:
            client.hello(Deadline.after(60))
            assert [entry.name for entry in testbed.local_folder(name).iterdir()] == [f"a-run.{name}"]
        finally:
            client.close(Deadline.after(60))
