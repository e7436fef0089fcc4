"""What hosts must have to reduce the captures that stay with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.experiment.experiment import Experiment
from orchestrator.parts.collectors import tcpdump
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.topology import Topology

MODULES = ("numpy", "numba")
OLDEST = "python>=3.10"


def stay(experiment: Experiment, topology: Topology) -> bool:
    """Whether captures stay on hosts: those of this machine write them into the run's folder."""
    return experiment.captures is not None and experiment.captures.stay and topology.kind != "local"


def as_they_close(experiment: Experiment, topology: Topology) -> bool:
    """Whether hosts read captures that stay while they are written."""
    return stay(experiment, topology) and experiment.captures is not None and experiment.captures.reduce != "at-end"


def requirements(collectors: Sequence[Launch], topology: Topology) -> Iterator[Requirement]:
    """What each host that captures needs in order to reduce."""
    nodes = dict.fromkeys(launch.node for launch in collectors if launch.part == f"collector.{tcpdump.NAME}")
    for node in nodes:
        python = topology.node(node).python
        for module in (OLDEST, *MODULES):
            way = "name a later one as `python:`" if module == OLDEST else f"{python} -m pip install {module}"
            remedy = f"{way}, or leave out `captures: {{stay: true}}`"
            yield Requirement(
                node=node, kind="module", what=module, python=python, remedy=remedy, needed_by="captures that stay"
            )
