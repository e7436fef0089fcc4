"""Tables of cross traffic: what sources were to send, and what they did."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.parts.schema.column import Column, Table

TABLES: Mapping[str, Table] = {
    "flows": Table(
        "a flow of cross traffic, as its source logged it",
        {
            "source": Column("string", "name of the traffic source"),
            "window_name": Column("string", "name of the window"),
            "flow": Column("int64", "number of the flow"),
            "src": Column("string", "address of the sender"),
            "dst": Column("string", "address of the receiver"),
            "src_port": Column("int64", "port of the sender"),
            "dst_port": Column("int64", "port of the receiver"),
            "planned_start_ns": Column("int64", "when it was to start"),
            "start_ns": Column("int64", "just before it connects"),
            "connected_ns": Column("int64", "when its connection was established"),
            "last_byte_ns": Column("int64", "when its last byte was handed to TCP"),
            "end_ns": Column("int64", "when the receiver had acknowledged it"),
            "planned_bytes": Column("int64", "as the schedule says; nothing where there is none"),
            "bytes": Column("int64", "payload handed to TCP"),
            "retransmits": Column("int64", "retransmitted segments"),
            "error": Column("string", "why the flow failed; empty where it did not"),
        },
        required=(
            "source",
            "window_name",
            "flow",
            "src",
            "dst",
            "src_port",
            "dst_port",
            "planned_start_ns",
            "start_ns",
            "connected_ns",
            "last_byte_ns",
            "end_ns",
            "bytes",
            "error",
        ),
    ),
    "schedules": Table(
        "a receiver of a source of generated flows: what was to be sent to it",
        {
            "source": Column("string", "name of the traffic source"),
            "window_name": Column("string", "name of the window"),
            "dst": Column("string", "receiving host"),
            "zero_ns": Column("int64", "when the schedule began"),
            "load_bps": Column("float64", "layer 2, scaled"),
            "flow_bytes": Column("int64", "what a flow adds on the wire beside its segments"),
            "arrivals": Column("string", "kind of arrivals"),
            "largest_bytes": Column("int64", "largest flow that it can draw, as sent: bursts hold no larger ones"),
            "burst_width_s": Column("float64", "width of a burst"),
            "burst_period_s": Column("float64", "period of bursts"),
            "burst_height": Column("float64", "rate in a burst over the mean rate"),
        },
        required=(
            "source",
            "window_name",
            "dst",
            "zero_ns",
            "load_bps",
            "flow_bytes",
            "arrivals",
            "largest_bytes",
            "burst_width_s",
            "burst_period_s",
            "burst_height",
        ),
    ),
    "sizes": Table(
        "a point of the distribution of flow sizes of a source without bursts, as sent",
        {
            "source": Column("string", "name of the traffic source"),
            "window_name": Column("string", "name of the window"),
            "bytes": Column("float64", "flow size"),
            "cdf": Column("float64", "share of flows that are not larger"),
        },
        required=("source", "window_name", "bytes", "cdf"),
    ),
    "loads": Table(
        "cross traffic of a source between two hosts in a window",
        {
            "window_name": Column("string", "name of the window"),
            "source": Column("string", "name of the traffic source"),
            "src": Column("string", "sending host"),
            "dst": Column("string", "receiving host"),
            "rail": Column("int64", "number of the rail that it crosses, from 0"),
            "period_s": Column("float64", "after how long the same flows come again, s; 0 where they do not"),
            "pause_s": Column("float64", "for how long it may pause by its own nature, s"),
            "requested_bps": Column("float64", "requested, layer 2, scaled"),
            "achieved_bps": Column("float64", "layer 2, where it is received; NaN when nothing captured there"),
        },
    ),
    "generated": Table(
        "a source of generated flows in a window; a flow belongs where its planned start lies",
        {
            "window_name": Column("string", "name of the window"),
            "source": Column("string", "name of the traffic source"),
            "flows": Column("int64", "flows planned in the window"),
            "shed": Column("int64", "not started, since too many were open or the sender had no processor time"),
            "starved": Column("int64", "of these, for want of the sender's processor time"),
            "unfinished": Column("int64", "still open when the sender was stopped"),
            "failed": Column("int64", "ended with an error"),
            "late_p50_s": Column("float64", "of a flow's start against its planned one"),
            "late_p99_s": Column("float64", "99th percentile"),
            "late_max_s": Column("float64", "longest"),
            "planned_bps": Column("float64", "layer 2, of the flows planned in the window"),
            "acknowledged_bps": Column("float64", "layer 2, of the flows acknowledged in the window"),
            "received_payload_bps": Column("float64", "by the sinks' own counters; NaN when they have none"),
            "size_distance": Column(
                "float64", "Kolmogorov-Smirnov, of the sizes from their distribution; NaN without one"
            ),
            "size_limit": Column("float64", "distance above which it is noted"),
            "gap_distance": Column("float64", "likewise, of the gaps between flows from the planned ones"),
        },
    ),
}
