"""Tables of fabrics: paths of flows; by window, the use of links and elephants that share an uplink."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.parts.schema.column import Column, Table

TABLES: Mapping[str, Table] = {
    "paths": Table(
        "what a leaf (`node`) sent of a flow to a spine in one sample; flows within a leaf are not in it",
        {
            "begin_ns": Column("int64", "when the sample before was taken"),
            "end_ns": Column("int64", "when this sample was taken"),
            "src": Column("string", "address of the sender"),
            "src_port": Column("int64", "port of the sender"),
            "dst": Column("string", "address of the receiver"),
            "dst_port": Column("int64", "port of the receiver"),
            "protocol": Column("int64", "6 (TCP) or 17 (UDP)"),
            "spine": Column("string", "spine over which it went: over the links LEAF-SPINE and TO_LEAF-SPINE"),
            "to_leaf": Column("string", "leaf of the receiver"),
            "chosen": Column(
                "string", "spine that the kernel's routes name for this flow (`ip route get`); empty where they do not"
            ),
            "packets": Column("int64", "packets, before the uplink's queue"),
            "bytes": Column("int64", "layer-2 bytes, without FCS"),
        },
        required=("begin_ns", "end_ns", "src", "src_port", "dst", "dst_port", "protocol", "spine", "packets", "bytes"),
    ),
    "fabric_links": Table(
        "a direction of a link of the fabric in a window, from the counters of the port that sends",
        {
            "window_name": Column("string", "name of the window"),
            "link": Column("string", "name of the link"),
            "node": Column("string", "host or switch that sends"),
            "port": Column("string", "its port"),
            "rate_bps": Column("float64", "rate of the link, unscaled"),
            "used": Column("float64", "share of the rate that was sent"),
            "waiting_s": Column("float64", "mean backlog, as time on the link"),
            "drops": Column("float64", "packets that the queue dropped"),
            "flows": Column("int64", "large flows that leaves sent over it; missing for what no leaf tells"),
        },
    ),
    "collisions": Table(
        "elephants of a leaf in a window: large flows that shared an uplink while another uplink was idle",
        {
            "window_name": Column("string", "name of the window"),
            "leaf": Column("string", "the leaf"),
            "samples": Column("int64", "samples of its flows in the window"),
            "collided": Column("int64", "samples in which large flows shared an uplink while another was idle"),
            "share": Column("float64", "share of the samples' time in which they did"),
            "pairs": Column("int64", "different pairs of flows that shared an uplink then"),
        },
    ),
}
