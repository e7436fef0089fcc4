"""Agents that call back, over real sockets: who knows the key is heard, and nobody else keeps them from it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
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
from tests.helpers.machine import PATIENCE_S

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
            agent_argv(sys.executable),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **step, "SLURMD_NODENAME": node},
        )
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
            with pytest.raises(OSError, match="does not let n3 in"):
                far.called_back(HERE, callers.port, key, name, 0.5)
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


FLOOD = """
import collections, os, socket, sys, time
port, silent, end = int(sys.argv[1]), sys.argv[2] == "silent", time.monotonic() + 60
kept = collections.deque(maxlen=300)
print("begun", flush=True)
for _ in range(1_000_000):
    if time.monotonic() > end:
        break
    try:
        kept.append(socket.create_connection(("127.0.0.1", port), timeout=1))
        if not silent:
            kept[-1].sendall(os.urandom(32))
    except OSError:
        pass
"""


@pytest.mark.parametrize("how", ["silent", "greeting"])
def test_a_flood_from_the_same_address_keeps_no_agent_out(how):
    """The flooder's calls cannot be told from the agents'; both sides end by themselves within a minute."""
    hosts = [f"n{number:02}" for number in range(16)]
    callers = Callers(hosts)
    argv = [sys.executable, "-c", FLOOD, str(callers.port), how]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as flooder, ThreadPoolExecutor(len(hosts)) as pool:
        try:
            assert flooder.stdout.readline() == b"begun\n"
            time.sleep(0.2)
            calls = [pool.submit(far.called_back, HERE, callers.port, callers._key, host, 60) for host in hosts]
            for host, call in zip(hosts, calls, strict=True):
                with call.result() as agent, callers.take(host, soon()) as taken:
                    agent.sendall(host.encode())
                    assert far.received(taken, 3) == host.encode()
        finally:
            flooder.kill()
            callers.close()


def test_calls_of_one_address_do_not_push_out_those_of_another(callers, monkeypatch):
    """The host's is there before the flood, says nothing meanwhile, and is heard."""
    monkeypatch.setattr(near, "_source", str)
    with socket.create_connection((HERE, callers.port), source_address=("127.0.0.9", 0)) as host:
        silent = [socket.create_connection((HERE, callers.port)) for _ in range(3 * near.STRANGERS)]
        far.proved(host, "it", callers._key, "n1")
        callers.take("n1", soon()).close()
    for one in silent:
        one.close()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("127.0.0.1", "::1", True),
        ("::ffff:127.0.0.1", "127.9.0.1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::2", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
    ],
)
def test_whose_calls_count_together(one, other, same):
    assert (near._source(one) == near._source(other)) is same


def test_an_agent_whose_call_is_dropped_calls_again():
    with socket.create_server((HERE, 0)) as rude, ThreadPoolExecutor(1) as pool:

        def drop():
            for _ in range(2):
                rude.accept()[0].close()
            rude.close()

        port = rude.getsockname()[1]
        dropped = pool.submit(drop)
        with pytest.raises(ConnectionRefusedError):  # nobody listens there any more: that is an end
            far.called_back(HERE, port, bytes(32), "n1", PATIENCE_S)
        dropped.result()


def test_a_node_is_heard_once_and_the_socket_goes_with_the_last(callers):
    with (
        far.called_back(HERE, callers.port, callers._key, "n1", PATIENCE_S),
        pytest.raises(OSError, match="does not let n1 in"),
    ):
        far.called_back(HERE, callers.port, callers._key, "n1", 0.5)
    with far.called_back(HERE, callers.port, callers._key, "n2", PATIENCE_S):
        pass
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
