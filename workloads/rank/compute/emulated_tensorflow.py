"""A TensorFlow model whose layers take time instead of computing, with real variables and gradients.

Each layer is a function with a gradient of its own: forward and backward call Python, which sleeps until the layer
would have been done; backward gives gradients that were made beforehand. In a graph what needs a gradient can go on
as soon as it is there, as with a real model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import numpy as np
import tensorflow as tf

from ..lifecycle import LayerPlan, Step, TrainingSettings, first_line, timed
from .training import clock_of

_THREADS = 4  # one of them sleeps for the layers; the others start transfers meanwhile


class Clockwork:
    """The clock of emulated layers. The gradients are noise, drawn once for each rank, float32."""

    def __init__(self, config: TrainingSettings, *, rank: int) -> None:
        layers = config["layers"]
        draw = np.random.default_rng(config["seed"] + rank)
        self.clock = clock_of(config, rank)
        self.begun_ns = self.forward_ns = self.last_gradient_ns = 0  # begin and end of the forward, end of the backward
        self.held_ns = 0  # by which layers of the forward pass waited for their own values
        self._there_ns = [0] * len(layers)  # when the values of each layer had arrived
        self._ended_ns = 0  # of the layer before
        self._forward_s = list(accumulate(forward for forward, _, _ in layers))
        self._backward_s = list(accumulate(backward for _, backward, _ in reversed(layers)))[::-1]
        self._gradients = [draw.standard_normal(sum(sizes), dtype=np.float32) for _, _, sizes in layers]

    def forward(self, layer: int, signal: Any) -> Any:
        """Return an operation that returns `signal` when the layer's forward pass would have ended."""
        return tf.ensure_shape(tf.numpy_function(self._sleep_forward, [layer, signal], tf.float32), ())

    def there(self, layer: int) -> Any:
        """Return an operation that notes that the values of a layer have arrived."""
        return tf.numpy_function(self._note, [layer], tf.float32)

    def _note(self, layer: Any) -> Any:
        self._there_ns[layer] = time.monotonic_ns()
        return np.float32(0)

    def backward(self, layer: int, upstream: Any) -> Any:
        """Return an operation that returns the layer's gradients, as a vector, and `upstream` when they would exist."""
        gradient, signal = tf.numpy_function(self._sleep_backward, [layer, upstream], (tf.float32, tf.float32))
        return tf.ensure_shape(gradient, self._gradients[layer].shape), tf.ensure_shape(signal, ())

    def _sleep_forward(self, layer: Any, signal: Any) -> Any:
        if layer == 0:
            self.begun_ns = time.monotonic_ns()
            self.held_ns = 0
            self.clock.start()
        elif self._there_ns[layer] > self._ended_ns:
            late_ns = self._there_ns[layer] - self._ended_ns
            self.held_ns += late_ns
            self.clock.hold(late_ns * 1e-9)
        self.clock.sleep_until(self._forward_s[layer])
        self._ended_ns = time.monotonic_ns()
        if layer == len(self._gradients) - 1:
            self.forward_ns = time.monotonic_ns()
        return signal

    def _sleep_backward(self, layer: Any, upstream: Any) -> Any:
        if layer == len(self._gradients) - 1:
            self.clock.start()
        gradient = self._gradients[layer].copy()  # TensorFlow may compute in place on what it is given
        self.clock.sleep_until(self._backward_s[layer])
        if layer == 0:
            self.last_gradient_ns = time.monotonic_ns()
        return gradient, upstream


class EmulatedModel:
    """Layers that sleep, and their variables, which begin as ones.

    The loss is the mean square of the last layer's parameters: a real number that moves with them, and no sign of
    learning.
    """

    def __init__(self, layers: list[LayerPlan], clockwork: Clockwork) -> None:
        self._clockwork = clockwork
        self._sizes = [sizes for _, _, sizes in layers]
        self._tells = max(place for place, sizes in enumerate(self._sizes) if sizes)
        self.weights = [tf.Variable(tf.ones(size), trainable=True) for sizes in self._sizes for size in sizes]

    def loss(self, tape: Any, values: list[Any], signal: Any, *, wait: bool = False) -> Any:
        """Run the forward pass over the weights' values, once `signal`, a scalar, is there; within the tape.

        With `wait` each layer also waits for its own values.
        """
        tape.watch(signal)  # so that a first layer whose parameters all scaled away has a backward pass too
        left = iter(values)
        for place, sizes in enumerate(self._sizes):
            signal = self._layer(place, wait=wait)(signal, *(next(left) for _ in sizes))
        return signal

    def _layer(self, place: int, *, wait: bool) -> Any:
        clockwork, sizes = self._clockwork, self._sizes[place]

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def layer(signal: Any, *values: Any) -> Any:
            if place == self._tells:
                with tf.control_dependencies([signal]):
                    signal = tf.reduce_mean(tf.square(values[-1]))

            there = []
            if wait and values:
                with tf.control_dependencies(list(values)):
                    there = [clockwork.there(place)]
            with tf.control_dependencies(there):
                done = clockwork.forward(place, signal)

            def backward(upstream: Any) -> Any:
                with tf.control_dependencies([done]):  # the loss's own gradient is there from the beginning
                    upstream = tf.identity(upstream)
                flat, onward = clockwork.backward(place, upstream)
                return (onward, *(tf.split(flat, sizes) if sizes else ()))

            return done, backward

        return layer

    def checksum(self) -> dict[str, float]:
        """Return the sum of all parameters, for the log."""
        return {"checksum": sum(float(np.sum(weight.numpy(), dtype=np.float64)) for weight in self.weights)}


def step_of(
    trained: Callable[[], Any], model: EmulatedModel, clockwork: Clockwork, *, batch: int, checksum: bool
) -> Step:
    """Return a step: it runs the traced function, and returns times, loss and, if requested, the weights' sum."""

    def step(_iteration: int) -> dict[str, float]:
        begin_ns = time.monotonic_ns()
        with plain_errors():
            loss = float(trained())
        end_ns = time.monotonic_ns()
        wait_s = (end_ns - clockwork.last_gradient_ns) * 1e-9
        fields = timed(begin_ns, clockwork.forward_ns, end_ns, wait_s=wait_s)
        fields |= {"loss": loss, "samples": batch, **clockwork.clock.end_iteration()}
        return fields | (model.checksum() if checksum else {})

    return step


def set_threads(compute: int) -> None:
    """Set the threads in which operations compute, with others for those that wait; call it before anything else."""
    tf.config.threading.set_intra_op_parallelism_threads(compute)
    tf.config.threading.set_inter_op_parallelism_threads(_THREADS)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise TensorFlow's errors as RuntimeErrors, as every other framework does."""
    try:
        yield
    except tf.errors.OpError as error:
        raise RuntimeError(f"{type(error).__name__}: {first_line(error)}") from error
