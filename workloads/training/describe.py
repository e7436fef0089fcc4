"""Writes the models' data files: `python -m workloads.training.describe`, where torch and torchvision are installed.

For each module that has parameters of its own, in the order in which PyTorch registers them: its name, the sizes of its
parameter tensors, and the FLOPs of its forward pass for one sample (two for a multiply-add). Only convolutions, linear
layers and the two products of attention count; normalization, activation and pooling count as nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from workloads.training.vision import build

Layer = tuple[str, list[int], int]

IMAGE = 224
SEQUENCE = 512
VOCABULARY, POSITIONS, SEGMENTS = 30522, 512, 2

VISION = ("resnet50", "resnet101", "vgg16", "densenet161", "densenet201", "mobilenet_v2")
BERT = {"bert-base": (12, 768), "bert-large": (24, 1024)}  # layers, hidden size; the feed-forward layer is 4 x as wide

FITTED = "Fitted to the iteration of four workers without cross traffic on 25 Gbit/s links in Salamy, Table 3.1"
MEASURED = "with it, gloo on links shaped to a hundredth of that gave"
# Reference batch a worker, forward plus backward of it in seconds, and where that comes from.
CALIBRATED: dict[str, tuple[int, float, str]] = {
    "resnet50": (64, 0.147, f"{FITTED}, 0.16 s; {MEASURED} 0.157 s."),
    "vgg16": (64, 0.165, f"{FITTED}, 0.37 s; {MEASURED} 0.345 s."),
    "bert-large": (8, 0.325, f"{FITTED}, 0.84 s; {MEASURED} 0.811 s."),
    "densenet161": (
        64,
        0.373,
        "Derived: Salamy, Table 3.1, has 0.38 s for four workers without cross traffic on 25 Gbit/s links. All but the"
        " last gradient bucket (25 MiB cap) is reduced while the backward pass still runs, so the iteration is the"
        " compute time plus 3 ms, the ring time of that last bucket at 95 % of the link, plus the 4 ms by which"
        f" resnet50 exceeds the same estimate; {MEASURED} 0.382 s.",
    ),
}
UNCALIBRATED = "No published iteration time to fit a compute time to."


def vision_layers(name: str) -> list[Layer]:
    """The layers of a torchvision model; FLOPs for one image of 3 x 224 x 224."""
    model = build(name).eval()
    flops: dict[nn.Module, int] = {}

    def count(module: nn.Module, _inputs: object, output: torch.Tensor) -> None:
        if isinstance(module, nn.Conv2d):
            taps = module.in_channels // module.groups * module.kernel_size[0] * module.kernel_size[1]
            flops[module] = 2 * taps * output[0].numel()
        elif isinstance(module, nn.Linear):
            flops[module] = 2 * module.in_features * module.out_features

    hooks = [module.register_forward_hook(count) for module in model.modules()]
    with torch.no_grad():
        model(torch.zeros(1, 3, IMAGE, IMAGE))
    for hook in hooks:
        hook.remove()
    layers = []
    for path, module in model.named_modules():
        sizes = [parameter.numel() for parameter in module.parameters(recurse=False)]
        if sizes:
            layers.append((path, sizes, flops.get(module, 0)))
    return layers


def bert_layers(depth: int, hidden: int) -> Iterator[Layer]:
    """The layers of a BERT encoder with pooler, from its architecture; FLOPs for one sequence of 512 tokens."""

    def dense(name: str, inputs: int, outputs: int, *, extra: int = 0, tokens: int = SEQUENCE) -> Layer:
        return name, [inputs * outputs, outputs], 2 * tokens * inputs * outputs + extra

    def norm(name: str) -> Layer:
        return name, [hidden, hidden], 0

    for name, rows in (("word", VOCABULARY), ("position", POSITIONS), ("token_type", SEGMENTS)):
        yield f"embeddings.{name}_embeddings", [rows * hidden], 0
    yield norm("embeddings.LayerNorm")
    attention = 2 * 2 * SEQUENCE * SEQUENCE * hidden  # queries with keys, then weights with values
    for index in range(depth):
        at = f"encoder.layer.{index}"
        for name in ("query", "key", "value"):
            yield dense(f"{at}.attention.self.{name}", hidden, hidden)
        yield dense(f"{at}.attention.output.dense", hidden, hidden, extra=attention)
        yield norm(f"{at}.attention.output.LayerNorm")
        yield dense(f"{at}.intermediate.dense", hidden, 4 * hidden)
        yield dense(f"{at}.output.dense", 4 * hidden, hidden)
        yield norm(f"{at}.output.LayerNorm")
    yield dense("pooler.dense", hidden, hidden, tokens=1)


def describe(name: str, layers: list[Layer]) -> str:
    """The data file of a model as JSON text, a layer a line."""
    batch, compute_s, source = CALIBRATED.get(name, (8 if name in BERT else 64, None, UNCALIBRATED))
    head = {
        "name": name,
        "torchvision": name in VISION,
        "sample": f"3 x {IMAGE} x {IMAGE}" if name in VISION else f"{SEQUENCE} tokens",
        "parameters": sum(sum(sizes) for _, sizes, _ in layers),
        "batch": batch,
        "compute_s": compute_s,
        "source": source,
    }
    lines = ",\n".join("  " + json.dumps(layer, separators=(",", ":")) for layer in layers)
    return json.dumps(head, indent=1)[:-2] + f',\n "layers": [\n{lines}\n ]\n}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the models' data files.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent.parent / "models")
    folder: Path = parser.parse_args().folder
    for name in VISION:
        (folder / f"{name}.json").write_text(describe(name, vision_layers(name)))
    for name, (depth, hidden) in BERT.items():
        (folder / f"{name}.json").write_text(describe(name, list(bert_layers(depth, hidden))))


if __name__ == "__main__":
    main()
