"""Tables of hosts: counters, processes, sockets, delays, processors."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.parts.schema.column import Column, Table

TABLES: Mapping[str, Table] = {
    "counters": Table(
        "a sample of a counter of a network device or of a node; most counters are cumulative",
        {
            "port": Column("string", "network device, or the source of `datagrams.`; empty for the node as a whole"),
            "time_ns": Column("int64", "when the sample was taken"),
            "counter": Column("string", "name of the counter"),
            "value": Column("float64", "its value"),
        },
        required=("port", "time_ns", "counter", "value"),
    ),
    "tasks": Table(
        "a sample of a process of the run, cumulative over its threads since it began",
        {
            "time_ns": Column("int64", "when the sample was taken"),
            "process": Column("string", "name of its launch; empty for what the agent runs for itself"),
            "threads": Column("int64", "number of threads"),
            "run_s": Column("float64", "processor time used"),
            "wait_s": Column(
                "float64", "time for which a thread was ready to run and had to wait; missing where not counted"
            ),
        },
        required=("time_ns", "process", "run_s"),
    ),
    "waits": Table(
        "a thread of the run that waited for a processor for a millisecond or more since the sample before",
        {
            "time_ns": Column("int64", "when the sample was taken"),
            "process": Column("string", "name of its launch"),
            "thread": Column("int64", "number of the thread"),
            "processor": Column("int64", "number of the processor that it was on last"),
            "run_s": Column("float64", "processor time that it used since the sample before"),
            "wait_s": Column("float64", "time for which it was ready to run and had to wait, likewise"),
        },
        required=("time_ns", "process", "thread", "processor", "run_s", "wait_s"),
    ),
    "sockets": Table(
        "a sample of a TCP connection; what a kernel's tcp_info is too short for is missing",
        {
            "time_ns": Column("int64", "when the sample was taken"),
            "src": Column("string", "address of the sender"),
            "src_port": Column("int64", "port of the sender"),
            "dst": Column("string", "address of the receiver"),
            "dst_port": Column("int64", "port of the receiver"),
            "congestion": Column("string", "congestion control"),
            "process": Column("string", "name of the launch that has it; empty where that is not known"),
            "rtt_s": Column("float64", "smoothed round-trip time"),
            "cwnd_segments": Column("int64", "congestion window"),
            "retransmits": Column("int64", "retransmitted segments"),
            "bytes_acked": Column("int64", "bytes acknowledged"),
            "unacked_segments": Column("int64", "segments in flight"),
            "timeouts": Column("int64", "retransmission time-outs so far; missing before Linux 6.7"),
            "backoff": Column("int64", "time-outs in a row that it waits out now"),
            "rto_s": Column("float64", "retransmission time-out"),
            "rttvar_s": Column("float64", "mean deviation of the round-trip time"),
            "min_rtt_s": Column("float64", "least round-trip time of late; missing where there was none"),
            "busy_s": Column("float64", "time for which it had data to send or unacknowledged, so far"),
            "rwnd_limited_s": Column("float64", "of that, limited by the receiver's window"),
            "sndbuf_limited_s": Column("float64", "of that, limited by the sender's buffer"),
            "delivery_rate_bps": Column("float64", "rate at which data was acknowledged of late, payload"),
            "app_limited": Column("int64", "1: that rate was the application's, who had no more to send"),
            "mss_bytes": Column("int64", "largest segment that it sends"),
            "bytes_sent": Column("int64", "payload sent so far, with what was sent again"),
            "bytes_retrans": Column("int64", "payload of that which was sent again"),
            "bytes_received": Column("int64", "payload received so far"),
            "unread_bytes": Column("int64", "payload that arrived, and that the process has not read (ss: Recv-Q)"),
            "notsent_bytes": Column("int64", "payload that waits in the sender's buffer and was never sent"),
            "delivered": Column("int64", "segments delivered so far"),
            "delivered_ce": Column("int64", "of these, with the mark of ECN"),
            "dsack_dups": Column("int64", "segments that the receiver had got before, as it said (RFC 2883)"),
            "reord_seen": Column("int64", "times that reordering was seen"),
            "snd_wnd_bytes": Column("int64", "window that the receiver advertised last"),
            "rcv_wnd_bytes": Column("int64", "window that was advertised to the other end"),
            "total_rto_recoveries": Column("int64", "times that it came back from time-outs"),
            "total_rto_time_s": Column("float64", "time spent in these"),
        },
        required=("time_ns", "src", "src_port", "dst", "dst_port"),
    ),
    "delays": Table(
        "a node for which the condition `delay` held packets, over the whole run",
        {
            "requested_s": Column("float64", "delay that the condition asks for"),
            "packets": Column("int64", "packets held"),
            "dropped": Column("int64", "packets dropped because too many were held"),
            "held_p50_s": Column("float64", "median time for which packets were held"),
            "held_p99_s": Column("float64", "99th percentile"),
            "held_max_s": Column("float64", "longest"),
        },
        required=("requested_s", "packets", "dropped", "held_p50_s", "held_p99_s", "held_max_s"),
    ),
    "marks": Table(
        "a port where the condition `ecn` marked packets at a threshold, over the whole run",
        {
            "device": Column("string", "network device"),
            "threshold_bytes": Column("int64", "what has to wait, on the wire, before packets are marked"),
            "rate_bps": Column("float64", "rate of the port's queue"),
            "packets": Column("int64", "packets that left by the port, or were to"),
            "capable": Column("int64", "of these, ECN-capable"),
            "marked": Column("int64", "of these, marked, since more than the threshold waited"),
            "unmarkable": Column("int64", "packets that found as much and were not ECN-capable"),
            "least_marked_bytes": Column("int64", "least that waited as a packet was marked; missing where none was"),
            "most_passed_bytes": Column("int64", "most that waited as a capable packet was not; missing likewise"),
        },
        required=("device", "threshold_bytes", "packets", "capable", "marked", "unmarkable"),
    ),
    "congestion": Table(
        "a rail of a host in a window: what its device counted there; missing where it does not count it",
        {
            "window_name": Column("string", "name of the window"),
            "host": Column("string", "name of the host"),
            "rail": Column("int64", "number of the rail, from 0"),
            "device": Column("string", "its network device"),
            "cnp_sent": Column("float64", "congestion notification packets sent, since marked packets arrived"),
            "cnp_handled": Column("float64", "congestion notification packets received"),
            "ecn_marked": Column("float64", "RoCE packets received with the mark of ECN"),
            "out_of_sequence": Column("float64", "RDMA packets received out of sequence"),
            "retransmits": Column("float64", "times that RDMA sent again, since the receiver said or let know so"),
            "timeouts": Column("float64", "times that RDMA sent again, since no acknowledgement came in time"),
            "discards": Column("float64", "packets received and discarded by the port for want of room"),
            "pfc_rx": Column("float64", "PFC pause frames received, of all priorities"),
            "pfc_tx": Column("float64", "PFC pause frames sent, of all priorities"),
            **{
                f"pfc_{way}_{number}": Column("float64", f"PFC pause frames {done} of priority {number}")
                for way, done in (("rx", "received"), ("tx", "sent"))
                for number in range(8)
            },
        },
    ),
    "switch_ports": Table(
        "a port of a switch in a window, seen from the switch, as the collector `snmp` sampled it; missing where the "
        "switch did not tell it, or restarted",
        {
            "window_name": Column("string", "name of the window"),
            "switch": Column("string", "name of the switch"),
            "port": Column("string", "name of the port"),
            "in_bytes": Column("float64", "received, with Ethernet's headers and FCS (ifHCInOctets)"),
            "out_bytes": Column("float64", "sent (ifHCOutOctets)"),
            "in_discards": Column("float64", "packets received and discarded for want of room (ifInDiscards)"),
            "out_discards": Column("float64", "packets that were to be sent, likewise (ifOutDiscards)"),
            "in_errors": Column("float64", "packets received that were damaged (ifInErrors)"),
            "out_errors": Column("float64", "packets that could not be sent (ifOutErrors)"),
        },
    ),
    "unread": Table(
        "things of one kind in a file of a process that its reader did not understand and passed over",
        {
            "file": Column("string", "name of the file in the folder of the process"),
            "what": Column("string", "what they are: lines, events, connections, ..."),
            "count": Column("int64", "number of them"),
            "line": Column("int64", "line of the first, from 1; 0 where not known"),
            "text": Column("string", "its beginning"),
        },
        required=("file", "what", "count", "line", "text"),
    ),
    "processors": Table(
        "a node in a window; shares are of the time of all processors that the node's kernel has",
        {
            "window_name": Column("string", "name of the window"),
            "host": Column("string", "name of the node"),
            "count": Column("float64", "number of processors"),
            "own_share": Column("float64", "used by this node's processes of the run"),
            "others_share": Column("float64", "by processes that are of no node of the run"),
            "interrupt_share": Column("float64", "spent in interrupts"),
            "steal_share": Column("float64", "taken by the hypervisor"),
            "pressure_share": Column("float64", "of the window: some process waited for a processor"),
            "throttled_share": Column(
                "float64", "of the window: a control group's limit stopped processes, on all processors"
            ),
            "wait_share": Column(
                "float64", "of the window: the process of a job that waited longest, with all its threads"
            ),
            "others_wait_share": Column(
                "float64", "likewise, for work that is not the run's: as the gate `processor` has it"
            ),
        },
    ),
}
