"""A step of agents, with a program in srun's place that starts the same on this machine: how it ends, either way."""

from __future__ import annotations

import signal
import sys

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import TransportError
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.testbed.slurm import testbed as steps
from orchestrator.testbed.slurm.job import SlurmJob
from orchestrator.testbed.slurm.testbed import Step
from tests.helpers.machine import PATIENCE_S

SRUN = f"""#!{sys.executable}
import os, subprocess, sys, time
said = dict(word.split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
if os.environ.get("REFUSE"):
    sys.exit("srun: error: Unable to create step for job 42: Invalid job id specified")
program, text = sys.argv[sys.argv.index({sys.executable!r}):], sys.stdin.buffer.read()
tasks = []
for number, node in enumerate(said["--nodelist"].split(",")):
    env = dict(os.environ, SLURMD_NODENAME=node, SLURM_LAUNCH_NODE_IPADDR="127.0.0.1")
    tasks.append(subprocess.Popen(program, stdin=subprocess.PIPE, env=env))
    tasks[-1].stdin.write(text)
    tasks[-1].stdin.close()
print("0: a word of the first task", "1: a word of the second", "srun: its own", sep="\\n", flush=True)
for task in tasks:
    task.wait()
time.sleep(float(os.environ.get("STAY_S", "0")))
"""


@pytest.fixture
def srun(tmp_path, monkeypatch):
    """A folder first in PATH with that program."""
    path = tmp_path / "bin" / "srun"
    path.parent.mkdir()
    path.write_text(SRUN)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")


@pytest.fixture
def begun(srun, tmp_path):
    """A step on n1 and n2, and a greeted agent on each: `begun()`; it is closed with the test."""
    made = []

    def begin():
        step = Step(SlurmJob("42", ("n1", "n2")), ("n1", "n2"), python=sys.executable)
        made.append(step)
        return step, [greeted(step, name, tmp_path) for name in ("n1", "n2")]

    yield begin
    for step in made:
        step.close()


def soon() -> Deadline:
    return Deadline.after(PATIENCE_S)


def greeted(step, name, folder):
    client = AgentClient(
        Node(name=name, work=str(folder / "work")),
        step.channel(name, soon()),
        run="r1",
        holder={},
        on_event=lambda _: None,
    )
    client.hello(soon())
    return client


def test_agents_of_all_nodes_answer_and_end_with_srun(begun):
    step, clients = begun()
    assert [client.run(("printenv", "SLURMD_NODENAME"), soon()).stdout for client in clients] == ["n1\n", "n2\n"]
    assert step.said("n2").splitlines() == ["1: a word of the second", "srun: its own"]
    for client in clients:
        client.remove(soon())
        client.close(soon())
    soon().poll(lambda: step.over, every_s=0.01, waiting_for="the end of srun")
    step.close()
    step.close()
    assert step.said() == ""


def test_the_end_of_srun_ends_every_agent(begun):
    step, clients = begun()
    children = [int(client.run(("sh", "-c", "echo $PPID"), soon()).stdout) for client in clients]
    step._process.send_signal(signal.SIGKILL)
    for client in clients:
        soon().poll(lambda client=client: _lost(client), every_s=0.01, waiting_for="the end of the connection")
    soon().poll(lambda: not any(map(_alive, children)), every_s=0.01, waiting_for="the end of the agents")


def test_an_srun_that_stays_when_all_agents_have_ended_is_ended(begun, monkeypatch):
    monkeypatch.setenv("STAY_S", "600")
    monkeypatch.setattr(steps, "KILL_S", 0.1)
    monkeypatch.setattr(steps, "END_S", 10 * PATIENCE_S)  # not waited for: nobody is left
    step, clients = begun()
    for client in clients:
        client.remove(soon())
        client.close(soon())
    step.close()
    assert step.over


def test_an_agent_that_is_let_go_has_time_to_put_things_down(begun):
    step, (first, second) = begun()
    first.remove(soon())
    first.close(soon())
    with step._lock:
        ended = [channel.ended for channel in step._channels]
    assert ended == [True, False]
    second.remove(soon())


def test_a_step_that_is_refused_says_what_srun_said(srun, monkeypatch):
    monkeypatch.setenv("REFUSE", "1")
    step = Step(SlurmJob("42", ("n1",)), ("n1",), python=sys.executable)
    try:
        with pytest.raises(TransportError, match="srun ended with status 1") as error:
            step.channel("n1", soon())
        assert "Unable to create step for job 42" in error.value.tail
    finally:
        step.close()


def test_without_srun_there_is_no_step(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TransportError, match="cannot start srun"):
        Step(SlurmJob("42", ("n1",)), ("n1",), python=sys.executable)


def _lost(client: AgentClient) -> bool:
    try:
        client.disk(soon())
    except TransportError as error:
        return "its agent is gone" in error.message
    return False


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
