"""A small convolutional network for CIFAR-10's images, without a framework: shapes and initial weights.

Three times: a convolution of 3 x 3 with padding, the positive part, and the largest of 2 x 2; then two dense layers.
Frameworks begin with the same weights, so that what they learn is the same up to rounding.
"""

from __future__ import annotations

import numpy as np

NAME = "small_cnn"

# Output channels, input channels, height, width of a kernel; outputs, inputs of a dense layer, of pixels by channel.
KERNELS = ((8, 3, 3, 3), (16, 8, 3, 3), (32, 16, 3, 3))
DENSE = ((256, 32 * 4 * 4), (10, 256))


def weights(seed: int) -> list[np.ndarray]:
    """Kernel or matrix, then bias, of each layer, as float32: He's normal initialization for them, zeros for biases."""
    draw = np.random.default_rng(seed)
    found = []
    for shape in (*KERNELS, *DENSE):
        fan_in = int(np.prod(shape[1:]))
        found.append((draw.standard_normal(shape) * np.sqrt(2.0 / fan_in)).astype(np.float32))
        found.append(np.zeros(shape[0], np.float32))
    return found
