"""Submits a command of orch to Slurm as a batch job, which runs it on the first of its nodes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.core.errors import TestbedError
from orchestrator.testbed.slurm import job as jobs

_OUTPUT = re.compile(r"^\s*StdOut=(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job, and where its output goes; `status` is its exit status where sbatch waited for its end (`--wait`)."""

    id: str
    output: str
    status: int


def script(command: Sequence[str]) -> str:
    """Return the batch script that runs a command."""
    return f"#!/bin/sh\nexec {shlex.join(command)}\n"


def submit(command: Sequence[str], options: Sequence[str], *, name: str) -> Submitted:
    """Hand a command to sbatch with a user's options; TestbedError where it is refused.

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
    found = _OUTPUT.search(jobs.ask("scontrol", "show", "job", job))
    return Submitted(job, found[1] if found else "", done.returncode)
