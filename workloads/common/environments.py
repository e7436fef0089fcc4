"""Find the Python of a framework that needs an environment of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from orchestrator.parts.launch import Requirement
from orchestrator.parts.topology import Node, Topology

NAMES = ("torch", "tensorflow")  # of the environments
QUIET_TENSORFLOW = {"TF_CPP_MIN_LOG_LEVEL": "2"}  # errors alone: the rest hides a rank's own last line
TORCH_FILES = {
    "TORCHINDUCTOR_CACHE_DIR": "cache"
}  # in the rank's own folder; else torch makes one in /tmp, which stays


def remedy(environment: str, topology: Topology) -> str:
    """Return the command that makes an environment where it is missing."""
    if topology.shares_files:
        return f"orch prepare --only {environment}"
    if topology.image:
        return "install it in the image, or give the workload the `python` of the image that has it"
    return f"orch prepare TESTBED --only {environment}, and give the workload the `python` that it tells"


def built(environment: str) -> Path:
    """Return the path of the interpreter that `orch prepare` builds for an environment here, built or not."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("ORCH_FRAMEWORKS") or cache / "orch" / "frameworks")
    return folder / environment / "bin" / "python"


def is_built(environment: str) -> bool:
    """Return whether this user can run an environment's interpreter, which may be in a folder closed to them."""
    return os.access(built(environment), os.X_OK)


def interpreter(given: str | None, environment: str, node: Node, topology: Topology) -> str:
    """Return the interpreter of ranks on a node: the given one, on local hosts else the built one, else the host's."""
    if given is not None:
        return given
    return str(built(environment)) if topology.shares_files else node.python


def requirements(
    modules: tuple[str, ...],
    nodes: Iterable[str],
    topology: Topology,
    *,
    given: str | None,
    environment: str,
    needed_by: str,
) -> list[Requirement]:
    """Return requirements of the environment's modules on every node, and of its data-plane devices."""
    needed = []
    step = remedy(environment, topology)
    for name in dict.fromkeys(nodes):
        node = topology.node(name)
        python = interpreter(given, environment, node, topology)
        needed += [
            Requirement(node=name, kind="module", what=module, python=python, remedy=step, needed_by=needed_by)
            for module in modules
        ]
        needed += device_requirements(node, needed_by=needed_by)
    return needed


def device_requirements(node: Node, *, needed_by: str) -> list[Requirement]:
    """Return requirements of a node's data-plane devices."""
    remedy = f"name the data-plane devices of {node.name} in the testbed file"
    return [
        Requirement(node=node.name, kind="device", what=device, remedy=remedy, needed_by=needed_by)
        for device in node.devices
    ]
