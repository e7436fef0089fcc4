"""Draw experiments in which one known cause makes training slow, for `python -m tests.bench causes`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOSTS = ("h1", "h2", "h3", "h4")
_PLANTED = Path(__file__).with_name("planted")


@dataclass(frozen=True, slots=True)
class Planted:
    """A cause, where it is (every host that is named, or none), and the experiment that has it."""

    cause: str
    places: tuple[str, ...]
    how: str
    experiment: dict[str, Any]


def draw(cause: str, seed: int) -> Planted:
    """Draw model and compute time from a seed, host and size of a cause from both: "nothing" is all others' control."""
    setting = random.Random(f"setting {seed}")  # noqa: S311 - repeatable, and no secret
    chance = random.Random(f"{cause} {seed}")  # noqa: S311 - likewise
    rank = chance.randrange(len(HOSTS))
    experiment: dict[str, Any] = {
        "name": cause,
        "testbed": {"local": {"hosts": 5, "link": "25gbit", "scale": 100}},
        "conditions": [{"congestion-control": "cubic"}],
        "workload": {
            "ddp": {
                "model": setting.choice(["resnet50", "mobilenet_v2", "resnet101"]),
                "batch": 64,
                "compute_time": f"{setting.randint(40, 80)}ms",
                "hosts": list(HOSTS),
            }
        },
        "collect": ["tcpdump", "nic", "qdisc", "tcp", "cpu"],
        "measure": {"warmup": 5, "iterations": 30, "at_most": "60s"},
    }
    places, how = _PLANTS[cause](experiment, HOSTS[rank], chance)
    return Planted(cause, places, how, experiment)


def _condition(experiment: dict[str, Any], name: str, **keys: Any) -> str:
    experiment["conditions"].append({name: keys})
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
        planted = json.dumps({"what": what, "rank": HOSTS.index(host), "how": how})
        experiment["workload"]["ddp"]["env"] = {"PYTHONPATH": str(_PLANTED), "PLANTED": planted}
        return (host,), json.dumps(how)

    return plant


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
    "nothing": lambda _experiment, _host, _chance: ((), ""),
}
NOTHING = "nothing"
CAUSES = tuple(_PLANTS)
