from __future__ import annotations

import json
import shlex
import sys
from contextlib import ExitStack

import pytest

from orchestrator.parts.conditions import congestion_control, delay, ecn, firewall, loss, rate
from orchestrator.parts.shared import token_bucket
from tests.helpers.netns_help import carries, serve_once

pytestmark = [pytest.mark.testbed, pytest.mark.rights]


class Applied:
    """Carries a change out on a testbed as an agent would, verified, and takes it back at the end."""

    def __init__(self, on, testbed, change):
        self.on, self.testbed, self.change = on, testbed, change

    def state(self):
        return self.change.parse(self.on(self.testbed, self.change.node, shlex.join(self.change.read)))

    def run(self, argvs):
        for argv in argvs:
            self.on(self.testbed, self.change.node, shlex.join(argv))

    def __enter__(self):
        self.old = self.state()
        self.run(self.change.apply(self.old))
        assert self.state() == self.change.expect(self.old) != self.old
        return self

    def __exit__(self, *error):
        self.run(self.change.undo(self.old))
        assert self.state() == self.old


@pytest.mark.alone
@pytest.mark.parametrize("where", ["nic", "switch-port"])
def test_a_rate_holds_and_is_taken_back(up, on, where):
    testbed = up(2, rate=2e9, scale=10)
    config = rate.Config(host="h1", rate="800mbit", where=where)
    src, dst = ("h1", "h2") if where == "nic" else ("h2", "h1")
    (change,) = rate.changes(config, testbed.topology)
    with Applied(on, testbed, change):
        carries(on, testbed, src, dst, line_bps=80e6)
    carries(on, testbed, src, dst, line_bps=200e6)


@pytest.mark.alone
def test_a_rate_on_a_device_without_a_bucket(up, on):
    testbed = up(2, rate=float("inf"))
    (change,) = rate.changes(rate.Config(host="h1", rate="50mbit"), testbed.topology)
    with Applied(on, testbed, change) as applied:
        assert applied.old == "default"
        carries(on, testbed, "h1", "h2", line_bps=50e6)
    assert "noqueue" in on(testbed, "h1", "tc qdisc show dev eth0")


def test_every_rate_is_read_back_as_it_was_set(up, on):
    testbed = up(2, rate=float("inf"))
    bits = [1e6, 1.5e6, 9.999e6, 33e6, 123_456_789, 250e6, 1e9, 2.5e9, 9_999_999_999, 25e9, 1e11]
    buckets = [token_bucket.bucket(one, queue_s=0.005, mtu=1500) for one in bits]
    lines = [
        f"tc qdisc replace dev eth0 root {' '.join(one.arguments)}; tc -j -r qdisc show dev eth0" for one in buckets
    ]
    said = on(testbed, "h1", "set -e; " + "; ".join(lines)).split("\n")
    assert [token_bucket.parse(text) for text in said if text.strip()] == [one.state for one in buckets]


def test_a_burst_that_somebody_else_chose_is_put_back(up, on):
    testbed = up(2, rate=float("inf"))
    for burst in (5000, 33333, 131071):
        for bits in (3e6, 77_777_777, 1e9, 4e10):
            on(testbed, "h1", f"tc qdisc replace dev eth0 root tbf rate {int(bits)}bit burst {burst}b limit 99999b")
            (change,) = rate.changes(rate.Config(host="h1", rate="50mbit"), testbed.topology)
            with Applied(on, testbed, change):
                pass


def test_congestion_control_is_used_and_taken_back(up, on):
    testbed = up(2, rate=100e6)
    changes = congestion_control.changes(congestion_control.Config(algorithm="reno"), testbed.topology)
    assert [change.node for change in changes] == ["h1", "h1", "h2", "h2"]
    with ExitStack() as applied:
        for change in changes:
            applied.enter_context(Applied(on, testbed, change))
        assert algorithms(on, testbed) == {"reno"}
        assert to_itself(on, testbed) == ["b'reno'"] * 2
        assert "scope link" in on(testbed, "h1", "ip route show dev eth0")
    assert algorithms(on, testbed) == {"cubic"}
    assert to_itself(on, testbed) == ["b'cubic'"] * 2


def test_connections_use_cubic_whatever_the_machine_is_set_to_and_to_the_host_itself_too(up, on):
    testbed = up(2, rate=100e6)
    assert to_itself(on, testbed) == ["b'cubic'"] * 2
    assert algorithms(on, testbed) == {"cubic"}


