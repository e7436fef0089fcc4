"""Epochs of a training: a rank's batches, and what the model is worth on held-out images after each of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Tuple

import numpy as np

from ..base.iteration_log import IterationLog
from .pictures import Pictures

LOG = "accuracy.jsonl"

_MEAN, _DEVIATION = 0.5, 0.25  # of all pixels, about
_AT_ONCE = 250  # held-out images

# From images and labels to how many are classified right, and the sum of their losses.
Score = Callable[[np.ndarray, np.ndarray], Tuple[int, float]]


class Feed:
    """Batches of a rank's share of images, in an order that is drawn anew for each epoch, the same in all frameworks.

    What is left of an epoch after its last whole batch is not used. RuntimeError where there is not one batch.
    """

    def __init__(self, pictures: Pictures, *, batch: int, rank: int, world: int, seed: int) -> None:
        self._pictures = pictures
        self._batch, self._rank, self._world, self._seed = batch, rank, world, seed
        self.steps = len(pictures.labels) // world // batch
        if not self.steps:
            raise RuntimeError(f"{len(pictures.labels)} images are too few for batches of {batch} on {world} ranks")
        self._step = 0

    def next(self) -> Tuple[np.ndarray, np.ndarray]:
        """The next images, float32 (batch, 3, 32, 32) around 0, and their labels, int64 (batch,)."""
        epoch, place = divmod(self._step, self.steps)
        if not place:
            order = np.random.default_rng([self._seed, epoch]).permutation(len(self._pictures.labels))
            self._mine = order[self._rank :: self._world]
        self._step += 1
        chosen = self._mine[place * self._batch : (place + 1) * self._batch]
        return seen(Pictures(self._pictures.pixels[chosen], self._pictures.labels[chosen]))


def seen(pictures: Pictures) -> Tuple[np.ndarray, np.ndarray]:
    """Images and labels as a model takes them."""
    pixels = (pictures.pixels.astype(np.float32) / 255 - _MEAN) / _DEVIATION
    return pixels, pictures.labels.astype(np.int64)


class Evaluation:
    """After each epoch, a rank's share of the held-out images: so all ranks together look at each of them once.

    Between iterations, outside their times; a line of LOG an epoch.
    """

    def __init__(self, held_out: Pictures, score: Score, *, steps: int, rank: int, world: int) -> None:
        self._mine = Pictures(held_out.pixels[rank::world], held_out.labels[rank::world])
        self._score, self._steps = score, steps
        self._log = IterationLog(Path(LOG))

    def __call__(self, iteration: int) -> None:
        """An iteration has ended."""
        epoch, left = divmod(iteration + 1, self._steps)
        if left:
            return
        end_ns, begin_ns = time.time_ns(), time.monotonic_ns()
        correct, loss = 0, 0.0
        count = len(self._mine.labels)
        for begin in range(0, count, _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            right, lost = self._score(*seen(Pictures(self._mine.pixels[part], self._mine.labels[part])))
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
