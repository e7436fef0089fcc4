"""The tables of a run: their names, columns and units, without a library for tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

ColumnType = Literal["int64", "float64", "string", "bool"]
Columns = Mapping[str, Sequence[Any] | Any]  # column name -> values of equal length (lists or arrays)

BIN_NS = 10_000_000  # width of the bins of `packets`, unless a reader asks for another

# Instants are `*_ns`: nanoseconds since the epoch in the controller's time base (the node's clock plus its measured
# offset). Rates and sizes are as they were on the wire, not multiplied back by the scale. The store adds the columns
# `run`, and for the output of a launch `node` and `launch`, in front.
TABLES: Mapping[str, Mapping[str, ColumnType]] = {
    "iterations": {
        "job": "string",
        "rank": "int64",
        "window_name": "string",  # empty outside every window
        "iteration": "int64",  # from 0, the job's own count
        "start_ns": "int64",
        "end_ns": "int64",
        "seconds": "float64",  # by the monotonic clock
        "forward_s": "float64",
        "backward_s": "float64",  # until the last gradient was computed
        "wait_s": "float64",  # from then until the last gradient was reduced
        "loss": "float64",
        "samples": "int64",  # of this rank
        "accuracy": "float64",  # share of the samples that were classified right before the step; missing where unknown
    },
    "spans": {  # what a rank did when
        "job": "string",
        "rank": "int64",
        "window_name": "string",
        "iteration": "int64",
        "lane": "string",  # compute or communication
        "span": "string",  # forward, backward, step; all-reduce, all-gather, ..., send, receive
        "what": "string",  # "bucket 3"
        "peer": "int64",  # rank at the other end of a send or receive, else -1
        "bytes": "int64",  # of the tensor
        "sequence": "int64",  # order in which the rank's spans of the iteration began, from 0
        "start_ns": "int64",
        "end_ns": "int64",
    },
    "overlaps": {  # per rank and iteration, from its spans
        "job": "string",
        "rank": "int64",
        "window_name": "string",
        "iteration": "int64",
        "compute_s": "float64",  # time in which it computed
        "communication_s": "float64",  # time in which anything was under way
        "overlap_s": "float64",  # time in which both went on
    },
    "collectives": {  # per rank and collective operation of one size
        "job": "string",
        "rank": "int64",
        "window_name": "string",
        "iteration": "int64",
        "operation": "string",
        "bytes": "int64",  # of the message, as nccl-tests count it
        "repeats": "int64",
        "seconds": "float64",  # of one, the mean over its repeats
        "algorithm_bps": "float64",  # message over time
        "bus_bps": "float64",  # what the links carry, whatever the operation and the number of ranks
        "link_bps": "float64",  # the host's link
    },
    "communication": {  # per rank, iteration, operation and message size: what a framework's own log says
        "job": "string",
        "rank": "int64",
        "window_name": "string",
        "iteration": "int64",
        "operation": "string",  # as the framework calls it
        "bytes": "int64",  # of the message, as the framework counts it: DeepSpeed has a rank's part of a gather
        "count": "int64",
        "seconds": "float64",  # mean; of an operation that does not block, that of starting it
        "algorithm_bps": "float64",  # as the framework computes it: DeepSpeed counts an all-reduce's message twice
        "bus_bps": "float64",  # likewise, with the number of all ranks
    },
    "routing": {  # per rank, iteration and rank that has experts: where a mixture of experts sent its tokens
        "job": "string",
        "rank": "int64",
        "window_name": "string",
        "iteration": "int64",
        "peer": "int64",  # the rank itself too: those stay
        "tokens": "int64",  # copies of tokens to its experts, over all blocks
        "bytes": "int64",  # sent to it in all exchanges: there, back, and both for gradients
        "highest_bytes": "int64",  # of the iteration, over all pairs of different ranks
        "lowest_bytes": "int64",
        "nonuniform_bytes": "int64",  # highest less lowest: Li's nonuniform factor (section 3.2)
    },
    "flows": {  # what a traffic source says of its own flows
        "source": "string",
        "window_name": "string",
        "flow": "int64",
        "src": "string",
        "dst": "string",
        "src_port": "int64",
        "dst_port": "int64",
        "planned_start_ns": "int64",
        "start_ns": "int64",  # just before it connects
        "connected_ns": "int64",
        "last_byte_ns": "int64",  # handed to TCP
        "end_ns": "int64",  # acknowledged by the receiver
        "planned_bytes": "int64",  # as the schedule says; nothing where there is none
        "bytes": "int64",  # payload handed to TCP
        "retransmits": "int64",
        "error": "string",
    },
    "schedules": {  # what a traffic source was to send from its node to each receiver
        "source": "string",
        "window_name": "string",
        "dst": "string",
        "zero_ns": "int64",  # when the schedule began
        "load_bps": "float64",  # layer 2, scaled
        "flow_bytes": "int64",  # what a flow adds on the wire beside its segments
        "arrivals": "string",
        "burst_width_s": "float64",
        "burst_period_s": "float64",
        "burst_height": "float64",
    },
    "sizes": {  # the distribution of flow sizes of a source without bursts, as sent
        "source": "string",
        "window_name": "string",
        "bytes": "float64",
        "cdf": "float64",
    },
    "counters": {
        "port": "string",  # network device; empty for the node as a whole
        "time_ns": "int64",
        "counter": "string",
        "value": "float64",
    },
    "tasks": {  # what the threads of each process of the run on the node did since it began, cumulative
        "time_ns": "int64",
        "process": "string",  # name of its launch; empty for what the agent runs for itself
        "threads": "int64",
        "run_s": "float64",  # processor time used
        "wait_s": "float64",  # time for which a thread was ready to run and had to wait; missing where not counted
    },
    "sockets": {
        "time_ns": "int64",
        "src": "string",
        "src_port": "int64",
        "dst": "string",
        "dst_port": "int64",
        "congestion": "string",
        "rtt_s": "float64",
        "cwnd_segments": "int64",
        "retransmits": "int64",
        "bytes_acked": "int64",
        "unacked_segments": "int64",
    },
    "delays": {  # packets that a condition held on their way to the node, over the whole run
        "requested_s": "float64",
        "packets": "int64",
        "dropped": "int64",  # because too many were held
        "held_p50_s": "float64",
        "held_p99_s": "float64",
        "held_max_s": "float64",
    },
    "captures": {
        "port": "string",
        "captured": "int64",  # the tool's own three counters at its exit
        "received": "int64",
        "dropped": "int64",
        "files": "int64",
        "bytes": "int64",  # of the files
    },
    "capture_flows": {  # one row a connection (UDP: 5-tuple) and direction and capture point
        "port": "string",
        "direction": "string",  # "out" or "in", seen from the node
        "protocol": "string",
        "src": "string",
        "src_port": "int64",
        "dst": "string",
        "dst_port": "int64",
        "kind": "string",  # as Flow.kind: training, cross, control; else other
        "name": "string",
        "packets": "int64",  # as captured: one that the device cuts into frames (segmentation offload) counts once
        "wire_bytes": "int64",  # layer 2, without FCS; of the frames that such a packet is cut into
        "payload_bytes": "int64",
        "repeated_bytes": "int64",  # payload whose sequence numbers were captured before at this port, this way
        "first_ns": "int64",
        "last_ns": "int64",
    },
    "flow_packets": {  # what each flow carried over time, bins without any left out
        "port": "string",
        "flow": "int64",  # place of the flow among the rows of `capture_flows` of the same node and launch, from 0
        "bin_ns": "int64",  # start of the bin
        "width_ns": "int64",  # of the bin: a millisecond, or twice as often as it takes to bound the rows
        "packets": "int64",
        "wire_bytes": "int64",
        "payload_bytes": "int64",
        "repeated_bytes": "int64",
    },
    "packets": {  # packets in bins
        "port": "string",
        "direction": "string",
        "kind": "string",
        "name": "string",
        "bin_ns": "int64",  # start of the bin
        "packets": "int64",
        "wire_bytes": "int64",
        "payload_bytes": "int64",
        "repeated_bytes": "int64",
        "frames": "int64",  # that these packets are on the wire, cut to the MTU
        "captured_bytes": "int64",  # layer 2, of the packets as they were captured
    },
    "cross_packets": {  # those of flow generators in bins of a millisecond, to see bursts
        "port": "string",
        "direction": "string",
        "kind": "string",
        "name": "string",
        "bin_ns": "int64",
        "packets": "int64",
        "wire_bytes": "int64",
        "payload_bytes": "int64",
        "repeated_bytes": "int64",
    },
    "windows": {
        "window_name": "string",
        "start_ns": "int64",  # of the first measured iteration of any job
        "end_ns": "int64",  # of the last one
        "valid": "bool",
        "reasons": "string",  # one a line
    },
    "processors": {  # per window and node; shares of the time of all processors that the node's kernel has
        "window_name": "string",
        "host": "string",  # name of the node
        "count": "float64",
        "own_share": "float64",  # used by this node's processes of the run
        "others_share": "float64",  # by processes that are of no node of the run
        "interrupt_share": "float64",
        "steal_share": "float64",  # taken by the hypervisor
        "pressure_share": "float64",  # of the window: some process waited for a processor
        "throttled_share": "float64",  # of the window: a control group's limit stopped processes, on all processors
        "wait_share": "float64",  # of the window: the process of a job that waited longest, with all its threads
        "others_wait_share": "float64",  # likewise, for work that is not the run's: as the gate `processor` has it
    },
    "loads": {  # cross traffic, per window and pair of hosts
        "window_name": "string",
        "source": "string",
        "src": "string",  # node names
        "dst": "string",
        "requested_bps": "float64",  # layer 2, scaled
        "achieved_bps": "float64",  # layer 2, where it is received; NaN when nothing captured there
    },
    "generated": {  # what a generator of single flows did, per window; a flow belongs where its planned start lies
        "window_name": "string",
        "source": "string",
        "flows": "int64",
        "shed": "int64",  # not started, since too many were open
        "unfinished": "int64",  # still open when the sender was stopped
        "failed": "int64",
        "late_p50_s": "float64",  # of a flow's start against its planned one
        "late_p99_s": "float64",
        "late_max_s": "float64",
        "planned_bps": "float64",  # layer 2, of the flows planned in the window
        "acknowledged_bps": "float64",  # layer 2, of the flows acknowledged in the window
        "received_payload_bps": "float64",  # by the sinks' own counters; NaN when they have none
        "size_distance": "float64",  # Kolmogorov-Smirnov, of the sizes from their distribution; NaN without one
        "size_limit": "float64",
        "gap_distance": "float64",  # likewise, of the gaps between flows from the planned ones
    },
    "training": {  # per window and job
        "window_name": "string",
        "job": "string",
        "ranks": "int64",
        "iterations": "int64",
        "mean_s": "float64",
        "mean_low_s": "float64",
        "mean_high_s": "float64",
        "p50_s": "float64",
        "p50_low_s": "float64",
        "p50_high_s": "float64",
        "p99_s": "float64",
        "p99_low_s": "float64",
        "p99_high_s": "float64",
        "sent_bytes": "float64",  # TCP payload an iteration, mean over ranks, scaled; NaN when not captured
        "theory_bytes": "float64",  # the same by theory, scaled
        "left_out": "int64",  # iterations under the window's traffic that were warm-up; missing where not recorded
        "drift": "float64",  # trend of the iteration time over the window, a share of its mean; NaN when too short
        "drift_low": "float64",
        "drift_high": "float64",
        "drift_p": "float64",  # probability of a trend as steep where there is none
    },
    "variation": {  # of an iteration's time, per window, job and rank; analysis/variation.py has the formulas
        "window_name": "string",
        "job": "string",
        "rank": "int64",  # -1: the job, mean over ranks
        "iterations": "int64",
        "mean_s": "float64",
        "cv": "float64",  # standard deviation over mean
        "p50_s": "float64",
        "p95_s": "float64",
        "p99_s": "float64",
        "max_s": "float64",
        "straggler_share": "float64",  # of the iteration, waited for the rank that computes longest
        "efficiency": "float64",  # of scheduling: 1 when the shorter of computing and communicating is hidden
        "overlapped": "float64",  # share of communication during which it computed
        "orders": "int64",  # different orders of communications over iterations; 0 where none was recorded
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutput:
    """What one launch wrote: the folder of its files, and which launch it was."""

    folder: Path
    node: str
    launch: str
    job: str | None
    rank: int | None
    window: str | None  # of a traffic launch
    source: str | None  # of a traffic launch
    offset_ns: int  # controller's clock minus the node's: add it to what the node stamped
