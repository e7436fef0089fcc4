"""Run a task of a TensorFlow training with parameter servers: a server (`ps`) or a worker; needs TF_CONFIG.

Each worker runs steps of its own accord, as TensorFlow calls between-graph replication: training is asynchronous. A
step fetches all variables from the servers, computes, and sends the gradients there, where each is applied when it
arrives. The first worker is the chief: it initializes the variables. SIGTERM ends each task.

With an order each layer waits for its own variables alone. One that is enforced is a part of the graph: servers read a
variable when the worker has the one before it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Iterator, Literal, NamedTuple, NoReturn

from .. import lifecycle
from ..compute.training import LEARNING_RATE, sharpen_timer
from ..lifecycle import Step, TrainingSettings, end_on_signal, fail, first_line, own_scratch, run_rank, timed
from ..logs import COMMUNICATION, Trace

_EVERY_S = 0.2
_MOVED = re.compile(
    r"edge_\d+_(?P<tensor>\S+) from /job:(?P<source>\w+)/\S*?task:(?P<from>\d+)/\S* to /job:\w+/\S*?task:(?P<to>\d+)/"
)


class ParameterServerSettings(TrainingSettings):
    """Settings of a worker."""

    meet_s: float  # for the first worker to initialize the variables
    trace: bool  # whether spans are recorded
    order: Literal["any", "layer", "reverse"] | None  # in which variables are fetched


def cluster() -> tuple[dict[str, list[str]], str, int]:
    """Return the cluster's addresses, and this task's kind and number."""
    tf_config = json.loads(os.environ["TF_CONFIG"])
    return tf_config["cluster"], tf_config["task"]["type"], tf_config["task"]["index"]


def serve() -> NoReturn:
    """Run a parameter server without end."""
    end_on_signal(own_scratch())
    try:
        import tensorflow as tf

        addresses, kind, index = cluster()
        tf.distribute.Server(addresses, job_name=kind, task_index=index, protocol="grpc").join()
    except (ImportError, RuntimeError, tf.errors.OpError) as error:
        fail(f"TensorFlow's parameter server did not start: {first_line(error)}")
    raise AssertionError("a server never ends by itself")


def build(config: ParameterServerSettings, *, checksum: bool, trace: Trace) -> Step:  # noqa: ARG001
    """Join the cluster, and return the step, a graph over the servers and this worker."""
    sharpen_timer()  # TensorFlow's threads, in which layers sleep, inherit it
    import tensorflow as tf

    from ..compute.emulated_tensorflow import Clockwork, EmulatedModel, plain_errors

    v1 = tf.compat.v1
    v1.disable_eager_execution()
    addresses, kind, index = cluster()
    here = f"/job:{kind}/task:{index}"
    session_config = v1.ConfigProto(
        intra_op_parallelism_threads=config["threads"], device_filters=["/job:ps", here], allow_soft_placement=True
    )
    clockwork = Clockwork(config, rank=index)
    with plain_errors():
        server = tf.distribute.Server(
            addresses, job_name=kind, task_index=index, protocol="grpc", config=session_config
        )
        with v1.device(v1.train.replica_device_setter(worker_device=here, cluster=addresses)):
            model = EmulatedModel(config["layers"], clockwork)
            trained = step_over(model, tf, order=config["order"], here=here)
            initial, missing = v1.global_variables_initializer(), v1.report_uninitialized_variables()
        manager = v1.train.SessionManager(ready_op=missing, recovery_wait_secs=_EVERY_S)
        if index == 0:
            session = manager.prepare_session(server.target, init_op=initial, config=session_config)
        else:
            session = manager.wait_for_session(server.target, config=session_config, max_wait_secs=config["meet_s"])
    if session is None:
        raise RuntimeError(f"the first worker has not initialized the variables within {config['meet_s']:g} s")

    traced = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE) if config["trace"] else None

    def step(_iteration: int) -> dict[str, float]:
        metadata = v1.RunMetadata() if config["trace"] else None
        begin_wall_ns, begin_ns = time.time_ns(), time.monotonic_ns()
        with plain_errors():
            loss = float(session.run(trained, options=traced, run_metadata=metadata))
        end_ns = time.monotonic_ns()
        if metadata is not None:
            record(trace, metadata.step_stats, shift_ns=begin_ns - begin_wall_ns)
            trace.computed("forward", clockwork.begun_ns, clockwork.forward_ns)
            trace.computed("backward", clockwork.forward_ns, clockwork.last_gradient_ns)
        begun_ns = clockwork.begun_ns
        fields = timed(begun_ns, clockwork.forward_ns, end_ns, wait_s=(end_ns - clockwork.last_gradient_ns) * 1e-9)
        held_s = clockwork.held_ns * 1e-9
        fields["forward_s"] = round(fields["forward_s"] - held_s, 9)
        fields["wait_s"] = round(fields["wait_s"] + (begun_ns - begin_ns) * 1e-9 + held_s, 9)
        return fields | {"loss": loss, "samples": config["batch"], **clockwork.clock.end_iteration()}

    return step


def record(trace: Trace, step_stats: Any, *, shift_ns: int) -> None:
    """Add a step's transfers to the trace; `shift_ns` is the monotonic clock less the time since the epoch."""
    for one in transfers(step_stats):
        begin_ns, end_ns = (at * 1000 + shift_ns for at in (one.begin_us, one.end_us))
        trace.add(COMMUNICATION, one.name, begin_ns=begin_ns, end_ns=end_ns, what=one.what, size=one.size)


