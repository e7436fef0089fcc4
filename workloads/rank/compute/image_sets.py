"""Image sets in batches by epochs, and the weights of a small network for them, without a framework.

Images have the format of CIFAR-10's binary version, from files or made here. A record is a byte with the label from 0
to 9, then 3072 bytes: 32 x 32 pixels of red, of green, of blue, row by row (Krizhevsky, "Learning multiple layers of
features from tiny images", 2009). A set is a folder of records, or GRATINGS.

The small network is three times a convolution of 3 x 3 with padding, the positive part, and the largest of 2 x 2; then
two dense layers. Frameworks begin with the same weights, so that what they learn is the same up to rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Tuple

import numpy as np

from ..logs import IterationLog

GRATINGS = "gratings"
CLASSES = 10
EDGE = 32  # in pixels
CIFAR_FOLDER = "cifar-10-batches-bin"
TRAINING_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
HELD_OUT_FILE = "test_batch.bin"
_RECORD = 1 + 3 * EDGE * EDGE
_CHUNK = 1000  # images that are drawn at once: 12 MB of noise
_DEFAULT_COUNTS = (4000, 1000)  # of gratings
ACCURACY_LOG = "accuracy.jsonl"
_MEAN, _DEVIATION = 0.5, 0.25  # of all pixels, about
_AT_ONCE = 250  # held-out images
SMALL_CNN = "small_cnn"
# Output channels, input channels, height, width of a kernel; outputs, inputs of a dense layer, of pixels by channel.
KERNELS = ((8, 3, 3, 3), (16, 8, 3, 3), (32, 16, 3, 3))
DENSE = ((256, 32 * 4 * 4), (10, 256))


class ImageSet(NamedTuple):
    """`pixels` of uint8, (count, 3, 32, 32), and `labels` of uint8, (count,)."""

    pixels: np.ndarray
    labels: np.ndarray

    def first(self, count: int | None) -> ImageSet:
        """Return so many of them, all where None is given."""
        return ImageSet(self.pixels[:count], self.labels[:count])


def load_images(data: str, *, training: int | None, held_out: int | None, seed: int) -> Tuple[ImageSet, ImageSet]:
    """Return training and held-out images, of a folder with CIFAR_FOLDER in it or of gratings by `seed`.

    `training` and `held_out` are how many images of each are used; RuntimeError where a set has fewer.
    """
    if data == GRATINGS:
        counts = [given or usual for given, usual in zip((training, held_out), _DEFAULT_COUNTS)]
        return gratings(counts[0], seed=[seed, 0]), gratings(counts[1], seed=[seed, 1])
    whole = read_cifar(Path(data) / CIFAR_FOLDER)
    for name, count, found in (("samples", training, whole[0]), ("held_out", held_out, whole[1])):
        if count is not None and count > len(found.labels):
            raise RuntimeError(f"{data} has {len(found.labels)} images for {name}, and {count} are requested")
    return whole[0].first(training), whole[1].first(held_out)


def read_cifar(folder: Path) -> Tuple[ImageSet, ImageSet]:
    """Read the training set and the held-out one of a folder; RuntimeError where a file is missing or damaged."""
    parts = [_file(folder / name) for name in TRAINING_FILES]
    pixels, labels = (np.concatenate(arrays) for arrays in zip(*parts))
    return ImageSet(pixels, labels), _file(folder / HELD_OUT_FILE)


def _file(path: Path) -> ImageSet:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RuntimeError(f"{path}: {error.strerror}; unpack CIFAR-10's binary version there") from None
    if not raw or len(raw) % _RECORD:
        raise RuntimeError(f"{path}: {len(raw)} bytes are no whole records of {_RECORD}; unpack it again")
    records = np.frombuffer(raw, np.uint8).reshape(-1, _RECORD)
    labels = records[:, 0]
    if labels.max() >= CLASSES:
        raise RuntimeError(f"{path}: a label of {labels.max()}, where CIFAR-10 has 0 to 9; unpack it again")
    return ImageSet(records[:, 1:].reshape(-1, 3, EDGE, EDGE), labels)


def write_cifar(folder: Path, training: ImageSet, held_out: ImageSet) -> None:
    """Write both as files of CIFAR-10's binary version, for programs that read them."""
    folder.mkdir(parents=True, exist_ok=True)
    count = len(training.labels)
    places = [count * part // len(TRAINING_FILES) for part in range(len(TRAINING_FILES) + 1)]
    for part, name in enumerate(TRAINING_FILES):
        chosen = slice(places[part], places[part + 1])
        _write(folder / name, ImageSet(training.pixels[chosen], training.labels[chosen]))
    _write(folder / HELD_OUT_FILE, held_out)


def _write(path: Path, pictures: ImageSet) -> None:
    count = len(pictures.labels)
    records = np.concatenate([pictures.labels[:, None], pictures.pixels.reshape(count, _RECORD - 1)], axis=1)
    path.write_bytes(records.astype(np.uint8).tobytes())


def gratings(count: int, *, seed: int | list[int]) -> ImageSet:
    """Draw so many images of sine gratings whose class is their direction, in steps of 18 degrees.

    Phase, wavelength, contrast, colours and noise are drawn anew for each image, so that no pixel by itself tells
    anything: the mean of a class is grey. A direction strays by 4 degrees (standard deviation) around its class, so
    that neighbouring classes overlap by 2.4 % of their images.
    """
    draw = np.random.default_rng(seed)
    parts = [_drawn(min(_CHUNK, count - begin), draw) for begin in range(0, count, _CHUNK)]
    pixels, labels = (np.concatenate(arrays) for arrays in zip(*parts))
    return ImageSet(pixels, labels)


def _drawn(count: int, draw: np.random.Generator) -> ImageSet:
    labels = draw.integers(0, CLASSES, count).astype(np.uint8)
    angle = np.deg2rad(labels * 18.0 + draw.normal(0.0, 4.0, count))
    cycles = draw.uniform(3.0, 6.0, count)
    phase = draw.uniform(0.0, 2 * np.pi, count)
    along = np.arange(EDGE) / EDGE
    x, y = np.cos(angle)[:, None, None] * along, np.sin(angle)[:, None, None] * along[:, None]
    wave = np.sin(2 * np.pi * cycles[:, None, None] * (x + y) + phase[:, None, None])
    strength = draw.uniform(-0.3, 0.3, (count, 3, 1, 1))
    ground = draw.uniform(0.35, 0.65, (count, 3, 1, 1))
    noise = draw.normal(0.0, 0.15, (count, 3, EDGE, EDGE))
    light = ground + strength * wave[:, None] + noise
    return ImageSet((light.clip(0.0, 1.0) * 255).round().astype(np.uint8), labels)


# From images and labels to how many are classified right, and the sum of their losses.
Score = Callable[[np.ndarray, np.ndarray], Tuple[int, float]]


class EpochBatches:
    """Batches of a rank's share of images, shuffled anew for each epoch, in the same order in all frameworks.

    What is left of an epoch after its last whole batch is not used. RuntimeError where there is not one batch.
    """

    def __init__(self, pictures: ImageSet, *, batch: int, rank: int, world: int, seed: int) -> None:
        self._pictures = pictures
        self._batch, self._rank, self._world, self._seed = batch, rank, world, seed
        self.steps = len(pictures.labels) // world // batch
        if not self.steps:
            raise RuntimeError(f"{len(pictures.labels)} images are too few for batches of {batch} on {world} ranks")
        self._step = 0

    def next(self) -> Tuple[np.ndarray, np.ndarray]:
        """Return the next images, float32 (batch, 3, 32, 32) around 0, and their labels, int64 (batch,)."""
        epoch, place = divmod(self._step, self.steps)
        if not place:
            order = np.random.default_rng([self._seed, epoch]).permutation(len(self._pictures.labels))
            self._mine = order[self._rank :: self._world]
        self._step += 1
        chosen = self._mine[place * self._batch : (place + 1) * self._batch]
        return normalized(ImageSet(self._pictures.pixels[chosen], self._pictures.labels[chosen]))


def normalized(pictures: ImageSet) -> Tuple[np.ndarray, np.ndarray]:
    """Return images and labels as a model takes them."""
    pixels = (pictures.pixels.astype(np.float32) / 255 - _MEAN) / _DEVIATION
    return pixels, pictures.labels.astype(np.int64)


class Evaluation:
    """Evaluation after each epoch on a rank's share of the held-out images: all ranks together use each image once.

    Between iterations, outside their times; a line of LOG an epoch.
    """

    def __init__(self, held_out: ImageSet, score: Score, *, steps: int, rank: int, world: int) -> None:
        self._mine = ImageSet(held_out.pixels[rank::world], held_out.labels[rank::world])
        self._score, self._steps = score, steps
        self._log = IterationLog(Path(ACCURACY_LOG))

    def __call__(self, iteration: int) -> None:
        """Count an iteration that has ended, and evaluate at the end of an epoch."""
        epoch, left = divmod(iteration + 1, self._steps)
        if left:
            return
        end_ns, begin_ns = time.time_ns(), time.monotonic_ns()
        correct, loss = 0, 0.0
        count = len(self._mine.labels)
        for begin in range(0, count, _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            right, lost = self._score(*normalized(ImageSet(self._mine.pixels[part], self._mine.labels[part])))
            correct, loss = correct + right, loss + lost
        self._log.write(
            {
                "epoch": epoch,
                "iteration": iteration,
                "end_ns": end_ns,
                "evaluation_s": (time.monotonic_ns() - begin_ns) / 1e9,
                "samples": count,
                "correct": correct,
                "loss": loss / max(count, 1),
            }
        )


def small_cnn_weights(seed: int) -> list[np.ndarray]:
    """Return kernel or matrix, then bias, of each layer, as float32: He's normal initialization, zeros for biases."""
    draw = np.random.default_rng(seed)
    found = []
    for shape in (*KERNELS, *DENSE):
        fan_in = int(np.prod(shape[1:]))
        found.append((draw.standard_normal(shape) * np.sqrt(2.0 / fan_in)).astype(np.float32))
        found.append(np.zeros(shape[0], np.float32))
    return found
