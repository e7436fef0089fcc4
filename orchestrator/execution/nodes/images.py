"""Check the images of containers before a run: on every node, and the same on all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import TestbedError
from orchestrator.parts.launch import Requirement
from orchestrator.parts.topology import Topology
from orchestrator.remote.agent_client import Finding
from orchestrator.store.manifests.records import Image
from orchestrator.testbed.local import runtimes

LOOK_S = 90.0  # for a runtime to start its first container of an image
_SHOWN = 12  # digits of an id, as runtimes show them


def storage(topology: Topology, requirements: Iterable[Requirement]) -> str:
    """Return what podman's storage.conf is to say on hosts of this machine, which share its images.

    Empty for other hosts.
    """
    wanted = any(need.container is not None and need.container.runtime == "podman" for need in requirements)
    if topology.kind != "local" or not wanted:
        return ""
    return runtimes.shared_storage(Deadline.after(LOOK_S))


def remedy(finding: Finding) -> str:
    """Return what would mend what a host lacks.

    Of an image that no container can be started of by what its runtime says.
    """
    need = finding.requirement
    if need.kind != "image" or need.container is None:
        return need.remedy
    return runtimes.remedy(need.container.runtime, finding.detail) or need.remedy


def agreed(found: Mapping[str, Sequence[Finding]]) -> dict[str, Image]:
    """Return the images by the names that the experiment gives them; TestbedError where a name means several."""
    seen: dict[str, dict[str, list[str]]] = {}
    images: dict[str, Image] = {}
    for node, findings in found.items():
        for finding in findings:
            if finding.image is None or finding.requirement.container is None:
                continue
            name, one = finding.requirement.what, finding.image
            seen.setdefault(name, {}).setdefault(one.image, []).append(node)
            runtime = finding.requirement.container.runtime
            images.setdefault(name, Image(id=one.image, runtime=runtime, version=one.version, python=one.python))
    for name, nodes in seen.items():
        if len(nodes) > 1:
            digests = "; ".join(f"{number[:_SHOWN]} on {', '.join(some)}" for number, some in nodes.items())
            raise TestbedError(
                f"the image {name} is not the same on all hosts: {digests}",
                hint=f"get the same one on each, by its digest ({name.partition('@')[0]}@sha256:...)",
            )
    return images
