"""Uses the hosts of a Slurm allocation as a testbed: one srun starts an agent on each, which calls this process back.

One step is for the agents of all hosts, and one more for each that is lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import TestbedError, TransportError
from orchestrator.parts.protocols import Channel
from orchestrator.remote.transport.bootstrap import agent_argv
from orchestrator.remote.transport.call_back import CalledBack, Callers
from orchestrator.testbed.slurm import job as jobs
from orchestrator.testbed.slurm.job import SlurmJob
from orchestrator.testbed.slurm.spec import Allocation, SlurmSpec, topology

END_S = 20.0  # for agents to put everything down once their connections have ended
KILL_S = 2.0  # for srun to end once all agents have, and after each signal
_SAID_BYTES = 1 << 14


def srun_argv(job: SlurmJob, nodes: Sequence[str], program: Sequence[str], *, name: str) -> list[str]:
    """Return the command that starts a program on each of these nodes of a job, beside whatever steps it has.

    The step shares all that the job has on a node (srun(1), `--overlap`, `--mem=0`), and its task is bound to none of
    its processors in particular, so that ranks have what Slurm gave the job. A task that dies, or ends first, takes
    none of the others with it.
    """
    count = str(len(nodes))
    return [
        "srun",
        f"--jobid={job.id}",
        f"--job-name={name}",
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(nodes)}",
        "--overlap",
        "--mem=0",
        "--cpu-bind=none",
        "--mpi=none",
        "--input=all",
        "--label",
        "--unbuffered",
        "--kill-on-bad-exit=0",
        "--wait=0",
        *program,
    ]


def started(argv: Sequence[str], given: bytes, said: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start an srun that hands `given` to its tasks as their input; their output and its own go to the file `said`.

    Nothing of what they are given can be seen in arguments or environments. TransportError where there is no srun.
    """
    with tempfile.TemporaryFile() as program:  # it has no name, so that no one else reads a key in it
        program.write(given)
        program.seek(0)
        try:
            # A session of its own: Ctrl-C is for this process, with whose connections the tasks end.
            return subprocess.Popen(
                argv, stdin=program, stdout=said, stderr=said, start_new_session=True, env=jobs.environment()
            )
        except OSError as error:
            raise TransportError(f"cannot start srun: {error}", argv=argv) from error


def ended(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """Wait for srun, which ends with its last task; ask it to end, and kill it, where it does not.

    srun waits for ever for a task whose slurmstepd is dead, though the task has ended.
    """
    for number, wait_s in ((None, patience_s), (signal.SIGTERM, KILL_S), (signal.SIGKILL, KILL_S)):
        if number is not None:
            with suppress(ProcessLookupError):
                process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)
            return


class Step:
    """The agents of some nodes, from the start of srun to `close`, or to srun's end if that is first.

    The end of srun ends the connection to each agent, upon which it ends its host's part of the run; the end of
    this process does the same.
    """

    def __init__(self, job: SlurmJob, nodes: Sequence[str], *, python: str) -> None:
        self._nodes = tuple(nodes)
        self._lock = threading.Lock()
        self._channels: list[CalledBack] = []
        self._over = False
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the step
        self._callers = Callers(nodes, ports=job.ports)
        argv = srun_argv(job, nodes, agent_argv(python), name="orch-agents")
        try:
            self._process = started(argv, self._callers.program(), self._said)
        except TransportError:
            self._callers.close()
            raise
        self._watch = threading.Thread(target=self._await_end, name="srun", daemon=True)
        self._watch.start()

    @property
    def over(self) -> bool:
        """Whether srun has ended."""
        return self._over

    def channel(self, node: str, deadline: Deadline) -> CalledBack:
        """Wait for the channel of a node's agent to call back; TransportError where srun ends before."""
        connection = self._callers.take(node, deadline)
        channel = CalledBack(connection, lambda: self.said(node))
        with self._lock:
            self._channels.append(channel)
            over = self._over
        if over:
            channel.close()
        return channel

    def said(self, node: str | None = None) -> str:
        """Return the last lines that srun printed: its own, and those of a node's agent, or of all.

        Return no lines once the step is closed.
        """
        if self._said.closed:
            return ""
        size = os.fstat(self._said.fileno()).st_size
        lines = os.pread(self._said.fileno(), _SAID_BYTES, max(0, size - _SAID_BYTES)).decode(errors="replace")
        labels = {f"{place}:" for place, name in enumerate(self._nodes) if node in (None, name)}
        return "\n".join(line for line in lines.splitlines() if not _label(line) or line.split()[0] in labels)

    def close(self) -> None:
        """Close the channels that are left, and wait until srun and its step are gone; a second call does nothing."""
        self._callers.close()
        with self._lock:
            all_ended = all(channel.ended for channel in self._channels)
        self._end_channels()
        if not self._said.closed:
            ended(self._process, KILL_S if all_ended else END_S)
            self._watch.join()
            self._said.close()

    def _await_end(self) -> None:
        status = self._process.wait()
        with self._lock:
            self._over = True
        self._callers.fail(TransportError(f"srun ended with status {status}", tail=self.said()))
        self._end_channels()

    def _end_channels(self) -> None:
        with self._lock:
            channels, self._channels = self._channels, []
        for channel in channels:
            channel.close()


def _label(line: str) -> bool:
    """Return whether a line is of a task, as `srun --label` writes it: "3: text"."""
    return line.split(":", 1)[0].strip().isdigit()


class SlurmTestbed:
    """A testbed of the hosts of this process's allocation."""

    __test__ = False

    def __init__(self, spec: SlurmSpec, allocation: Allocation) -> None:
        self.allocation = allocation
        self.topology = topology(spec, allocation)
        self._python = spec.interpreter
        self._steps: list[Step] = []
        self._waiting: dict[str, Step] = {}  # node of Slurm -> the step with an agent there that is not connected yet

    def open(self, run_folder: Path, deadline: Deadline) -> None:  # noqa: ARG002 - the protocol's
        """Start an agent on every host by one step; the hosts see nothing of `run_folder`."""
        nodes = [host.node for host in self.allocation.hosts.values()]
        self._waiting = dict.fromkeys(nodes, self._step(nodes))

    def connect(self, node: str, deadline: Deadline) -> Channel:
        """Return the channel to a host's agent; after the first one, to an agent of a fresh step."""
        name = self.allocation.hosts[node].node
        step = self._waiting.pop(name, None)
        return (step or self._step([name])).channel(name, deadline)

    def _step(self, nodes: list[str]) -> Step:
        job = jobs.current()
        if strangers := [node for node in nodes if node not in job.nodes]:
            raise TestbedError(
                f"{', '.join(strangers)}: not in the allocation of job {job.id}",
                hint=f"salloc --nodelist={','.join(strangers)}",
            )
        step = Step(job, [node for node in job.nodes if node in nodes], python=self._python)
        self._steps.append(step)
        return step

    def local_folder(self, node: str) -> Path | None:  # noqa: ARG002 - the protocol's
        return None

    def about(self) -> Mapping[str, str]:
        names = " ".join(f"{name}={host.node}" for name, host in self.allocation.hosts.items())
        return {"slurm-job": self.allocation.job, "nodes": names}

    def close(self) -> None:
        """Close the channels that are left, and end every step; a second call does nothing."""
        while self._steps:
            self._steps.pop().close()
