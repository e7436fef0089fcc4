"""Tables of what trains: iterations, what ranks did in them, and what windows amount to."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.parts.schema.column import Column, Table

TABLES: Mapping[str, Table] = {
    "iterations": Table(
        "an iteration of a rank",
        {
            "job": Column("string", "name of the job"),
            "rank": Column("int64", "rank in the job"),
            "window_name": Column("string", "name of the window; empty for warm-up and whatever is outside of windows"),
            "iteration": Column("int64", "number in the job, from 0; warm-up counts"),
            "start_ns": Column("int64", "begin"),
            "end_ns": Column("int64", "end"),
            "seconds": Column("float64", "iteration time, by the monotonic clock"),
            "forward_s": Column("float64", "forward pass"),
            "backward_s": Column("float64", "until the last gradient was computed"),
            "wait_s": Column("float64", "from then until the last gradient was reduced"),
            "step_s": Column("float64", "the rest of the iteration, which is the optimizer's step above all"),
            "loss": Column("float64", "loss"),
            "samples": Column("int64", "of this rank"),
            "absorbed_s": Column(
                "float64",
                "emulated compute: how long the rank did something else while its layers were to compute, which made "
                "these no longer; missing in older runs and where compute is real",
            ),
            "jitter": Column(
                "float64", "factor of the emulated compute's time in this iteration; missing without jitter"
            ),
            "accuracy": Column(
                "float64", "share of the samples that were classified right before the step; missing where unknown"
            ),
        },
        required=("job", "rank", "iteration", "start_ns", "end_ns", "seconds"),
    ),
    "accuracy": Table(
        "an epoch of a rank that learns: its share of the held-out images, each of which one rank looks at",
        {
            "job": Column("string", "name of the job"),
            "rank": Column("int64", "rank in the job"),
            "window_name": Column("string", "that of the epoch's last iteration; empty outside of windows"),
            "epoch": Column("int64", "epochs that have ended, from 1"),
            "iteration": Column("int64", "the epoch's last one"),
            "end_ns": Column("int64", "when that one ended and the evaluation began"),
            "evaluation_s": Column("float64", "time of the evaluation, which is no part of an iteration"),
            "samples": Column("int64", "held-out images of this rank"),
            "correct": Column("int64", "those of them that its model classified right"),
            "loss": Column("float64", "mean over them"),
        },
        required=("job", "rank", "epoch", "iteration", "end_ns", "evaluation_s", "samples", "correct", "loss"),
    ),
    "spans": Table(
        "something that a rank did in an iteration, from when to when",
        {
            "job": Column("string", "name of the job"),
            "rank": Column("int64", "rank in the job"),
            "window_name": Column("string", "name of the window"),
            "iteration": Column("int64", "number in the job, from 0"),
            "lane": Column("string", "compute or communication"),
            "span": Column(
                "string",
                "forward, backward, step; all-reduce, all-gather, ..., send, receive; send and receive, or unknown, "
                "where a kernel of NCCL tells no more",
            ),
            "what": Column("string", 'which one, such as "bucket 3"'),
            "peer": Column("int64", "rank at the other end of a send or receive, else -1"),
            "bytes": Column("int64", "size of the tensor; missing where no file tells it"),
            "process_group": Column(
                "string",
                'ranks of the process group, such as "0 2"; empty for all ranks, missing where nothing tells it',
            ),
            "sequence": Column("int64", "order in which the rank's spans of the iteration began, from 0"),
            "start_ns": Column("int64", "begin"),
            "end_ns": Column("int64", "end"),
        },
        required=("job", "rank", "iteration", "lane", "span", "what", "peer", "sequence", "start_ns", "end_ns"),
    ),
    "overlaps": Table(
        "an iteration of a rank, from its spans",
        {
            "job": Column("string", "name of the job"),
            "rank": Column("int64", "rank in the job"),
            "window_name": Column("string", "name of the window"),
            "iteration": Column("int64", "number in the job, from 0"),
            "compute_s": Column("float64", "time in which it computed"),
            "communication_s": Column("float64", "time in which anything was under way"),
            "overlap_s": Column("float64", "time in which both went on"),
        },
        required=("job", "rank", "iteration", "compute_s", "communication_s", "overlap_s"),
    ),
    "collectives": Table(
        "a collective operation of one message size on a rank",
        {
            "job": Column("string", "name of the job"),
            "rank": Column("int64", "rank in the job"),
            "window_name": Column("string", "name of the window"),
            "iteration": Column("int64", "number in the job, from 0"),
            "operation": Column("string", "name of the operation"),
            "bytes": Column("int64", "message size, as nccl-tests count it"),
            "repeats": Column("int64", "repetitions of the operation"),
            "seconds": Column("float64", "time of one operation, mean over its repetitions"),
            "algorithm_bps": Column("float64", "message size over time"),
            "bus_bps": Column(
                "float64", "bus bandwidth: what the links carry, whatever the operation and the number of ranks"
            ),
            "link_bps": Column("float64", "rate of the host's link"),
        },
        required=("job", "rank", "iteration", "operation", "bytes", "repeats", "seconds", "algorithm_bps", "bus_bps"),
    ),
    "communication": Table(
        "an operation and message size in an iteration of a rank, from the log of the framework",
        {
            "job": Column("string", "name of the job"),
            "rank": Column("int64", "rank in the job"),
            "window_name": Column("string", "name of the window"),
            "iteration": Column("int64", "number in the job, from 0"),
            "operation": Column("string", "as the framework calls it"),
            "bytes": Column(
                "int64", "message size as the framework counts it: DeepSpeed has a rank's part of a gather"
            ),
            "count": Column("int64", "number of such operations"),
            "seconds": Column("float64", "mean time; of an operation that does not block, the time to start it"),
            "algorithm_bps": Column(
                "float64",
                "algorithm bandwidth as the framework computes it: DeepSpeed counts an all-reduce's message twice",
            ),
            "bus_bps": Column("float64", "bus bandwidth, likewise, with the number of all ranks"),
        },
        required=("job", "rank", "iteration", "operation", "bytes", "count", "seconds"),
    ),
    "nccl_connections": Table(
        "a connection of a rank in the whole run, as NCCL's log tells it",
        {
            "job": Column("string", "name of the job"),
            "rank": Column("int64", "rank in the job"),
            "communicator": Column("string", "its id, the same on all its ranks; empty where the log does not say it"),
            "channel": Column("int64", "number of the channel, from 0"),
            "connection": Column("int64", "number of the connection in the channel, from 0"),
            "src": Column("int64", "number in the communicator of the rank that sends; -1 for the network's own sums"),
            "dst": Column("int64", "that of the rank that receives"),
            "direction": Column("string", "over a network, what this rank does: send or receive"),
            "transport": Column("string", "NET/IB, NET/Socket or another network, P2P, SHM, COLLNET/..."),
            "detail": Column("string", "how, in NCCL's words, such as GDRDMA, IPC/read or CUMEM"),
            "device": Column("string", "device of the network, such as mlx5_0:1 or eth0"),
            "rail": Column("int64", "number of the rail that the device is of, from 0; missing where it is of none"),
        },
        required=(
            "job",
            "rank",
            "communicator",
            "channel",
            "connection",
            "src",
            "dst",
            "direction",
            "transport",
            "detail",
            "device",
        ),
    ),
    "nccl_rings": Table(
        "a channel of a rank, as NCCL's log tells it: its neighbours in the ring",
        {
            "job": Column("string", "name of the job"),
            "rank": Column("int64", "rank in the job"),
            "communicator": Column("string", "its id, the same on all its ranks; empty where the log does not say it"),
            "channel": Column("int64", "number of the channel, from 0"),
            "previous": Column("int64", "number in the communicator of the rank before it"),
            "member": Column("int64", "its own"),
            "next": Column("int64", "that of the rank after it"),
        },
        required=("job", "rank", "communicator", "channel", "previous", "member", "next"),
    ),
    "nccl_operations": Table(
        "an operation of a rank, as NCCL's Inspector measured it; it keeps those of 8 kB or more",
        {
            "job": Column("string", "name of the job"),
            "rank": Column("int64", "rank in the job"),
            "communicator": Column("string", "its id, the same on all of its ranks"),
            "member": Column("int64", "number of the rank in the communicator"),
            "members": Column("int64", "ranks of the communicator"),
            "operation": Column("string", "all-reduce, all-gather, ..., send, receive"),
            "sequence": Column("int64", "number of the operation in the communicator; gaps are what was not recorded"),
            "peer": Column("int64", "number in the communicator of the other end of a send or receive, else -1"),
            "bytes": Column("int64", "message size"),
            "seconds": Column("float64", "time of the operation"),
            "algorithm_bps": Column("float64", "message size over time"),
            "bus_bps": Column("float64", "bus bandwidth"),
            "timing": Column("string", "what measured the time: kernel_gpu, kernel_cpu or collective_cpu"),
            "written_ns": Column("int64", "when the line was written, up to 0.1 s after the operation's end"),
        },
        required=("job", "rank", "communicator", "member", "operation", "sequence", "peer", "bytes", "seconds"),
    ),
    "routing": Table(
        "a pair of ranks in an iteration: the tokens that a mixture of experts sent from one to the other",
        {
            "job": Column("string", "name of the job"),
            "rank": Column("int64", "rank in the job"),
            "window_name": Column("string", "name of the window"),
            "iteration": Column("int64", "number in the job, from 0"),
            "peer": Column("int64", "rank that received them; tokens of a rank for itself stay"),
            "tokens": Column("int64", "copies of tokens for its experts, over all blocks"),
            "bytes": Column("int64", "sent to it in all exchanges: there, back, and both for gradients"),
            "highest_bytes": Column("int64", "of the iteration, over all pairs of different ranks"),
            "lowest_bytes": Column("int64", "the least of them"),
            "nonuniform_bytes": Column("int64", "highest less lowest: Li's nonuniform factor (section 3.2)"),
        },
        required=("job", "rank", "iteration", "peer", "tokens", "bytes"),
    ),
    "windows": Table(
        "a measured window",
        {
            "window_name": Column("string", "name of the window"),
            "start_ns": Column("int64", "of the first measured iteration of any job"),
            "end_ns": Column("int64", "of the last one"),
            "valid": Column("bool", "whether its figures count"),
            "reasons": Column("string", "one a line"),
        },
    ),
    "training": Table(
        "a job in a window",
        {
            "window_name": Column("string", "name of the window"),
            "job": Column("string", "name of the job"),
            "ranks": Column("int64", "number of ranks"),
            "iterations": Column("int64", "number of measured iterations"),
            "effective_iterations": Column("float64", "independent ones that would say as much of the mean"),
            "mean_s": Column("float64", "mean iteration time"),
            "mean_low_s": Column("float64", "lower end of its 95% interval, within the run"),
            "mean_high_s": Column("float64", "upper end"),
            "p50_s": Column("float64", "median"),
            "p50_low_s": Column("float64", "lower end of its 95% interval, within the run"),
            "p50_high_s": Column("float64", "upper end"),
            "p99_s": Column("float64", "99th percentile"),
            "p99_low_s": Column("float64", "lower end of its 95% interval, within the run"),
            "p99_high_s": Column("float64", "upper end"),
            "sent_bytes": Column(
                "float64", "TCP payload per iteration, mean over ranks, scaled; NaN where not captured"
            ),
            "theory_bytes": Column("float64", "the same by theory, scaled"),
            "left_out": Column(
                "int64", "iterations under the window's traffic that were warm-up; missing where not recorded"
            ),
            "absorbed": Column(
                "float64",
                "emulated compute: share of its iterations in which a rank did something else while its layers were to "
                "compute, the largest of all ranks; missing in older runs",
            ),
            "drift": Column(
                "float64", "trend of the iteration time over the window, share of its mean; NaN where too short"
            ),
            "drift_low": Column("float64", "lower end of its 95% interval"),
            "drift_high": Column("float64", "upper end"),
            "drift_p": Column("float64", "probability of a trend as steep where there is none"),
            "interval_note": Column(
                "string", "why there is no interval, or what slow iterations there are; empty for ordinary ones"
            ),
            "period_s": Column(
                "float64", "of a job with a period: mean time between the begins of iterations; missing for others"
            ),
            "period_low_s": Column("float64", "lower end of its 95% interval, within the run"),
            "period_high_s": Column("float64", "upper end"),
            "late_s": Column("float64", "mean time by which its iterations began after their turn"),
            "offset_s": Column(
                "float64",
                "of a job that begins after another: mean time from the begin of an iteration of that one, of the "
                "nearest to what was asked; missing for others",
            ),
            "offset_low_s": Column("float64", "lower end of its 95% interval, within the run"),
            "offset_high_s": Column("float64", "upper end"),
            "off_s": Column("float64", "mean distance of that time from what was asked"),
        },
    ),
    "rails": Table(
        "a rail of a host of a job in a window; bytes are scaled, and missing where not known",
        {
            "window_name": Column("string", "name of the window"),
            "job": Column("string", "name of the job"),
            "host": Column("string", "name of the host"),
            "rail": Column("int64", "number of the rail, from 0"),
            "device": Column("string", "its network device"),
            "captured_bytes": Column("float64", "layer-2 bytes that left by it in the window, by the capture"),
            "counted_bytes": Column("float64", "the same by the kernel's counter of the device"),
            "sent_bytes": Column("float64", "TCP payload of the job an iteration, of all ranks of the host"),
            "rdma_bytes": Column("float64", "bytes an iteration by the RDMA device's port_xmit_data, headers included"),
            "theory_bytes": Column("float64", "payload an iteration by theory, as the framework spreads it over rails"),
        },
    ),
    "variation": Table(
        "a rank of a job in a window: how its iteration time varies",
        {
            "window_name": Column("string", "name of the window"),
            "job": Column("string", "name of the job"),
            "rank": Column("int64", "rank; -1 is the job as a whole"),
            "iterations": Column("int64", "number of measured iterations"),
            "mean_s": Column("float64", "mean iteration time"),
            "cv": Column("float64", "standard deviation over mean"),
            "p50_s": Column("float64", "median"),
            "p95_s": Column("float64", "95th percentile"),
            "p99_s": Column("float64", "99th percentile"),
            "max_s": Column("float64", "longest"),
            "straggler_share": Column("float64", "of an iteration, spent waiting for the rank that computes longest"),
            "efficiency": Column(
                "float64",
                "TicTac's scheduling efficiency: 1 where the shorter of computing and communicating is "
                "overlapped, below 0 where the rank also did neither",
            ),
            "overlapped": Column(
                "float64",
                "share of communication during which it computed; where rank 0 alone recorded collectives (Horovod's "
                "Timeline), their instants are taken for those of every rank",
            ),
            "orders": Column("int64", "distinct orders in which communications began; 0 where none was recorded"),
        },
    ),
    "causes": Table(
        "a cause that made the iterations of a job take longer in a window, as `orch why` names it",
        {
            "window_name": Column("string", "name of the window"),
            "job": Column("string", "name of the job"),
            "cause": Column("string", "link-rate, small-queue, load, job, loss, delay, slow-rank, processor, ..."),
            "place": Column("string", "where, for people: a link, a rank, connections"),
            "hosts": Column("string", "the hosts of that place, separated by commas"),
            "cost_share": Column("float64", "of the iteration time, along the critical path"),
            "low_share": Column("float64", "lower end of its 95% interval, within the run"),
            "high_share": Column("float64", "upper end"),
            "cost_s": Column("float64", "the same an iteration, mean"),
            "evidence": Column("string", "figures that it rests on, one a line"),
        },
    ),
    "parts": Table(
        "a part of the mean iteration time of a job in a window, along the critical path; parts sum to that time",
        {
            "window_name": Column("string", "name of the window"),
            "job": Column("string", "name of the job"),
            "part": Column("string", "computing, sending at the links' rates, a cause with its place, ..."),
            "part_s": Column("float64", "an iteration, mean"),
            "part_share": Column("float64", "of the iteration time"),
        },
    ),
}
