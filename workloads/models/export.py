"""Writes the models' data files: `python -m workloads.models.export`, where torch and torchvision are installed.

For each module that has parameters of its own, in the order in which PyTorch registers them: its name, the sizes of its
parameter tensors, and the FLOPs of its forward pass for one sample (two for a multiply-add). Only convolutions, linear
layers and the two products of attention count; normalization, activation and pooling count as nothing. Of a model of
images with branches also which layers each takes results of, as torch.fx traces it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import fx, nn

from workloads.rank.compute.vision_torch import build_torchvision

Layer = tuple[str, list[int], int]

IMAGE = 224
SEQUENCE = 512
VOCABULARY, POSITIONS, SEGMENTS = 30522, 512, 2

VISION = ("resnet50", "resnet101", "vgg16", "densenet161", "densenet201", "inception_v3", "mobilenet_v2")
BERT = {"bert-base": (12, 768), "bert-large": (24, 1024)}  # layers, hidden size; the feed-forward layer is 4 x as wide
# Layers, hidden size, sequence length, vocabulary. Li (table 3) tells none: 96 MiB of embedding gradients at two
# bytes over two tensor ranks are those of the 50257 words of GPT-2, filled up to a multiple of 128.
GPT = {
    "gpt2": (12, 768, 1024, 50257),
    "gpt2-medium": (24, 1024, 1024, 50257),
    "gpt2-large": (36, 1280, 1024, 50257),
    "gpt2-xl": (48, 1600, 1024, 50257),
    "gpt-1.5b": (48, 1600, 1024, 50304),
    "gpt-3b": (54, 2000, 1024, 50304),
}

FITTED = "Fitted to the iteration of four workers without cross traffic on 25 Gbit/s links in Salamy, Table 3.1"
BY = "by gloo on links shaped to a hundredth of that on one machine; `orch calibrate` fits it to yours."
UNFITTED = "no published iteration time to fit a compute time to."
# Reference batch a worker, forward plus backward of it in seconds, and where that comes from.
CALIBRATED: dict[str, tuple[int, float, str]] = {
    "resnet50": (64, 0.148, f"{FITTED}, 0.16 s, {BY}"),
    "vgg16": (64, 0.236, f"{FITTED}, 0.37 s, {BY}"),
    "bert-large": (8, 0.408, f"{FITTED}, 0.84 s, {BY}"),
    "densenet161": (64, 0.371, f"{FITTED}, 0.38 s, {BY}"),
    "resnet101": (64, 0.2824, f"That of resnet50 by FLOPs: {UNFITTED}"),
    "bert-base": (8, 0.1344, f"That of bert-large by FLOPs: {UNFITTED}"),
}
UNCALIBRATED = UNFITTED.capitalize()


def vision_layers(name: str) -> list[Layer]:
    """Return the layers of a torchvision model; FLOPs of inference for one image."""
    model = build_torchvision(name).eval()
    flops: dict[nn.Module, int] = {}

    def count(module: nn.Module, _inputs: object, output: torch.Tensor) -> None:
        if isinstance(module, nn.Conv2d):
            taps = module.in_channels // module.groups * module.kernel_size[0] * module.kernel_size[1]
            flops[module] = 2 * taps * output[0].numel()
        elif isinstance(module, nn.Linear):
            flops[module] = 2 * module.in_features * module.out_features

    hooks = [module.register_forward_hook(count) for module in model.modules()]
    with torch.no_grad():
        model(torch.zeros(1, 3, _edge(name), _edge(name)))
    for hook in hooks:
        hook.remove()
    layers = []
    for path, module in model.named_modules():
        sizes = [parameter.numel() for parameter in module.parameters(recurse=False)]
        if sizes:
            layers.append((path, sizes, flops.get(module, 0)))
    return layers


def graph(name: str) -> list[list[int]] | None:
    """Return the places of the layers of a torchvision model whose results each layer takes; None without branches.

    Layers that a result has already gone through are left out: what they need has ended before.
    """
    model = build_torchvision(name)
    places = {path: place for place, (path, _, _) in enumerate(vision_layers(name))}
    from_layers: dict[fx.Node, set[int]] = {}
    after: list[list[int]] = []
    behind: list[set[int]] = []  # all layers that come before each one on a way through the graph
    for node in fx.symbolic_trace(model.train()).graph.nodes:
        taken: set[int] = set().union(*(from_layers[one] for one in node.all_input_nodes))
        if node.op == "call_module" and node.target in places:
            if places[node.target] != len(after):
                raise AssertionError(f"{name} computes {node.target} in another order than it registers it")
            implied: set[int] = set().union(*(behind[one] for one in taken))
            after.append(sorted(taken - implied))
            behind.append(taken | implied)
            taken = {places[node.target]}
        from_layers[node] = taken
    return None if all(len(every) == place for place, every in enumerate(behind)) else after


def bert_layers(depth: int, hidden: int) -> Iterator[Layer]:
    """Yield the layers of a BERT with its masked-language head, from its architecture; FLOPs for 512 tokens.

    The head's projection onto the vocabulary is tied to the word embeddings, and only its bias is a parameter. So it is
    what Salamy (Tables 3.1 and 3.4) and Li (Table 2, BERT-base) trained, by the volumes that they print.
    """

    def dense(name: str, inputs: int, outputs: int, *, extra: int = 0) -> Layer:
        return name, [inputs * outputs, outputs], 2 * SEQUENCE * inputs * outputs + extra

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
    yield dense("cls.predictions.transform.dense", hidden, hidden)
    yield norm("cls.predictions.transform.LayerNorm")
    yield "cls.predictions.decoder", [VOCABULARY], 2 * SEQUENCE * hidden * VOCABULARY


def gpt_layers(depth: int, hidden: int, sequence: int, vocabulary: int) -> Iterator[Layer]:
    """Yield the layers of a GPT-2 from its architecture.

    FLOPs are for one sequence; the tied output projection counts last.
    """

    def dense(name: str, inputs: int, outputs: int, *, extra: int = 0) -> Layer:
        return name, [inputs * outputs, outputs], 2 * sequence * inputs * outputs + extra

    yield "wte", [vocabulary * hidden], 0
    yield "wpe", [sequence * hidden], 0
    attention = 2 * 2 * sequence * sequence * hidden  # queries with keys, then weights with values
    for index in range(depth):
        at = f"h.{index}"
        yield f"{at}.ln_1", [hidden, hidden], 0
        yield dense(f"{at}.attn.c_attn", hidden, 3 * hidden)
        yield dense(f"{at}.attn.c_proj", hidden, hidden, extra=attention)
        yield f"{at}.ln_2", [hidden, hidden], 0
        yield dense(f"{at}.mlp.c_fc", hidden, 4 * hidden)
        yield dense(f"{at}.mlp.c_proj", 4 * hidden, hidden)
    yield "ln_f", [hidden, hidden], 2 * sequence * hidden * vocabulary


def _edge(name: str) -> int:
    return 299 if name == "inception_v3" else IMAGE


def _tokens(name: str) -> int:
    return GPT[name][2] if name in GPT else SEQUENCE


def describe(name: str, layers: list[Layer], after: list[list[int]] | None = None) -> str:
    """Return the data file of a model as JSON text, a layer a line, and those that each comes after in one line."""
    batch, compute_s, source = CALIBRATED.get(name, (64 if name in VISION else 8, None, UNCALIBRATED))
    head = {
        "name": name,
        "torchvision": name in VISION,
        "sample": f"3 x {_edge(name)} x {_edge(name)}" if name in VISION else f"{_tokens(name)} tokens",
        "parameters": sum(sum(sizes) for _, sizes, _ in layers),
        "batch": batch,
        "compute_s": compute_s,
        "source": source,
        **({"transformer": GPT[name]} if name in GPT else {}),
    }
    lines = ",\n".join("  " + json.dumps(layer, separators=(",", ":")) for layer in layers)
    edges = "" if after is None else f',\n "after": {json.dumps(after, separators=(",", ":"))}'
    return json.dumps(head, indent=1)[:-2] + f',\n "layers": [\n{lines}\n ]{edges}\n}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the models' data files.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent)
    folder: Path = parser.parse_args().folder
    for name in VISION:
        (folder / f"{name}.json").write_text(describe(name, vision_layers(name), graph(name)))
    for name, (depth, hidden) in BERT.items():
        (folder / f"{name}.json").write_text(describe(name, list(bert_layers(depth, hidden))))
    for name, shape in GPT.items():
        (folder / f"{name}.json").write_text(describe(name, list(gpt_layers(*shape))))


if __name__ == "__main__":
    main()
