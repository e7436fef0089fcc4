"""Li: messages of the printed sizes, and trainings whose terms are measured as predicted but for a per cent."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from workloads.models import catalog

Row = dict[str, Any]

RUNS = 3
MIB = 2.0**20
RANKS = (4, 8, 16)
SPLITS = {"default": 0, "customized": 1}
TABLE_3 = {"tensor": (680, 125), "pipeline": (16, 125), "data": (1, 741), "embedding": (1, 96)}
NAMES = ("compute_s", "tensor_s", "pipeline_s", "data_s", "embedding_s", "bubble_s", "other_s", "hidden_s")


def about(random: np.random.Generator, value: float, spread: float = 0.01) -> float:
    return value * float(random.normal(1, spread))


def of_models(random: np.random.Generator) -> Iterator[Row]:
    """Buckets that carry all of a model: near 25 MiB, and VGG-16's largest gradient alone."""
    del random
    for repetition, (model, ranks) in itertools.product(range(1, RUNS + 1), itertools.product(MODELS, RANKS[:2])):
        whole = 4.0 * catalog.load(model).parameters
        largest = 392 * MIB if model == "vgg16" else 0.0
        near = int((whole - largest) // (26 * MIB))
        sizes = [*([largest] if largest else []), *[26 * MIB] * near, whole - largest - near * 26 * MIB]
        keys = {"workload": "ddp", "model": model, "ranks": ranks, "repetition": repetition, "kind": "data"}
        for number, size in enumerate(sizes, 1):
            yield {**keys, "operation": "all-reduce", "number": number, "bytes": size}


MODELS = ("resnet50", "resnet101", "vgg16", "bert-base", "bert-large")


def of_table_3(random: np.random.Generator, kinds: Mapping[str, tuple[int, int]] = TABLE_3) -> Iterator[Row]:
    del random
    for repetition in range(1, RUNS + 1):
        number = itertools.count(1)
        for kind, (count, size) in kinds.items():
            operations = ("send", "receive") if kind == "pipeline" else ("all-reduce",)
            for place in range(count):
                yield {
                    "repetition": repetition,
                    "kind": kind,
                    "operation": operations[place % len(operations)],
                    "number": next(number),
                    "bytes": size * MIB,
                }


def of_pairs(random: np.random.Generator) -> Iterator[Row]:
    """Two splits of eight ranks in one stage, and what each sends around its rings."""
    for repetition, tensor in itertools.product(range(1, RUNS + 1), (2, 4)):
        keys = {"model": "gpt", "ranks": 8, "pipeline": 1, "tensor": tensor, "repetition": repetition}
        for rank in range(8):
            first = rank // tensor * tensor
            ways = {"tensor": first + (rank - first - 1) % tensor, "data": (rank - tensor) % 8}
            for kind, sent in (("tensor", 1e9), ("data", 1e9 / tensor)):
                yield {**keys, "kind": kind, "from_rank": rank, "to_rank": ways[kind], "bytes": about(random, sent)}


def of_hosts(random: np.random.Generator) -> Iterator[Row]:
    for repetition, mapping in itertools.product(range(1, RUNS + 1), SPLITS):
        keys = {"model": "gpt", "pipeline": 2, "tensor": 2, "data": 2, "mapping": mapping, "microbatches": 8}
        for place, (src, dst) in enumerate((("h1", "h2"), ("h2", "h1"))):
            theory = 1e9 * (1 + place + SPLITS[mapping])
            sent = about(random, 1.005 * theory, 0.001)
            ways = {"src": src, "dst": dst, "payload_bytes": sent, "theory_bytes": theory}
            yield {**keys, "repetition": repetition, **ways}


def of_experts(random: np.random.Generator) -> Iterator[Row]:
    """Traffic that grows a tenth and evens out; a busy pair has half as much again in the beginning."""
    for repetition, iteration in itertools.product(range(1, RUNS + 1), range(1, 101)):
        for src, dst in itertools.permutations(range(4), 2):
            sent = 1 + 0.001 * iteration + (0.5 * (1 - iteration / 100) if (src, dst) == (0, 1) else 0.0)
            ways = {"iteration": iteration, "from_rank": src, "to_rank": dst, "bytes": about(random, 1e6 * sent, 0.02)}
            yield {"model": "gpt2", "repetition": repetition, **ways}


def terms(random: np.random.Generator, seconds: Mapping[str, float]) -> Row:
    """Terms as predicted, and as measured a per cent beside that."""
    likely = {name: seconds.get(name, 0.0) for name in NAMES}
    found = {name: about(random, value) for name, value in likely.items()}
    row: Row = {}
    for before, of in (("", found), ("predicted_", likely)):
        exposed = of["tensor_s"] + of["pipeline_s"] + of["data_s"] + of["embedding_s"]
        whole = exposed + of["compute_s"] + of["bubble_s"] + of["other_s"]
        row |= {f"{before}{name}": value for name, value in of.items()}
        row |= {f"{before}exposed_s": exposed, f"{before}iteration_s": whole}
    return {**row, "seconds": row["iteration_s"], "costs": "measured"}


def of_split(random: np.random.Generator) -> Iterator[Row]:
    """Both mappings of both GPTs, and a pipeline of two stages that sends little.

    Tensor traffic is about half of communication, and equation 7 has the bubble.
    """
    for repetition in range(1, RUNS + 1):
        for (mapping, custom), (model, ranks, data) in itertools.product(
            SPLITS.items(), (("gpt-1.5b", 16, 0.2), ("gpt-3b", 32, 0.26))
        ):
            seconds = {"tensor_s": 0.6, "pipeline_s": 0.15 if custom else 0.4, "data_s": data * (1 + custom)}
            seconds |= {"compute_s": 1.0 - seconds["tensor_s"] - seconds["pipeline_s"], "bubble_s": 3 / 8}
            yield split(random, model, mapping, ranks, seconds, repetition=repetition)
        little = {"compute_s": 1.0, "tensor_s": 0.001, "pipeline_s": 0.01, "data_s": 0.02, "bubble_s": 0.02}
        yield {
            **split(random, "small", "default", 8, little, repetition=repetition),
            "pipeline": 2,
            "tensor": 1,
            "data": 4,
        }


def split(
    random: np.random.Generator, model: str, mapping: str, ranks: int, seconds: Mapping[str, float], *, repetition: int
) -> Row:
    keys = {"workload": "ptd", "model": model, "ranks": ranks, "mapping": mapping, "compute": "emulated"}
    sizes = {"pipeline": 4, "tensor": 2, "data": ranks // 8, "microbatches": 8, "repetition": repetition}
    return {**keys, **sizes, "training": f"{model}, {mapping}", "data_bytes": 1e8, **terms(random, seconds)}


def of_replicas(random: np.random.Generator) -> Iterator[Row]:
    """Communication grows faster than what is sent, and half of it is hidden."""
    for repetition, model, (place, ranks) in itertools.product(range(1, RUNS + 1), MODELS[:3], enumerate(RANKS)):
        all_reduce = 0.1 * 2**place * (1 + MODELS.index(model))
        seconds = {"compute_s": 0.4, "data_s": all_reduce / 2, "hidden_s": all_reduce / 2}
        keys = {"workload": "ddp", "model": model, "ranks": ranks, "compute": "emulated", "repetition": repetition}
        sizes = dict.fromkeys(("pipeline", "tensor", "data", "mapping", "microbatches"))
        sent = {"data_bytes": 2e8 * (ranks - 1) / ranks, "training": f"{model}, {ranks} ranks"}
        yield {**keys, **sizes, **sent, **terms(random, seconds)}


def of_protocols(random: np.random.Generator) -> Iterator[Row]:
    for repetition, transport in itertools.product(range(1, RUNS + 1), ("auto", "tcp")):
        slow = transport == "tcp"
        communication, whole = about(random, 2.0 if slow else 1.0), about(random, 1.5 if slow else 1.0)
        keys = {"model": "vgg16", "ranks": 32, "transport": transport, "repetition": repetition}
        yield {**keys, "exposed_s": communication / 2, "hidden_s": communication / 2, "seconds": whole}


def of_sizes(random: np.random.Generator) -> Iterator[Row]:
    """RoCE has 1.8 times what TCP has; both have more for larger messages."""
    for repetition, size, transport in itertools.product(range(1, RUNS + 1), (1e5, 1e6, 1e7, 1e8), ("auto", "tcp")):
        rate = 1e9 * (1 + np.log10(size / 1e4)) * (1.8 if transport == "auto" else 1.0)
        keys = {"operation": "all-reduce", "placement": "a group", "transport": transport, "backend": "nccl"}
        found = {"bytes": size, "bus_bps": about(random, float(rate)), "dilation": 1, "repetition": repetition}
        yield {**keys, **found}


def listed(of: Callable[..., Iterator[Row]], *arguments: Any) -> Callable[[np.random.Generator], list[Row]]:
    return lambda random: list(of(random, *arguments))


FIRST: dict[str, Callable[[np.random.Generator], list[Row]]] = {
    "Table 2: parameters": listed(of_models),
    "Fig 1: sizes of messages": listed(of_models),
    "Fig 2: what the split changes": listed(of_pairs),
    "Figs 3 and 12: the matrix that a mapping predicts": listed(of_hosts),
    "Table 3: what rank 0 sends in an iteration of GPT-3B": listed(of_table_3),
    "Section 3.1: tensor traffic, share of the volume": listed(
        of_table_3, {"tensor": (680, 125), "pipeline": (4, 125), "data": (1, 741)}
    ),
    "Fig 4: experts of two iterations": listed(of_experts),
    "Fig 5: nonuniform factor": listed(of_experts),
    "Fig 6: where an iteration of a split model goes": listed(of_split),
    "Fig 7: benchmarks of all-reduce": listed(of_sizes),
    "Fig 8: TCP and RoCE in training": listed(of_protocols),
    "Equation 7: the bubble": listed(of_split),
    "Fig 10: the model against measurement": lambda random: [*of_split(random), *of_replicas(random)],
    "Fig 13: overhead of data parallelism": listed(of_replicas),
}