def fetched(weights: list[Any], tf: Any, *, order: str | None, here: str) -> list[Any]:
    """Return the values of variables at this worker, fetched in an order: `any` and None leave it to TensorFlow."""
    if order in (None, "any"):
        return [weight.read_value() for weight in weights]
    values: dict[int, Any] = {}
    before: list[Any] = []
    for number in range(len(weights)) if order == "layer" else reversed(range(len(weights))):
        with tf.control_dependencies(before):
            value = weights[number].read_value()
        with tf.device(here):
            values[number] = tf.identity(value)
        before = [values[number]]
    return [values[number] for number in range(len(weights))]


def step_over(model: Any, tf: Any, *, order: str | None, here: str) -> Any:
    """Return the step's loss, once the servers have applied its gradients."""
    with tf.GradientTape() as tape:
        values = fetched(model.weights, tf, order=order, here=here)
        # Without an order the forward pass begins when all are there: each one's first value is looked at.
        signal = tf.add_n([value[0] for value in values]) if order is None else tf.constant(0.0)
        loss = model.loss(tape, values, signal, wait=order is not None)
    gradients = tape.gradient(loss, model.weights)
    applied = [
        weight.assign_sub(LEARNING_RATE * gradient, read_value=False)
        for weight, gradient in zip(model.weights, gradients)
    ]
    with tf.control_dependencies(applied):
        return tf.identity(loss)


def main() -> None:
    if "--serve" in sys.argv[1:]:
        serve()
    trace = Trace(Path("trace.jsonl"), wanted=lifecycle.load_settings()["trace"])
    run_rank(partial(build, trace=trace), framework="TensorFlow", trace=trace)


class Transfer(NamedTuple):
    """The transfer of a tensor; times in us since the epoch."""

    name: str  # send or receive, from the worker's side
    what: str
    size: int
    begin_us: int
    end_us: int


def transfers(step_stats: Any) -> Iterator[Transfer]:
    """Yield the transfers of non-empty tensors in a worker's step, in no order; `step_stats` is RunMetadata's."""
    for device in step_stats.dev_stats:
        for node in device.node_stats:
            moved = _MOVED.search(node.timeline_label) if node.node_name == "RecvTensor" else None
            size = sum(one.tensor_description.allocation_description.requested_bytes for one in node.output)
            if moved is None or not size:
                continue  # an edge that only says that something has ended
            received = moved["source"] == "ps"
            server = moved["from"] if received else moved["to"]
            yield Transfer(
                name="receive" if received else "send",
                what=f"{moved['tensor']}, server {server}",
                size=size,
                begin_us=node.all_start_micros,
                end_us=node.all_start_micros + node.all_end_rel_micros,
            )
