"""Agents that call back, over real sockets: who knows the key is heard, and nobody else keeps them from it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.agents import call_back as far
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, TransportError
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.transport import call_back as near
from orchestrator.remote.transport.bootstrap import agent_argv
from orchestrator.remote.transport.call_back import CalledBack, Callers
from tests.machine import PATIENCE_S

HERE = "127.0.0.1"


def soon() -> Deadline:
    return Deadline.after(PATIENCE_S)


@pytest.fixture
def callers():
    made = Callers(["n1", "n2"])
    yield made
    made.close()


@pytest.fixture
def start(callers):
    """Start what srun would on a node; all have ended with the test."""
    started = []

    def begin(node):
        step = {"SLURM_LAUNCH_NODE_IPADDR": HERE, "SLURM_PROCID": "1", "SLURM_JOB_ID": "7", "PMI_RANK": "1"}
        process = subprocess.Popen(
            agent_argv(sys.executable), stdin=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, **step, "SLURMD_NODENAME": node},
        )  # fmt: skip
        started.append(process)
        process.stdin.write(callers.program())
        process.stdin.close()
        return process

    yield begin
    callers.close()
    for process in started:
        process.wait(PATIENCE_S)
        process.stderr.close()


def test_an_agent_calls_back_and_knows_nothing_of_the_task_that_it_is(callers, start, tmp_path):
    process = start("n2")
    channel = CalledBack(callers.take("n2", soon()), lambda: "")
    client = AgentClient(Node(name="n2", work=str(tmp_path)), channel, run="r1", holder={}, on_event=lambda _: None)
    assert client.hello(soon()).pid == process.pid
    said = client.run(("env",), soon()).stdout
    names = {line.partition("=")[0] for line in said.splitlines()}
    assert names >= {"SLURM_JOB_ID", "SLURMD_NODENAME"}
    assert not names & {"SLURM_PROCID", "PMI_RANK", "SLURM_LAUNCH_NODE_IPADDR"}
    key = callers._key.hex()
    assert key not in said
    for pid in (process.pid, os.getpid()):
        for kind in ("cmdline", "environ"):
            assert key.encode() not in Path(f"/proc/{pid}/{kind}").read_bytes()
    client.remove(soon())
    client.close(soon())
    assert process.wait(PATIENCE_S) == 0


def test_an_agent_does_not_become_that_of_who_does_not_know_the_key(callers, start):
    with socket.create_server((HERE, 0)) as other:
        callers.port = other.getsockname()[1]
        process = start("n1")
        connection, _ = other.accept()
        with connection:
            far.received(connection, far.RANDOM_BYTES)
            connection.sendall(bytes(far.RANDOM_BYTES + far.PROOF_BYTES))
            assert connection.recv(1) == b""  # it says nothing more, neither its name
    assert process.wait(PATIENCE_S) == 1
    assert f"whoever listens at {HERE} port".encode() in process.stderr.read()


@pytest.mark.parametrize("wrong", ["key", "name", "silence", "reset"])
def test_who_cannot_prove_the_key_is_not_let_in(callers, wrong):
    key = bytes(32) if wrong == "key" else callers._key
    if wrong in ("key", "name"):
        name = "n1" if wrong == "key" else "n3"
        if wrong == "key":
            with pytest.raises(OSError, match="does not know the key"):
                far.called_back(HERE, callers.port, key, name, PATIENCE_S)
            with socket.create_connection((HERE, callers.port)) as rude:  # and one that goes on all the same
                rude.sendall(bytes(far.RANDOM_BYTES + far.NAME_BYTES + far.PROOF_BYTES))
                far.received(rude, far.RANDOM_BYTES + far.PROOF_BYTES)
                assert far.received(rude, 1) == b""
        else:
            with far.called_back(HERE, callers.port, key, name, PATIENCE_S) as stranger:
                stranger.settimeout(PATIENCE_S)
                assert stranger.recv(1) == b""
    else:
        with socket.create_connection((HERE, callers.port)) as stranger:
            if wrong == "reset":
                stranger.sendall(b"x")
    with pytest.raises(DeadlineExceeded, match="gave up waiting for its agent to call back"):
        callers.take("n1", Deadline.after(0.05))
    with far.called_back(HERE, callers.port, callers._key, "n1", PATIENCE_S):
        callers.take("n1", soon()).close()


def test_many_who_say_nothing_keep_no_agent_out(callers):
    silent = [socket.create_connection((HERE, callers.port)) for _ in range(near.STRANGERS + 30)]
    with far.called_back(HERE, callers.port, callers._key, "n1", PATIENCE_S):
        callers.take("n1", soon()).close()
    for one in silent:
        one.close()


def test_a_node_is_heard_once_and_the_socket_goes_with_the_last(callers):
    for name in ("n1", "n1", "n2"):
        with far.called_back(HERE, callers.port, callers._key, name, PATIENCE_S):
            time.sleep(0)
    callers.take("n1", soon()).close()
    callers.take("n2", soon()).close()
    with pytest.raises(DeadlineExceeded):
        callers.take("n1", Deadline.after(0.05))

    def refused():
        try:
            socket.create_connection((HERE, callers.port)).close()
        except ConnectionRefusedError:
            return True
        return False

    soon().poll(refused, every_s=0.02, waiting_for="the end of the listener")


def test_who_waits_is_told_why_nobody_will_call(callers):
    callers.fail(TransportError("srun ended with status 1", tail="srun: error: Job credential expired"))
    with pytest.raises(TransportError, match="srun ended with status 1") as told:
        callers.take("n1", soon())
    assert "expired" in told.value.tail


def test_ports_that_are_set_apart_are_used():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TransportError, match=f"of the ports {port} to {port} none is free"):
            Callers(["n1"], ports=[port])
    made = Callers(["n1"], ports=[port])
    try:
        assert made.port == port
    finally:
        made.close()
