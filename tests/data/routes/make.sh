#!/bin/sh
# Records what the kernel answers to questions about routes, in a network namespace of its own (needs root).
cd "$(dirname "$0")" || exit 1
exec unshare --net sh -eu <<'END'
for name in data mgmt; do
    ip link add "${name}0" type veth peer name "${name}1"
    ip link set "${name}0" up
    ip link set "${name}1" up
done
ip addr add 10.0.0.1/24 dev data0
ip addr add 192.0.2.2/24 dev mgmt0
ip route add default via 192.0.2.1
ip route add 10.0.2.0/24 via 10.0.0.254 dev data0
ip route add unreachable 10.0.9.0/24
ask() { # from, to...
    from=$1
    shift
    for to; do echo "route get $to from $from"; done | ip -oneline -force -batch -
}
ask 10.0.0.1 10.0.0.2 10.0.1.3 10.0.9.4 10.0.2.5 10.0.9.6 10.0.0.7 >answers.out 2>answers.err || true
ask 10.0.0.9 10.0.0.2 10.0.0.7 >no-address.out 2>no-address.err || true
END
