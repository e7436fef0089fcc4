"""Run a rank of a Horovod training on TensorFlow; it needs Horovod's environment (HOROVOD_RANK and what goes with it).

Where `config.json` has a `join_s` mpirun tells it who it is, within so many seconds.
"""

from __future__ import annotations

from typing import Any, Literal, Optional

from ..compute import training
from ..compute.training import LEARNING_RATE, sharpen_timer
from ..lifecycle import Step, TrainingSettings, run_rank
from ..mpi.join import join


class HorovodTensorflowSettings(TrainingSettings, training.ModelSettings):
    """Settings of Horovod's reduction."""

    compression: Literal["none", "fp16"]
    join_s: Optional[float]  # for mpirun to register this rank; None without MPI


def build(config: HorovodTensorflowSettings, *, checksum: bool) -> Step:
    """Meet the other ranks, and return the traced step."""
    if config["join_s"] is not None:
        join(config["join_s"])
    sharpen_timer()  # TensorFlow's threads, in which layers sleep, inherit it
    import horovod.tensorflow as hvd

    from ..compute.emulated_tensorflow import set_threads

    hvd.init()
    set_threads(config["threads"])
    compression = hvd.Compression.fp16 if config["compression"] == "fp16" else hvd.Compression.none
    make = _learning if config["compute"] == "real" else _emulated
    return make(config, compression, checksum=checksum)


def _emulated(config: HorovodTensorflowSettings, compression: Any, *, checksum: bool) -> Step:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    from ..compute.emulated_tensorflow import Clockwork, EmulatedModel, plain_errors, step_of

    clockwork = Clockwork(config, rank=hvd.rank())
    model = EmulatedModel(config["layers"], clockwork)

    def train() -> Any:
        with tf.GradientTape() as tape:
            values = [tf.convert_to_tensor(weight) for weight in model.weights]
            loss = model.loss(tape, values, tf.constant(0.0))
        tape = hvd.DistributedGradientTape(tape, compression=compression)
        for weight, gradient in zip(model.weights, tape.gradient(loss, model.weights)):
            weight.assign_sub(LEARNING_RATE * gradient)
        return loss

    with plain_errors():
        hvd.broadcast_variables(model.weights, root_rank=0)
        trained = tf.function(train, autograph=False).get_concrete_function()

    return step_of(trained, model, clockwork, batch=config["batch"], checksum=checksum)


def _learning(config: HorovodTensorflowSettings, compression: Any, *, checksum: bool) -> Step:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    from ..compute.emulated_tensorflow import plain_errors
    from ..compute.vision_tensorflow import Learning

    learning = Learning(config, rank=hvd.rank(), world=hvd.size())
    weights = learning.network.weights
    optimizer = training.keras_optimizer(config)
    optimizer.build(weights)

    def train(images: Any, labels: Any) -> Any:
        gradients, measures = learning.passes(images, labels)
        means = [
            hvd.allreduce(gradient, name=f"gradient{place}", op=hvd.Average, compression=compression)
            for place, gradient in enumerate(gradients)
        ]
        optimizer.apply_gradients(zip(means, weights))
        return measures

    with plain_errors():
        hvd.broadcast_variables(weights, root_rank=0)
        trained = tf.function(train, autograph=False).get_concrete_function(*learning.signature())
    return learning.step_of(trained, checksum=checksum)


def main() -> None:
    run_rank(build, framework="Horovod")
