"""A part with sample files, for the contract's checks, and the topologies on which they try it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from orchestrator.core.opendata import YamlMapping
from orchestrator.parts import ranks, registry
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Source
from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.topology import TRAFFIC_PORT, Job, Topology
from orchestrator.testbed import inventory
from orchestrator.testbed.local import netns
from orchestrator.testbed.local.local_spec import FabricSpec
from workloads.common import placement

HOSTS = ("h1", "h2", "h3", "h4")
TOPOLOGIES: Mapping[str, Topology] = {
    "local": netns.topology(netns.LocalSpec(hosts=HOSTS, rates=dict.fromkeys(HOSTS, 1e9), scale=10)),
    "inventory": inventory.topology(
        inventory.Inventory.model_validate(
            {
                "link": "1gbit",
                "hosts": {
                    name: {"ssh": name, "data": {"address": f"10.9.0.{i}/24", "device": "eth7"}, "gpus": i % 2}
                    for i, name in enumerate(HOSTS, start=1)
                },
            }
        )
    ),
    "fabric": netns.topology(
        netns.LocalSpec(
            hosts=HOSTS,
            rates=dict.fromkeys(HOSTS, 1e9),
            scale=10,
            fabric=FabricSpec(leaves=2, spines=2, hosts=2),
            uplink=1e9,
        )
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A part, and the folder with real samples of its launches' output.

    `example.yaml` in that folder has `config`, a minimal configuration for a testbed with the hosts h1 to h4 ("{here}"
    in it is that folder). `topologies`, where it is given, names those of `TOPOLOGIES` that the part needs
    (`[fabric]`). `output`, where it is given, says under which names samples lie in the folder that a
    launch brings home (else under their own).
    """

    kind: registry.Kind
    name: str
    samples: Path

    def __str__(self) -> str:
        return f"{self.kind}-{self.name}"

    @property
    def part(self) -> Any:
        """The part, as an experiment finds it."""
        return registry.parts_of(self.kind)[self.name]

    @property
    def reads(self) -> bool:
        """Whether the part reads output of its launches."""
        return hasattr(self.part, "read")

    @property
    def example(self) -> YamlMapping:
        """The content of example.yaml; AssertionError where there is none."""
        path = self.samples / "example.yaml"
        if not path.is_file():
            raise AssertionError(f"{self.name} has no example: put one into {path} (orchestrator/testing/case.py)")
        found: YamlMapping = yaml.safe_load(path.read_text().replace("{here}", str(self.samples)))
        return found

    @property
    def topologies(self) -> Mapping[str, Topology]:
        """The topologies that the part can do with: those under `on` of the example, or all."""
        chosen: list[str] = self.example.get("topologies") or list(TOPOLOGIES)
        return {name: TOPOLOGIES[name] for name in chosen}

    @property
    def config(self) -> Any:
        """The part's minimal configuration, from the example."""
        return self.part.Config.model_validate(self.example["config"])

    @property
    def files(self) -> list[Path]:
        """The sample files."""
        found = sorted(self.samples.iterdir()) if self.samples.is_dir() else []
        return [path for path in found if path.name != "example.yaml" and path.is_file()]

    @property
    def brought_home(self) -> dict[str, str]:
        """Sample files by their names in the folder that a launch brings home."""
        named: dict[str, str] | None = self.example.get("output")
        return named or {path.name: path.name for path in self.files}

    def made(self, topology: Topology) -> tuple[list[Any], list[Requirement], Any]:
        """Return launches (of a condition: changes), requirements, and theory or demands where the kind has them."""
        part, config = self.part, self.config
        if self.kind == "workload":
            job = Job(name="training", index=0, ranks=placement.ranks(getattr(config, "hosts", None), topology))
            of_job = (config, job, topology)
            return part.launches(*of_job, 7), part.requirements(*of_job), part.theory(*of_job)
        if self.kind == "traffic":
            source = Source(name=f"{self.name}0", window="w1", port=TRAFFIC_PORT, duration_s=100.0, seed=7)
            demands = part.demands(config)
            return part.launches(config, source, topology), part.requirements(config, topology), demands
        if self.kind == "condition":
            return part.changes(config, topology), part.requirements(config, topology), None
        return self._collecting(topology), part.requirements(config, topology), None

    def _collecting(self, topology: Topology) -> list[Launch]:
        """Return what a collector starts for a job with a rank on each host, and the ranks that it wraps."""
        part, config, of_job = self.part, self.config, _ranks(topology)
        found: list[Launch] = []
        if hasattr(part, "launches"):
            found += part.launches(config, topology)
        if hasattr(part, "rank_launches"):
            found += part.rank_launches(config, of_job, topology)
        if hasattr(part, "wrapper"):
            around = [(rank, part.wrapper(config, rank, topology)) for rank in of_job]
            label = f"collector.{self.name}"
            found += [ranks.wrapped(rank, one, part=label, python="python3") for rank, one in around if one is not None]
        return found

    def launches(self, topology: Topology) -> list[Launch]:
        """Return the launches that the part starts."""
        found = self.made(topology)[0]
        if self.kind == "condition":
            return [change.process for change in found if change.process is not None]
        return found


def _ranks(topology: Topology) -> list[Launch]:
    """Return a job with a rank on each host."""
    return [
        Launch(
            name=f"training-rank{number}",
            node=host.name,
            role="rank",
            argv=(host.python, "-I", "-S", "rank.py"),
            gate=True,
            job="training",
            rank=number,
        )
        for number, host in enumerate(topology.hosts)
    ]


def output(folder: Path) -> LaunchOutput:
    """Return the outputs in a folder that a launch brought home."""
    return LaunchOutput(
        folder=folder, node="h1", launch="x", job="training", rank=0, window="w1", source="s0", offset_ns=5_000
    )
