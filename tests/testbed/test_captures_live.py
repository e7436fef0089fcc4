from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.analysis.capture import capture_sets, trace_tables
from tests.helpers import wireshark

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.skipif(os.getuid() != 0, reason="makes namespaces of its own, in which tcpdump has to be root"),
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed"),
]

# Two namespaces with a cable; everything is gone when this shell is.
SETUP = r"""
set -eu
mount -t tmpfs none /run
mkdir -p /run/netns
ip netns add h1
ip netns add h2
ip link add eth0 netns h1 type veth peer name eth0 netns h2
for i in 1 2; do
    ip -n h$i link set lo up
    ip -n h$i link set eth0 up
    ip -n h$i addr add 198.18.77.$i/24 dev eth0
    ip -n h$i addr add fd09:77::$i/64 dev eth0 nodad
    [ "$OFFLOADS" = on ] || ip netns exec h$i ethtool -K eth0 tso off gso off gro off >/dev/null
done
if [ "$LOSS" = yes ]; then
    ip netns exec h2 nft -f - <<'NFT'
table netdev t {
    chain c {
        type filter hook ingress device "eth0" priority 0
        tcp dport 5201 numgen random mod 100 < 5 drop
    }
}
NFT
fi
ip netns exec h2 python3 -I -S -c "$SERVER" >/run/ready &
until grep -q ready /run/ready; do kill -0 $!; done
ip netns exec h1 tcpdump -Z root $CAPTURE -U --immediate-mode -w "$OUT" 2>/run/log &
dump=$!
until grep -q listening /run/log; do kill -0 $dump 2>/dev/null || { cat /run/log >&2; exit 1; }; done
ip netns exec h1 python3 -I -S -c "$CLIENT"
sleep 0.5
kill -INT $dump
wait $dump
"""
SERVER = r"""
import socket, threading
def drain(peer):
    while peer.recv(65536):
        pass
    peer.close()
def serve(server):
    while True:
        threading.Thread(target=drain, args=(server.accept()[0],), daemon=True).start()
both = socket.create_server(("::", 5201), family=socket.AF_INET6, dualstack_ipv6=True)
asked = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
asked.bind(("::", 5301))
print("ready", flush=True)
threading.Thread(target=serve, args=(both,), daemon=True).start()
while True:
    data, peer = asked.recvfrom(65536)
    asked.sendto(data[:10], peer)
"""
CLIENT = r"""
import socket
for number in range(6):
    for address in ("198.18.77.2", "fd09:77::2"):
        with socket.create_connection((address, 5201)) as peer:
            peer.sendall(bytes(60_000))
            peer.shutdown(socket.SHUT_WR)
            peer.recv(1)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.settimeout(1)
            for size in (0, 100, 3000):
                asked.sendto(bytes(size), (address, 5301))
                try:
                    asked.recv(100)
                except TimeoutError:
                    pass
# Tagged frames, made here since not every kernel has VLAN devices.
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind(("eth0", 0))
for tags in ("81000007", "88a8000781000008"):
    packet = bytes.fromhex("4500001f000100004011" "0000" "c6124e01" "c6124e02" "04d20009" "000b0000") + b"abc"
    raw.send(bytes.fromhex("020000000002" "020000000001" + tags + "0800") + packet)
# A port that nobody listens on, and the loopback device.
for address in ("198.18.77.2", "127.0.0.1"):
    try:
        socket.create_connection((address, 9), timeout=2)
    except OSError:
        pass
with socket.create_server(("127.0.0.1", 0)) as server:
    with socket.create_connection(server.getsockname()) as peer, server.accept()[0] as other:
        peer.sendall(bytes(100_000))
        peer.shutdown(socket.SHUT_WR)
        while other.recv(65536):
            pass
"""


@pytest.mark.parametrize(
    ("capture", "offloads", "loss", "link"),
    # 120 bytes hold the longest TCP options over IPv6: where a snap length cuts them, tshark does not count a segment.
    [
        ("-i eth0 -s 120 --time-stamp-precision=nano", "off", "no", "Ethernet"),
        ("-i eth0 -s 200", "on", "yes", "Ethernet"),
        ("-i any -y LINUX_SLL -s 128", "on", "no", "Linux cooked v1"),
        ("-i any -y LINUX_SLL2 -s 200", "off", "yes", "Linux cooked v2"),
        ("-i lo -s 120", "on", "no", "Ethernet"),
    ],
)
def test_conversations_of_real_captures_are_those_of_tshark(tmp_path, capture, offloads, loss, link):
    out = tmp_path / "x.pcap"
    done = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", SETUP],
        env={
            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
            "OUT": str(out),
            "CAPTURE": capture,
            "OFFLOADS": offloads,
            "LOSS": loss,
            "SERVER": SERVER,
            "CLIENT": CLIENT,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = capture_sets.read([capture_sets.CaptureSet(name="x", files=(Path(out),))])
    assert found.points[0].link_types == (link,)
    assert found.points[0].damage == ()
    said = wireshark.conversations(out)
    for kind in ("tcp", "udp"):
        mine = wireshark.ours(found, kind)
        assert mine == wireshark.exact(out, kind)
        assert wireshark.rounded(mine) == said[kind]
    rows = [row for row in trace_tables.rows(trace_tables.flows(found)) if row["protocol"] == "tcp"]
    sent = [row for row in rows if row["dst_port"] == 5201 and row["opens"]]
    if "-i lo" not in capture:
        tagged = [row for row in trace_tables.rows(trace_tables.flows(found)) if row["src"] == "198.18.78.1"]
        assert [(row["packets"], row["payload_bytes"]) for row in tagged] == [(2, 6)]
        assert len(sent) >= 12
        assert {row["payload_bytes"] - row["repeated_bytes"] for row in sent} == {60_000}
    else:
        assert any(row["payload_bytes"] == 100_000 for row in rows)
    assert any(row["resets"] for row in rows)
