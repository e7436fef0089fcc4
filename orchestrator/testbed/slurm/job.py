"""Reads the Slurm job that this process is in (id, nodes in rank order, ports for srun), and submits new jobs."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.core.errors import TestbedError

ASK_S = 30.0
OUTSIDE = (
    "allocate hosts first: salloc -N 4 orch run FILE; or let the run submit itself: orch run FILE --sbatch --nodes 4"
)
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_PORTS = re.compile(r"^SrunPortRange\s*=\s*(\d+)-(\d+)\s*$", re.MULTILINE)
_OUTPUT = re.compile(r"^\s*StdOut=(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A Slurm job with an allocation; `nodes` are Slurm's names, `ports` those on which srun may be called back."""

    id: str
    nodes: tuple[str, ...]
    ports: Sequence[int] = (0,)  # any


def id_here() -> str:
    """Return the id of the job that this process is in; empty outside of one."""
    return os.environ.get("SLURM_JOB_ID", "")


def current() -> SlurmJob:
    """Return the job that this process is in; TestbedError where it is in none."""
    job, listed = id_here(), os.environ.get("SLURM_JOB_NODELIST", "")
    if not job or not listed:
        raise TestbedError("this is not inside an allocation of Slurm", hint=OUTSIDE)
    nodes = tuple(ask("scontrol", "show", "hostnames", listed).split())
    for node in nodes:
        if not _NODE.match(node):
            raise TestbedError(f"Slurm names a node {node!r}: not a host name of at most 63 characters")
    return SlurmJob(job, nodes, srun_ports(ask("scontrol", "show", "config")))


def srun_ports(config: str) -> Sequence[int]:
    """Return the ports for srun to listen on, SrunPortRange of `scontrol show config`; any port where it is not set."""
    found = _PORTS.search(config)
    return range(int(found[1]), int(found[2]) + 1) if found else (0,)


def address(node: str) -> str:
    """Return a node's address in Slurm (`NodeAddr`), or its host name."""
    found = re.search(r"\bNodeAddr=(\S+)", ask("scontrol", "show", "node", node, "--oneliner"))
    return found[1] if found else node


def free_port(host: str, ports: Sequence[int]) -> int:
    """Return the first of these ports that is free at an address of this machine; TestbedError where none is."""
    for port in ports:
        with contextlib.suppress(OSError), socket.create_server((host, port), family=_family(host)) as found:
            return int(found.getsockname()[1])
    raise TestbedError(f"of the ports {ports[0]} to {ports[-1]} none is free at {host}")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def environment() -> Mapping[str, str]:
    """Return this process's environment without what would be options of srun, sbatch or salloc.

    A job script's own options, such as tasks a node, are in the variables of its environment (srun(1), "INPUT
    ENVIRONMENT VARIABLES"), and would hold for the one task a node that an agent is.
    """
    return {name: value for name, value in os.environ.items() if not _is_option(name)}


def _is_option(name: str) -> bool:
    return name.startswith(("SLURM_", "SRUN_", "SBATCH_", "SALLOC_")) and name != "SLURM_CONF"


def ask(*argv: str) -> str:
    """Run a program of Slurm and return its output; TestbedError where it is not there or fails."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ASK_S, check=False
        )
    except FileNotFoundError:
        raise TestbedError(f"no program {argv[0]} here", hint="run this where Slurm's own programs are") from None
    except subprocess.TimeoutExpired:
        raise TestbedError("Slurm does not answer", argv=argv, hint="see `scontrol ping`") from None
    if done.returncode != 0:
        raise TestbedError(f"{argv[0]} failed", argv=argv, tail=done.stderr or done.stdout)
    return done.stdout


@dataclass(frozen=True, slots=True)
class Submitted:
    """A submitted job, and the file of its output.

    `status` is its exit status where sbatch waited for its end (`--wait`).
    """

    id: str
    output: str
    status: int


def script(command: Sequence[str]) -> str:
    """Return the batch script that runs a command."""
    return f"#!/bin/sh\nexec {shlex.join(command)}\n"


def submit(command: Sequence[str], options: Sequence[str], *, name: str) -> Submitted:
    """Submit a command by sbatch with a user's options; TestbedError where it is refused.

    The job begins in the current folder, so that the command may hold relative paths.
    """
    argv = ["sbatch", "--parsable", f"--job-name={name}", *options]
    try:
        done = subprocess.run(argv, input=script(command), capture_output=True, text=True, check=False, env=os.environ)
    except FileNotFoundError:
        raise TestbedError("no program sbatch here", hint="run this where Slurm's own programs are") from None
    job = done.stdout.partition("\n")[0].partition(";")[0]
    if not job.isdigit():
        raise TestbedError("sbatch refuses the job", argv=argv, tail=done.stderr or done.stdout)
    found = _OUTPUT.search(ask("scontrol", "show", "job", job))
    return Submitted(job, found[1] if found else "", done.returncode)
