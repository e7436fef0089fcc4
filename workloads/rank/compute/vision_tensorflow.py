"""Train the small network of images on TensorFlow, and evaluate it on held-out images."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ..lifecycle import Evaluated, Step, timed
from . import image_sets
from .emulated_tensorflow import plain_errors
from .image_sets import EpochBatches, Evaluation

if TYPE_CHECKING:
    from .training import RealSettings


class SmallNetwork:
    """The small network; its variables are those of `small_cnn`, the axes of kernels and matrices as TensorFlow's."""

    def __init__(self, seed: int) -> None:
        values = image_sets.small_cnn_weights(seed)
        turned = [array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T for array in values]
        self.weights = [tf.Variable(array, trainable=True) for array in turned]

    def scores(self, images: Any) -> Any:
        """Return the scores of each class, (count, 10), for images (count, 3, 32, 32)."""
        left = iter(self.weights)
        signal = tf.transpose(images, (0, 2, 3, 1))  # on CPUs TensorFlow convolves with channels last alone
        for _ in image_sets.KERNELS:
            signal = tf.nn.relu(tf.nn.conv2d(signal, next(left), strides=1, padding="SAME") + next(left))
            signal = tf.nn.max_pool2d(signal, 2, 2, "VALID")
        signal = tf.reshape(tf.transpose(signal, (0, 3, 1, 2)), (-1, image_sets.DENSE[0][1]))
        hidden = tf.nn.relu(tf.matmul(signal, next(left)) + next(left))
        return tf.matmul(hidden, next(left)) + next(left)


class Learning:
    """A rank's images, and the two passes over its next batch as operations of a graph."""

    def __init__(self, config: RealSettings, *, rank: int, world: int) -> None:
        if config["data"] is None:
            raise RuntimeError("real compute on TensorFlow needs data")
        training, self._held_out = image_sets.load_images(
            config["data"], training=config["samples"], held_out=config["held_out"], seed=config["seed"]
        )
        self._feed = EpochBatches(training, batch=config["batch"], rank=rank, world=world, seed=config["seed"])
        self._rank, self._world, self._batch = rank, world, config["batch"]
        self.network = SmallNetwork(config["seed"])

    def passes(self, images: Any, labels: Any) -> tuple[list[Any], Any]:
        """Return the gradients, the loss, the accuracy, and the ends of forward and backward pass (s, float64)."""
        with tf.GradientTape() as tape:
            scores = self.network.scores(images)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
        with tf.control_dependencies([loss]):
            forward = tf.timestamp()
        gradients = tape.gradient(loss, self.network.weights)
        with tf.control_dependencies(gradients):
            backward = tf.timestamp()
        right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores, 1), labels), tf.float64))
        return gradients, tf.stack([tf.cast(loss, tf.float64), right, forward, backward])

    def signature(self) -> tuple[Any, Any]:
        """Return the shapes and types of a batch."""
        images = tf.TensorSpec((self._batch, 3, image_sets.EDGE, image_sets.EDGE), tf.float32)
        return images, tf.TensorSpec((self._batch,), tf.int64)

    def step_of(self, trained: Callable[[Any, Any], Any], *, checksum: bool) -> Step:
        """Return a step, from a function of a batch that returns what `passes` does; evaluation comes between steps."""

        def step(_iteration: int) -> dict[str, float]:
            begin_ns, begin_s = time.monotonic_ns(), time.time()
            images, labels = self._feed.next()
            with plain_errors():
                loss, right, forward_s, backward_s = trained(tf.constant(images), tf.constant(labels)).numpy()
            end_ns = time.monotonic_ns()
            forward_ns = begin_ns + round((forward_s - begin_s) * 1e9)
            wait_s = (end_ns - begin_ns) * 1e-9 - (backward_s - begin_s)
            fields = timed(begin_ns, forward_ns, end_ns, wait_s=wait_s)
            fields |= {"loss": float(loss), "samples": self._batch, "accuracy": round(float(right), 6)}
            return fields | (self._checksum() if checksum else {})

        return Evaluated(
            step, Evaluation(self._held_out, self._score(), steps=self._feed.steps, rank=self._rank, world=self._world)
        )

    def _score(self) -> Callable[[np.ndarray, np.ndarray], tuple[int, float]]:
        scores_of = tf.function(self.network.scores, autograph=False, reduce_retracing=True)

        def score(images: np.ndarray, labels: np.ndarray) -> tuple[int, float]:
            scores = scores_of(tf.constant(images))
            lost = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
            return int(np.sum(np.argmax(scores.numpy(), 1) == labels)), float(tf.reduce_sum(lost))

        return score

    def _checksum(self) -> dict[str, float]:
        return {"checksum": sum(float(np.sum(weight.numpy(), dtype=np.float64)) for weight in self.network.weights)}