def to_itself(on, testbed):
    """Congestion control of both ends of a connection of h1 to its own address."""
    program = (
        "import socket; s = socket.create_server((sys.argv[1], 0)); c = socket.create_connection(s.getsockname()); "
    )
    program += "print(*(e.getsockopt(6, socket.TCP_CONGESTION, 16).rstrip(bytes(1)) for e in (c, s.accept()[0])))"
    return on(testbed, "h1", f"{sys.executable} -c {shlex.quote('import sys; ' + program)} 198.18.0.1").split()


def algorithms(on, testbed):
    """Congestion control of both ends of a connection from h1 to h2, as `ss -ti` shows it."""
    serve_once(on, testbed, "h2")
    on(testbed, "h1", "iperf3 -c h2 -t 30 >/dev/null 2>&1 & echo $! >/run/orch/client")
    look = "for i in $(seq 999); do ss -Htin {} = :5201 | grep -Eow 'cubic|reno|bbr' && exit; sleep 0.05; done; exit 1"
    found = {*on(testbed, "h1", look.format("dport")).split(), *on(testbed, "h2", look.format("sport")).split()}
    on(testbed, "h1", "kill $(cat /run/orch/client)")
    return found


def test_an_unknown_algorithm_is_the_kernels_own_refusal(up, on):
    testbed = up(2)
    change, *_ = congestion_control.changes(congestion_control.Config(algorithm="nosuch"), testbed.topology)
    with pytest.raises(AssertionError, match="Unknown tcp congestion algorithm"), Applied(on, testbed, change):
        pass


# What came but found the receiver's buffer full, since it was not scheduled in time, has arrived too.
RECEIVE = """
import os, socket
def overrun():
    names, values = (line.split() for line in open("/proc/net/snmp") if line.startswith("Udp:"))
    return int(dict(zip(names, values))["RcvbufErrors"])
s = socket.socket(type=socket.SOCK_DGRAM)
s.bind(("", 5300))
s.settimeout(0.5)
got = -overrun()
print("bound", flush=True)
while True:
    try:
        s.recv(2000)
        got += 1
    except socket.timeout:
        if os.path.exists("/run/orch/sent"):
            break
open("/run/orch/got", "w").write(str(got + overrun()))
"""
SEND = """
import socket, sys, time
s = socket.socket(type=socket.SOCK_DGRAM)
for i in range(2000):
    s.sendto(bytes(1), (sys.argv[1], 5300))
    time.sleep(0.0005)
"""


def arrived(on, testbed, src, dst):
    """How many of 2000 datagrams arrive; nothing else passes between the hosts meanwhile."""
    receiver = f"cd /run/orch; rm -f got out sent; python3 -c {shlex.quote(RECEIVE)} >out 2>&1 &"
    on(testbed, dst, f"{receiver} for i in $(seq 999); do grep -q bound out && exit; sleep 0.05; done; cat out; exit 1")
    on(testbed, src, f"python3 -c {shlex.quote(SEND)} {testbed.topology.node(dst).address}")
    told = "for i in $(seq 999); do [ -s got ] && exec cat got; sleep 0.05; done; exit 1"
    return int(on(testbed, dst, f"cd /run/orch; touch sent; {told}"))


@pytest.mark.parametrize("where", ["nic", "switch-port"])
def test_packets_are_lost_where_it_was_said_and_counted(up, on, where):
    testbed = up(2, rate=1e9)
    *offloads, rule = loss.changes(loss.Config(host="h2", share="10%", where=where), testbed.topology)
    with Applied(on, testbed, rule):
        lost = 2000 - arrived(on, testbed, "h1", "h2")
        seen, hit = rule.hits.parse(on(testbed, rule.node, shlex.join(rule.hits.read)))
        assert (seen, hit) == (2000, lost)
        assert 140 < lost < 260  # four standard deviations
        assert arrived(on, testbed, "h2", "h1") == 2000
    assert arrived(on, testbed, "h1", "h2") == 2000
    assert [change.parse(on(testbed, change.node, shlex.join(change.read))) for change in offloads] == [
        "tso off gso off gro off",
        "tso off gso off gro off",
    ]


