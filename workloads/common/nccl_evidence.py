"""Options and environment variables for NCCL's log and its Inspector."""

from __future__ import annotations

from pydantic import Field

from orchestrator.parts.protocols import Problem
from workloads.common.placement import WorkloadConfig

# Beside rings and connections, which come under INIT and GRAPH, what they say of network devices and of variables.
_SUBSYSTEMS = "INIT,ENV,NET,GRAPH"
_LOG = "nccl.%p.log"  # in the rank's folder; NCCL puts its process id there
_EVERY_US = 100_000  # between dumps of the Inspector: a rank is ended by a signal, and what waits then is lost


class NcclConfig(WorkloadConfig):
    """Options of every workload whose ranks may use NCCL."""

    nccl_log: bool = True
    """Whether ranks on NCCL keep its log of what connects them (NCCL_DEBUG=INFO into a file): tables `nccl_connections`
    and `nccl_rings`, and the gate `transport`."""

    nccl_inspector: str | None = Field(default=None, pattern=r"^/[^\x00]+$")
    """Path of libnccl-profiler-inspector.so on the hosts, which NCCL's sources have among their plugins (from 2.28 on):
    table `nccl_operations`. Default: operations are not recorded."""


def env(config: NcclConfig) -> dict[str, str]:
    """Return the variables of a rank on NCCL."""
    found: dict[str, str] = {}
    if config.nccl_log:
        found |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": _SUBSYSTEMS, "NCCL_DEBUG_FILE": _LOG}
    if config.nccl_inspector is not None:
        found |= {
            "NCCL_PROFILER_PLUGIN": config.nccl_inspector,
            "NCCL_INSPECTOR_ENABLE": "1",
            "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": str(_EVERY_US),
            "NCCL_INSPECTOR_DUMP_DIR": ".",
        }
    return found


def problems(config: NcclConfig, *, used: bool, accepted: str) -> list[Problem]:
    """Find an Inspector without NCCL; `accepted` says how to have NCCL `used`."""
    if used or config.nccl_inspector is None:
        return []
    return [Problem(at=("nccl_inspector",), message="is NCCL's, which carries nothing here", accepted=accepted)]


def away(config: NcclConfig, cwd: str | None) -> list[Problem]:
    """Find files that NCCL would write into a working folder that is not fetched."""
    if cwd is None or not env(config):
        return []
    message = "what NCCL writes lies in the working folder, and this one does not come home"
    return [Problem(at=("cwd",), message=message, accepted="the rank's own folder, without cwd; files go there")]
