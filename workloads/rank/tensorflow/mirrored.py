"""Run a rank of a TensorFlow training with MultiWorkerMirroredStrategy and its own training loop; needs TF_CONFIG."""

from __future__ import annotations

import os
from typing import Any

from ..compute import training
from ..compute.training import LEARNING_RATE, sharpen_timer
from ..lifecycle import Step, TrainingSettings, run_rank


class MirroredSettings(TrainingSettings, training.ModelSettings):
    """Settings of averaging gradients."""

    communication: str
    pack_bytes: int
    collective_s: float


def build(config: MirroredSettings, *, checksum: bool) -> Step:
    """Meet the other ranks, and return the traced step."""
    sharpen_timer()  # TensorFlow's threads, in which layers sleep, inherit it
    import tensorflow as tf

    from ..compute.emulated_tensorflow import plain_errors, set_threads

    set_threads(config["threads"])
    options = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=config["pack_bytes"],
        implementation=tf.distribute.experimental.CommunicationImplementation[config["communication"].upper()],
        timeout_seconds=config["collective_s"],
    )
    with plain_errors():
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    make = _learning if config["compute"] == "real" else _emulated
    return make(config, strategy, options, checksum=checksum)


def _emulated(config: MirroredSettings, strategy: Any, options: Any, *, checksum: bool) -> Step:
    import tensorflow as tf

    from ..compute.emulated_tensorflow import Clockwork, EmulatedModel, plain_errors, step_of

    with plain_errors():
        clockwork = Clockwork(config, rank=int(os.environ["RANK"]))
        with strategy.scope():
            model = EmulatedModel(config["layers"], clockwork)

    def update(_strategy: Any, gradients: list[Any]) -> None:
        for weight, gradient in zip(model.weights, gradients):
            strategy.extended.update(weight, lambda mine, g: mine.assign_sub(LEARNING_RATE * g), args=(gradient,))

    def replica() -> Any:
        with tf.GradientTape() as tape:
            values = [tf.convert_to_tensor(weight) for weight in model.weights]
            loss = model.loss(tape, values, tf.constant(0.0))
        context = tf.distribute.get_replica_context()
        gradients = tape.gradient(loss, model.weights)
        context.merge_call(update, args=(context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients, options),))
        return loss

    with plain_errors():
        trained = tf.function(lambda: strategy.run(replica), autograph=False).get_concrete_function()

    return step_of(trained, model, clockwork, batch=config["batch"], checksum=checksum)


def _learning(config: MirroredSettings, strategy: Any, options: Any, *, checksum: bool) -> Step:
    import tensorflow as tf

    from ..compute.emulated_tensorflow import plain_errors
    from ..compute.vision_tensorflow import Learning

    with plain_errors(), strategy.scope():
        learning = Learning(config, rank=int(os.environ["RANK"]), world=strategy.num_replicas_in_sync)
        optimizer = training.keras_optimizer(config)
        optimizer.build(learning.network.weights)

    def replica(images: Any, labels: Any) -> Any:
        gradients, measures = learning.passes(images, labels)
        means = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients, options)
        pairs = zip(means, learning.network.weights)
        optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)
        return measures

    def train(images: Any, labels: Any) -> Any:
        return strategy.run(replica, args=(images, labels))

    with plain_errors():
        trained = tf.function(train, autograph=False).get_concrete_function(*learning.signature())
    return learning.step_of(trained, checksum=checksum)


def main() -> None:
    run_rank(build, framework="TensorFlow")
