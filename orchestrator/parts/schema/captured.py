"""Tables of packet captures."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.parts.schema.column import Column, Table

TABLES: Mapping[str, Table] = {
    "captures": Table(
        "a packet capture",
        {
            "port": Column("string", "network device that was captured"),
            "captured": Column("int64", "packets that tcpdump captured, as it said at its exit"),
            "received": Column("int64", "packets that the filter received"),
            "dropped": Column("int64", "packets that the kernel dropped"),
            "files": Column("int64", "files of the capture"),
            "bytes": Column("int64", "size of the files"),
            "ended_ns": Column("int64", "until when it is whole, if captures of its host filled their budget of disk"),
        },
        required=("port", "captured", "received", "dropped", "files", "bytes"),
    ),
    "capture_flows": Table(
        "a 5-tuple in one direction at one capture point: a flow that is captured at both ends has two",
        {
            "port": Column("string", "network device that was captured"),
            "direction": Column("string", "out or in, seen from the node"),
            "protocol": Column("string", "tcp, udp, ..."),
            "src": Column("string", "address of the sender"),
            "src_port": Column("int64", "port of the sender"),
            "dst": Column("string", "address of the receiver"),
            "dst_port": Column("int64", "port of the receiver"),
            "tunnel": Column(
                "string",
                "tunnels that it came in, and what tells networks of the innermost apart, as `vxlan 42`: addresses and "
                "ports are of the innermost headers then, bytes on the wire of whole frames; empty: none",
            ),
            "outer_src": Column("string", "sender by the outermost headers of a tunnel"),
            "outer_dst": Column("string", "receiver by the outermost headers of a tunnel"),
            "kind": Column("string", "training, cross, control or other"),
            "name": Column("string", "name of the job or of the traffic source"),
            "packets": Column(
                "int64", "as captured: one that the device cuts into frames (segmentation offload) counts once"
            ),
            "wire_bytes": Column("int64", "layer 2, without FCS; of the frames that such a packet is cut into"),
            "payload_bytes": Column("int64", "transport payload"),
            "repeated_bytes": Column(
                "int64", "payload whose sequence numbers were captured before at this point; 0 where a meter counted"
            ),
            "first_ns": Column("int64", "first packet"),
            "last_ns": Column("int64", "last packet"),
        },
        required=(
            "port",
            "direction",
            "protocol",
            "src",
            "src_port",
            "dst",
            "dst_port",
            "kind",
            "name",
            "packets",
            "wire_bytes",
            "payload_bytes",
            "repeated_bytes",
            "first_ns",
            "last_ns",
        ),
    ),
    "flow_packets": Table(
        "a bin of time of a flow of `capture_flows`; empty bins are left out, and beyond two million rows of a capture "
        "the flows with the fewest bytes have theirs summed, as bins of the flow with the protocol others",
        {
            "port": Column("string", "network device that was captured"),
            "flow": Column(
                "int64", "place of the flow among the rows of `capture_flows` of the same node and launch, from 0"
            ),
            "bin_ns": Column("int64", "start of the bin"),
            "width_ns": Column("int64", "of the bin: a millisecond (wider in older runs of many flows)"),
            "packets": Column("int64", "packets"),
            "wire_bytes": Column("int64", "layer-2 bytes, without FCS"),
            "payload_bytes": Column("int64", "transport payload"),
            "repeated_bytes": Column("int64", "payload that was captured before at this point"),
        },
        required=("port", "flow", "bin_ns", "width_ns", "packets", "wire_bytes", "payload_bytes", "repeated_bytes"),
    ),
    "one_way": Table(
        "a pair of hosts: how long packets took that both captured, of all with TCP payload an even sample; a meter "
        "tells no packets apart",
        {
            "src": Column("string", "node that sent them"),
            "dst": Column("string", "node that received them"),
            "packets": Column("int64", "packets"),
            "early": Column("int64", "of these, that arrived before they were sent, by the clocks of both"),
            "low_s": Column("float64", "what all but a thousandth take at least"),
            "p50_s": Column("float64", "median"),
        },
    ),
    "packets": Table(
        "a bin of time of all packets of one kind in one direction at one capture point",
        {
            "port": Column("string", "network device that was captured"),
            "direction": Column("string", "out or in, seen from the node"),
            "kind": Column("string", "training, cross, control or other"),
            "name": Column("string", "name of the job or of the traffic source"),
            "bin_ns": Column("int64", "start of the bin"),
            "packets": Column("int64", "packets"),
            "wire_bytes": Column("int64", "layer-2 bytes, without FCS"),
            "payload_bytes": Column("int64", "transport payload"),
            "repeated_bytes": Column("int64", "payload that was captured before at this point"),
            "frames": Column("int64", "that these packets are on the wire, cut to the MTU"),
            "captured_bytes": Column("int64", "layer 2, of the packets as they were captured"),
        },
        required=(
            "port",
            "direction",
            "kind",
            "name",
            "bin_ns",
            "packets",
            "wire_bytes",
            "payload_bytes",
            "repeated_bytes",
        ),
    ),
    "metered": Table(
        "likewise, by a meter at a port that was captured, too: such as it counted beside the capture",
        {
            "port": Column("string", "network device that was metered"),
            "direction": Column("string", "out or in, seen from the node"),
            "kind": Column("string", "training, cross, control or other"),
            "name": Column("string", "name of the job or of the traffic source"),
            "bin_ns": Column("int64", "start of the bin"),
            "packets": Column("int64", "packets, joined"),
            "wire_bytes": Column("int64", "layer-2 bytes, without FCS"),
            "payload_bytes": Column("int64", "transport payload"),
            "repeated_bytes": Column("int64", "0: a meter follows no sequence numbers"),
            "frames": Column("int64", "that these packets are on the wire, cut to the MTU"),
            "captured_bytes": Column("int64", "layer 2, of the packets as they were counted"),
        },
        required=(
            "port",
            "direction",
            "kind",
            "name",
            "bin_ns",
            "packets",
            "wire_bytes",
            "payload_bytes",
            "repeated_bytes",
        ),
    ),
    "cross_packets": Table(
        "likewise of generated flows, in bins of a millisecond, which show bursts",
        {
            "port": Column("string", "network device that was captured"),
            "direction": Column("string", "out or in, seen from the node"),
            "kind": Column("string", "training, cross, control or other"),
            "name": Column("string", "name of the job or of the traffic source"),
            "bin_ns": Column("int64", "start of the bin"),
            "packets": Column("int64", "packets"),
            "wire_bytes": Column("int64", "layer-2 bytes, without FCS"),
            "payload_bytes": Column("int64", "transport payload"),
            "repeated_bytes": Column("int64", "payload that was captured before at this point"),
        },
        required=(
            "port",
            "direction",
            "kind",
            "name",
            "bin_ns",
            "packets",
            "wire_bytes",
            "payload_bytes",
            "repeated_bytes",
        ),
    ),
}
