"""Models with real compute: torchvision's, also beside a torch that was built without CUDA."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import nn

_MISSING_OPERATOR = "torchvision::nms"


def load_torchvision() -> ModuleType:
    """Import torchvision's models.

    The package index carries torchvision built for CUDA, whose import looks for two operators that its own library
    would define; beside a CPU torch that library does not load, so they are declared here. No model calls them.
    Where the library loads, declaring them would clash: so only after the plain import failed.
    """
    try:
        from torchvision import models
    except RuntimeError as error:
        if _MISSING_OPERATOR not in str(error):
            raise
        declared = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        from torchvision import models
    return models


def build(name: str) -> nn.Module:
    """The torchvision model of this name with random weights."""
    model: nn.Module = getattr(load_torchvision(), name)(weights=None)
    return model


def synthetic_batch(batch: int, image: int, *, seed: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (batch, 3, image, image) of float32 noise and labels (batch,) of 1000 classes."""
    draw = torch.Generator().manual_seed(seed)
    images = torch.randn(batch, 3, image, image, generator=draw)
    labels = torch.randint(1000, (batch,), generator=draw)
    return images.to(device), labels.to(device)
