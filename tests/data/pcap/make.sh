#!/bin/sh
# Makes the captures in this folder: needs root, iproute2, nftables, ethtool, tcpdump and python3. All state lives in one `unshare -n`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ "${INSIDE:-}" != 1 ]; then
    exec env INSIDE=1 unshare --net --mount --pid --fork --kill-child --mount-proc sh "$0"
fi
mount -t tmpfs none /run
mkdir -p /run/netns
ip netns add h1
ip netns add h2
ip link add eth0 netns h1 address 02:00:00:00:00:01 type veth peer name eth0 netns h2 address 02:00:00:00:00:02
for i in 1 2; do
    ip -n h$i link set lo up
    ip -n h$i link set eth0 up
    ip -n h$i addr add 10.9.0.$i/24 dev eth0
    ip -n h$i addr add fd09::$i/64 dev eth0 nodad
done
cat >/run/send.py <<'PY'
import socket, sys, threading
family, address, port, size = socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET, sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if sys.argv[1] == "recv":
    server = socket.create_server((address, port), family=family)
    print("ready", flush=True)
    peer, _ = server.accept()
    got = 0
    while data := peer.recv(65536):
        got += len(data)
    assert got == size, got
else:
    with socket.create_connection((address, port)) as peer:
        peer.sendall(bytes(size))
PY
transfer() {  # address size
    ip netns exec h2 python3 /run/send.py recv "$1" 5201 "$2" >/run/ready &
    receiver=$!
    until grep -q ready /run/ready; do :; done
    ip netns exec h1 python3 /run/send.py send "$1" 5201 "$2"
    wait $receiver
}
capture() {  # file precision filter...
    file=$1 precision=$2
    shift 2
    ip netns exec h1 tcpdump -Z root -i eth0 -n -s 96 --time-stamp-precision=$precision -U -w "$here/$file" "$@" 2>/run/log &
    dump=$!
    until grep -q listening /run/log; do :; done
}
finish() {
    sleep 1.5  # tcpdump's ring is handed over once a second
    kill -INT $dump
    wait $dump
}
for i in 1 2; do ip netns exec h$i ethtool -K eth0 tso off gso off gro off >/dev/null; done
capture nano_tcp.pcap nano not ip6
transfer 10.9.0.2 200000
finish
capture ipv6.pcap nano 'tcp or udp'
transfer fd09::2 50000
ip netns exec h1 python3 -c 'import socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for _ in range(3): s.sendto(bytes(100), ("fd09::2", 5301))'
finish
ip netns exec h2 nft -f - <<'NFT'
table netdev t {
    chain c {
        type filter hook ingress device "eth0" priority 0
        tcp dport 5201 numgen random mod 100 < 5 drop
    }
}
NFT
capture loss.pcap nano tcp
transfer 10.9.0.2 200000
finish
ip netns exec h2 nft flush ruleset
for i in 1 2; do ip netns exec h$i ethtool -K eth0 tso on gso on gro on >/dev/null; done
capture micro_tso.pcap micro tcp
transfer 10.9.0.2 400000
finish
