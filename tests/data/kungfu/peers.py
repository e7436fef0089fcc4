"""Prints whom KungFu's PairAveraging asks, by its own function; README.md beside this file says how."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import tensorflow as tf

_SOURCE = "srcs/python/kungfu/tensorflow/optimizers/async_sgd.py"


def main() -> None:
    """A line for each number of peers: for each rank the peer that each value of its draw leads to."""
    tree = ast.parse(Path(sys.argv[1], _SOURCE).read_text())
    wanted = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "get_random_peer"]
    space: dict[str, Any] = {"tf": tf, "_tf_mod": tf.math.floormod}  # as its module `compat` has it for TensorFlow 2
    exec(compile(ast.Module(wanted, []), _SOURCE, "exec"), space)  # noqa: S102
    for world in range(2, 17):
        peers = [[_drawn(space, value, rank, world) for value in range(world)] for rank in range(world)]
        print(json.dumps({"world": world, "peers": peers}))


def _drawn(space: dict[str, Any], value: int, rank: int, world: int) -> int:
    def uniform(shape: list[int], minval: int, maxval: int, dtype: Any) -> Any:
        if (shape, minval, maxval) != ([], 0, world):
            raise AssertionError("the draw is from all peers")
        return tf.constant(value, dtype)

    tf.random.uniform = uniform
    return int(space["get_random_peer"](world, tf.constant(rank)))


if __name__ == "__main__":
    main()
