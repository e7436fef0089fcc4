"""Images in the format of CIFAR-10's binary version, from files or made here.

A record is a byte with the label from 0 to 9, then 3072 bytes: 32 x 32 pixels of red, of green, of blue, row by row
(Krizhevsky, "Learning multiple layers of features from tiny images", 2009). A set is a folder of records, or GRATINGS.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Tuple

import numpy as np

GRATINGS = "gratings"
CLASSES = 10
EDGE = 32  # in pixels
FOLDER = "cifar-10-batches-bin"
TRAINING_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
HELD_OUT_FILE = "test_batch.bin"

_RECORD = 1 + 3 * EDGE * EDGE
_CHUNK = 1000  # images that are drawn at once: 12 MB of noise
_DEFAULT_COUNTS = (4000, 1000)  # of gratings


class Pictures(NamedTuple):
    """`pixels` of uint8, (count, 3, 32, 32), and `labels` of uint8, (count,)."""

    pixels: np.ndarray
    labels: np.ndarray

    def first(self, count: int | None) -> Pictures:
        """So many of them, all where None is given."""
        return Pictures(self.pixels[:count], self.labels[:count])


def load(data: str, *, training: int | None, held_out: int | None, seed: int) -> Tuple[Pictures, Pictures]:
    """What is trained on and what is held out, of a folder with FOLDER in it or of gratings drawn from `seed`.

    `training` and `held_out` are how many images of each are used; RuntimeError where a set has fewer.
    """
    if data == GRATINGS:
        counts = [given or usual for given, usual in zip((training, held_out), _DEFAULT_COUNTS)]
        return gratings(counts[0], seed=[seed, 0]), gratings(counts[1], seed=[seed, 1])
    whole = read(Path(data) / FOLDER)
    for name, count, found in (("samples", training, whole[0]), ("held_out", held_out, whole[1])):
        if count is not None and count > len(found.labels):
            raise RuntimeError(f"{data} has {len(found.labels)} images for {name}, and {count} are requested")
    return whole[0].first(training), whole[1].first(held_out)


def read(folder: Path) -> Tuple[Pictures, Pictures]:
    """The training set and the held-out one of a folder; RuntimeError where a file is missing or damaged."""
    parts = [_file(folder / name) for name in TRAINING_FILES]
    pixels, labels = (np.concatenate(arrays) for arrays in zip(*parts))
    return Pictures(pixels, labels), _file(folder / HELD_OUT_FILE)


def _file(path: Path) -> Pictures:
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
    return Pictures(records[:, 1:].reshape(-1, 3, EDGE, EDGE), labels)


def write(folder: Path, training: Pictures, held_out: Pictures) -> None:
    """Write both as files of CIFAR-10's binary version, for programs that read them."""
    folder.mkdir(parents=True, exist_ok=True)
    count = len(training.labels)
    places = [count * part // len(TRAINING_FILES) for part in range(len(TRAINING_FILES) + 1)]
    for part, name in enumerate(TRAINING_FILES):
        chosen = slice(places[part], places[part + 1])
        _write(folder / name, Pictures(training.pixels[chosen], training.labels[chosen]))
    _write(folder / HELD_OUT_FILE, held_out)


def _write(path: Path, pictures: Pictures) -> None:
    count = len(pictures.labels)
    records = np.concatenate([pictures.labels[:, None], pictures.pixels.reshape(count, _RECORD - 1)], axis=1)
    path.write_bytes(records.astype(np.uint8).tobytes())


def gratings(count: int, *, seed: int | list[int]) -> Pictures:
    """So many images of sine gratings whose class is their direction, in steps of 18 degrees.

    Phase, wavelength, contrast, colours and noise are drawn anew for each image, so that no pixel by itself tells
    anything: the mean of a class is grey. A direction strays by 4 degrees (standard deviation) around its class, so
    that neighbouring classes overlap by 2.4 % of their images.
    """
    draw = np.random.default_rng(seed)
    parts = [_drawn(min(_CHUNK, count - begin), draw) for begin in range(0, count, _CHUNK)]
    pixels, labels = (np.concatenate(arrays) for arrays in zip(*parts))
    return Pictures(pixels, labels)


def _drawn(count: int, draw: np.random.Generator) -> Pictures:
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
    return Pictures((light.clip(0.0, 1.0) * 255).round().astype(np.uint8), labels)
