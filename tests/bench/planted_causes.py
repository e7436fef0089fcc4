"""Draw experiments in which one known cause makes training slow, for `python -m tests.bench causes`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

HOSTS = ("h1", "h2", "h3", "h4")
_PLANTED = Path(__file__).with_name("planted")


@dataclass(frozen=True, slots=True)
class Planted:
    """Causes, each with the places that count as its own (none: nothing to place), and the experiment that has them."""

    truths: tuple[tuple[str, tuple[str, ...]], ...]
    how: str
    experiment: dict[str, Any]

    @property
    def cause(self) -> str:
        """Return the cause, or both as "a+b"."""
        return "+".join(cause for cause, _ in self.truths)

    @property
    def places(self) -> tuple[str, ...]:
        """Return all places."""
        return tuple(place for _, places in self.truths for place in places)


def draw(cause: str, seed: int) -> Planted:
    """Draw model and compute time from a seed, host and size of a cause from both: "nothing" is all others' control.

    "a+b" are two causes at once, on different hosts.
    """
    setting = random.Random(f"setting {seed}")  # noqa: S311 - repeatable, and no secret
    chance = random.Random(f"{cause} {seed}")  # noqa: S311 - likewise
    causes = cause.split("+")
    hosts = [HOSTS[chance.randrange(len(HOSTS))]] if len(causes) == 1 else chance.sample(HOSTS, len(causes))
    fabric = causes[0] in FABRIC
    ring = ["h1", "h3", "h2", "h4"] if fabric else list(HOSTS)  # of a fabric every hop crosses the spines
    experiment: dict[str, Any] = {
        "name": cause.replace("+", "-and-"),
        "testbed": {"local": {"hosts": 5, "link": "25gbit", "scale": 100}},
        "conditions": [{"congestion-control": "cubic"}],
        "workload": {
            "ddp": {
                "model": setting.choice(["resnet50", "mobilenet_v2", "resnet101"]),
                "batch": 64,
                "compute_time": f"{setting.randint(40, 80)}ms",
                "hosts": ring,
            }
        },
        "collect": ["tcpdump", "nic", "qdisc", "tcp", "cpu", *(["paths"] if fabric else [])],
        "measure": {"warmup": 5, "iterations": 30, "at_most": "60s"},
    }
    if fabric:
        experiment["testbed"]["local"] |= {"fabric": {"leaves": 2, "spines": 2, "hosts": 2, "oversubscription": 1}}
        del experiment["testbed"]["local"]["hosts"]
    planted = {}
    for one, host in sorted(zip(causes, hosts, strict=True), key=lambda pair: pair[0] == "job"):  # takes the workload
        planted[one] = _PLANTS[one](experiment, host, chance)
    how = "; ".join(planted[one][1] for one in causes)
    return Planted(tuple((one, planted[one][0]) for one in causes), how, experiment)


def pairs(seed: int, count: int) -> list[str]:
    """Draw pairs of different causes from a seed; a busy processor is none of them, since all hosts share it."""
    every = [f"{one}+{other}" for one, other in combinations(PAIRED, 2)]
    return random.Random(f"pairs {seed}").sample(every, count)  # noqa: S311 - repeatable, and no secret


def _condition(experiment: dict[str, Any], kind: str, /, **keys: Any) -> str:
    experiment["conditions"].append({kind: keys})
    return ", ".join(f"{key} {value}" for key, value in keys.items())


def _link(experiment: dict[str, Any], host: str, chance: random.Random) -> tuple[tuple[str, ...], str]:
    where = chance.choice(["nic", "switch-port"])
    how = _condition(experiment, "rate", where=where, host=host, rate=f"{chance.randint(20, 80) / 10}gbit")
    return (host,), how


def _delay(experiment: dict[str, Any], host: str, chance: random.Random) -> tuple[tuple[str, ...], str]:
    return (host,), _condition(experiment, "delay", host=host, time=f"{chance.randint(20, 80) / 10}ms")


def _loss(experiment: dict[str, Any], host: str, chance: random.Random) -> tuple[tuple[str, ...], str]:
    where = chance.choice(["nic", "switch-port"])
    return (host,), _condition(experiment, "loss", where=where, host=host, share=f"{chance.randint(10, 40) / 10}%")


def _queue(experiment: dict[str, Any], host: str, chance: random.Random) -> tuple[tuple[str, ...], str]:
    queue = f"{chance.randint(4, 8) / 10}ms"
    return (host,), _condition(experiment, "rate", where="nic", host=host, rate="25gbit", queue=queue)


def _traffic(experiment: dict[str, Any], host: str, chance: random.Random) -> tuple[tuple[str, ...], str]:
    load = f"{chance.randint(12, 22)}gbit"
    experiment["traffic"] = [{"iperf": {"from": host, "to": "h5", "load": load, "streams": 4}}]
    return (host,), f"from {host} to h5, {load}"


def _job(experiment: dict[str, Any], host: str, chance: random.Random) -> tuple[tuple[str, ...], str]:
    other = {"ddp": {"model": chance.choice(["resnet50", "vgg16"]), "batch": 64, "compute_time": "20ms"}}
    other["ddp"]["hosts"] = [host, "h5"]
    experiment["jobs"] = [
        {"name": "training", "workload": experiment.pop("workload")},
        {"name": "neighbour", "workload": other},
    ]
    return (host,), f"neighbour on {host} and h5"


def _on_rank(what: str, size: Callable[[random.Random], dict[str, Any]]) -> Callable[..., tuple[tuple[str, ...], str]]:
    def plant(experiment: dict[str, Any], host: str, chance: random.Random) -> tuple[tuple[str, ...], str]:
        how = size(chance)
        ddp = experiment["workload"]["ddp"]
        before = json.loads(ddp["env"]["PLANTED"]) if "env" in ddp else []
        planted = [*before, {"what": what, "rank": ddp["hosts"].index(host), "how": how}]
        ddp["env"] = {"PYTHONPATH": str(_PLANTED), "PLANTED": json.dumps(planted)}
        return (host,), json.dumps(how)

    return plant


def _uplink(experiment: dict[str, Any], _host: str, chance: random.Random) -> tuple[tuple[str, ...], str]:
    name = f"leaf{chance.randint(1, 2)}-spine{chance.randint(1, 2)}"
    return (name,), _condition(experiment, "rate", link=name, rate=f"{chance.randint(20, 60) / 10}gbit")


def _failed(experiment: dict[str, Any], _host: str, chance: random.Random) -> tuple[tuple[str, ...], str]:
    spine = chance.randint(1, 2)
    name = f"leaf{chance.randint(1, 2)}-spine{spine}"
    how = _condition(experiment, "link", name=name, down="2s", up=f"{chance.randint(35, 50) / 10}s")
    return (f"leaf1-spine{spine}", f"leaf2-spine{spine}"), how  # flows tell the way, of two leaves both its links


_PLANTS: dict[str, Callable[[dict[str, Any], str, random.Random], tuple[tuple[str, ...], str]]] = {
    "link-rate": _link,
    "delay": _delay,
    "loss": _loss,
    "small-queue": _queue,
    "load": _traffic,
    "job": _job,
    "processor": _on_rank("busy_processor", lambda chance: {"processes": chance.randint(2, 4)}),
    "slow-rank": _on_rank("slow_rank", lambda chance: {"factor": chance.randint(14, 22) / 10}),
    "jittery-rank": _on_rank(
        "jittery_rank", lambda chance: {"spread": chance.randint(4, 9) / 10, "seed": chance.randrange(1000)}
    ),
    "receive-window": _on_rank("small_window", lambda chance: {"size": chance.choice([4096, 6144, 8192])}),
    "stall": _on_rank(
        "checkpoint", lambda chance: {"every": chance.randint(5, 9), "seconds": chance.randint(3, 8) / 10}
    ),
    "slow-disk": _on_rank(
        "slow_disk", lambda chance: {"every": chance.randint(5, 9), "mb": chance.randint(6, 16), "mb_s": 20}
    ),
    "slow-reader": _on_rank("slow_reader", lambda chance: {"mb_s": chance.randint(4, 9)}),
    "uplink-rate": _uplink,
    "link-down": _failed,
    "collision": lambda _experiment, _host, _chance: ((), "where the hash has it"),
    "nothing": lambda _experiment, _host, _chance: ((), ""),
}
NOTHING = "nothing"
COLLISION = "collision"  # is nobody's choice: a leaf's counters say where it was, if anywhere
FABRIC = ("uplink-rate", "link-down", COLLISION)
CAUSES = tuple(_PLANTS)
PAIRED = tuple(cause for cause in CAUSES if cause not in (NOTHING, "processor", *FABRIC))