def test_a_lost_segment_is_a_loss_to_tcp(up, on):
    """Dropped where the sender's own stack would be told of it, TCP would send again and count no retransmission."""
    testbed = up(2, rate=1e9)
    rule = loss.changes(loss.Config(host="h2", share="2%"), testbed.topology)[-1]
    with Applied(on, testbed, rule):
        serve_once(on, testbed, "h2")
        said = json.loads(on(testbed, "h1", "iperf3 -c h2 -b 5M -t 2 -J"))
        _, hit = rule.hits.parse(on(testbed, rule.node, shlex.join(rule.hits.read)))
    assert hit > 0
    assert said["end"]["sum_sent"]["retransmits"] >= hit * 0.5


def test_marks_are_set_on_connections_that_ask_for_them(up, on):
    testbed = up(2, rate=1e9)
    changes = ecn.changes(ecn.Config(host="h2", share="20%"), testbed.topology)
    *asking, rule = (change for change in changes if "offloads" not in change.name)
    lookup = 'if (!known) known = split($0, name); else for (i in name) if (name[i] == "InCEPkts") print $i'
    marked = f"awk '/^IpExt:/ {{ {lookup} }}' /proc/net/netstat"
    before = int(on(testbed, "h2", marked))
    with Applied(on, testbed, asking[0]), Applied(on, testbed, asking[1]), Applied(on, testbed, rule):
        serve_once(on, testbed, "h2")
        on(testbed, "h1", "iperf3 -c h2 -b 20M -t 2")
        seen, hit = rule.hits.parse(on(testbed, rule.node, shlex.join(rule.hits.read)))
    assert hit > 0.1 * seen > 10
    assert int(on(testbed, "h2", marked)) - before == hit


ECHO = """
import socket
s = socket.socket(type=socket.SOCK_DGRAM)
s.bind(("", 5300))
print("bound", flush=True)
while True:
    data, peer = s.recvfrom(100)
    s.sendto(data, peer)
    if data == b"end":
        break
"""
ASK = """
import socket, sys, time
s = socket.socket(type=socket.SOCK_DGRAM)
s.settimeout(60)
least = 60
for word in [b"go"] * 50 + [b"end"]:
    began = time.monotonic()
    s.sendto(word, (sys.argv[1], 5300))
    s.recv(100)
    least = min(least, time.monotonic() - began)
print(least)
"""


def round_trip_s(on, testbed, src, dst):
    """The shortest of 51 round trips of datagrams."""
    echo = f"cd /run/orch; rm -f out; python3 -c {shlex.quote(ECHO)} >out 2>&1 &"
    on(testbed, dst, f"{echo} for i in $(seq 999); do grep -q bound out && exit; sleep 0.05; done; cat out; exit 1")
    return float(on(testbed, src, f"python3 -c {shlex.quote(ASK)} {testbed.topology.node(dst).address}"))


@pytest.mark.alone
def test_packets_to_a_host_are_held_as_long_as_was_said_and_all_of_them_go_on(up, on):
    testbed = up(3, rate=1e9)
    (change,) = delay.changes(delay.Config(host="h2", time="20ms"), testbed.topology)
    with Applied(on, testbed, change):
        assert round_trip_s(on, testbed, "h1", "h2") < 0.02, "without the process packets pass the queue by"
        (program,) = change.process.files.values()
        on(testbed, "h2", f"cat > /run/orch/delay.py <<'END'\n{program.read_text()}\nEND")
        argv = shlex.join(["python3", *change.process.argv[1:]])
        on(testbed, "h2", f"cd /run/orch; {argv} >held 2>&1 & echo $! >/run/orch/pid")
        on(testbed, "h2", "for i in $(seq 999); do grep -q ready /run/orch/held && exit; sleep 0.05; done; exit 1")
        assert 0.02 <= round_trip_s(on, testbed, "h1", "h2") < 0.03
        assert 0.02 <= round_trip_s(on, testbed, "h2", "h1") < 0.03
        assert round_trip_s(on, testbed, "h1", "h3") < 0.02
        on(testbed, "h2", "kill $(cat /run/orch/pid); while [ ! -s /run/orch/delay.json ]; do sleep 0.05; done")
        told = json.loads(on(testbed, "h2", "cat /run/orch/delay.json"))
        assert round_trip_s(on, testbed, "h1", "h2") < 0.02
    assert (told["packets"], told["dropped"]) == (102, 0)
    assert told["requested_s"] == 0.02 <= told["held_p50_s"] <= told["held_p99_s"] <= told["held_max_s"]


GREET = """
import socket, sys, threading
def serve(port):
    door = socket.create_server(("", port))
    print("open", flush=True)
    while True:
        caller, _ = door.accept()
        threading.Thread(target=greet, args=(caller,)).start()
def greet(caller):
    caller.sendall(b"hello")
    while caller.recv(100):
        caller.sendall(b"again")
for port in (29500, 5300):
    threading.Thread(target=serve, args=(port,)).start()
"""
CALL = """
import os, socket, sys, time
source, address, port, patience, stay = sys.argv[1:]
s = socket.socket()
s.bind((source, 0))
s.settimeout(float(patience))
try:
    s.connect((address, int(port)))
    print(s.recv(100).decode(), flush=True)
except socket.timeout:
    print("silence")
while stay == "stay" and not os.path.exists("/run/orch/go-on"):
    time.sleep(0.02)
if stay == "stay":
    s.sendall(b"more")
    print(s.recv(100).decode(), flush=True)
"""
STRANGER = "198.18.0.250"
UNTIL = "for i in $(seq 1200); do {} && exit; sleep 0.05; done; exit 1"


def call(source, address, port, *, patience_s=60, stay="go"):
    return f"python3 -c {shlex.quote(CALL)} {source} {address} {port} {patience_s} {stay}"


def greet(on, testbed, node):
    """Say hello to who calls at a port of a run, or at another one, on any address."""
    doors = f"cd /run/orch; python3 -c {shlex.quote(GREET)} >doors 2>&1 &"
    on(testbed, node, f"{doors} {UNTIL.format('[ $(grep -c open doors) = 2 ]')}", timeout_s=90)


def test_a_firewall_lets_hosts_of_the_testbed_in_and_nobody_else(up, on):
    testbed = up(2, rate=1e9)
    change, _ = firewall.changes(firewall.Config(), testbed.topology)
    guarded, ours = (testbed.topology.node(name).address for name in ("h1", "h2"))
    greet(on, testbed, "h1")
    on(testbed, "h2", f"ip addr add {STRANGER}/24 dev eth0")
    early = f"cd /run/orch; {call(STRANGER, guarded, 29500, stay='stay')} >early 2>&1 &"
    on(testbed, "h2", f"{early} {UNTIL.format('grep -q hello early')}", timeout_s=90)

    def called(node, source, port=29500, patience_s=60):
        return on(testbed, node, call(source, guarded, port, patience_s=patience_s), timeout_s=90)

    with Applied(on, testbed, change):
        assert called("h2", ours) == "hello\n"
        assert called("h2", STRANGER, patience_s=2) == "silence\n"
        assert called("h2", STRANGER, port=5300) == "hello\n", "no port of a run"
        assert called("h1", guarded) == "hello\n", "by loopback"
        on(testbed, "h2", f"cd /run/orch; touch go-on; {UNTIL.format('grep -q again early')}", timeout_s=90)
        seen, refused = change.hits.parse(on(testbed, "h1", shlex.join(change.hits.read)))
        assert seen > refused > 0
    assert called("h2", STRANGER) == "hello\n"


ASIDE = """
set -e
cd /run/orch
ip link add side type veth peer name far
unshare -n sh -c 'echo $$ >aside.new; mv aside.new aside; exec sleep 600' >/dev/null 2>&1 &
until [ -e aside ]; do sleep 0.05; done
ip link set far netns $(cat aside)
ip addr add 10.99.0.1/24 dev side
ip link set side up
ip route replace {ours}/32 dev side
nsenter -n -t $(cat aside) sh -c 'ip addr add 10.99.0.2/24 dev far; ip addr add {ours}/32 dev far; ip link set far up'
"""


def test_a_firewall_guards_other_devices_of_the_host_too(up, on):
    """An address of the testbed does not help who comes by another way."""
    testbed = up(2, rate=1e9)
    change, _ = firewall.changes(firewall.Config(), testbed.topology)
    ours = testbed.topology.node("h2").address
    greet(on, testbed, "h1")
    on(testbed, "h1", ASIDE.format(ours=ours))

    def called(source, port, patience_s=60):
        into = "nsenter -n -t $(cat /run/orch/aside) "
        return on(testbed, "h1", into + call(source, "10.99.0.1", port, patience_s=patience_s), timeout_s=90)

    assert called(ours, 29500) == "hello\n"
    with Applied(on, testbed, change):
        for source in ("10.99.0.2", ours):
            assert called(source, 29500, patience_s=2) == "silence\n"
            assert called(source, 5300) == "hello\n"
    on(testbed, "h1", "kill $(cat /run/orch/aside)")
