"""What the programs of the flow generator do with single flows, over the loopback of this machine."""

from __future__ import annotations

import os
import socket

import pytest

from cross_traffic import flow_records
from cross_traffic.agents import flow_sender, flow_sink

HERE = "127.0.0.1"
SPEC = {
    "source": "", "start": {"address": HERE, "port": 1}, "sinks": [{"address": HERE, "ports": [1]}], "streams": [],
    "recorded": None, "mtu": 1500, "workers": 1, "most_open": 10, "drain_s": 1, "dscp": 0, "congestion": "",
    "pool": True, "realtime": False,
}  # fmt: skip


@pytest.fixture
def listener():
    made = flow_sink.listen(HERE, 0)
    yield made
    made.close()


@pytest.fixture
def sink(tmp_path, monkeypatch, listener):
    monkeypatch.chdir(tmp_path)
    made = flow_sink.Sink({"address": HERE, "ports": [1], "senders": [HERE], "starters": 1}, listener, 1)
    yield made
    for entry in list(made.connections.values()):
        made.close(entry)
    made.epoll.close()
    os.close(made.log)


@pytest.fixture
def connection(listener, sink):
    with socket.create_connection(listener.getsockname(), timeout=10) as made:
        yield made


def taken(sink, count):
    """The sink's side of connections, once it has accepted so many."""
    while len(sink.connections) < count:
        sink.epoll.poll(10)
        sink.accept()
    return list(sink.connections.values())


def arrived(entry, count):
    """Wait until so many bytes can be read."""
    entry.socket.settimeout(10)
    assert len(entry.socket.recv(count, socket.MSG_PEEK | socket.MSG_WAITALL)) == count
    entry.socket.setblocking(False)


@pytest.mark.parametrize("size", [16, 17, 2047, 2048, 2049, 100_000])
def test_a_flow_that_has_come_is_answered_without_being_looked_at_again(sink, connection, size):
    (entry,) = taken(sink, 1)
    connection.sendall(flow_sender.HEADER.pack(0, size) + bytes(size - 16))
    arrived(entry, size)
    sink.receive(entry)
    assert connection.recv(2) == b"\x01"
    assert (sink.bytes, sink.flows, entry.left) == (size, 1, 0)


def test_a_flow_that_comes_in_pieces_is_answered_once_and_another_follows(sink, connection):
    (entry,) = taken(sink, 1)
    first, second = flow_sender.HEADER.pack(0, 3000) + bytes(2984), flow_sender.HEADER.pack(1, 16)
    for piece in (first[:5], first[5:16], first[16:2500], first[2500:], second):
        connection.sendall(piece)
        arrived(entry, len(piece))
        sink.receive(entry)
    answers = b""
    while len(answers) < 2:
        answers += connection.recv(3)
    assert answers == b"\x01\x01"
    assert (sink.bytes, sink.flows) == (3016, 2)


def test_a_flow_over_a_kept_connection_has_its_own_retransmissions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    worker = flow_sender.Worker(SPEC, 0, -1)
    kept = KeptConnection()
    worker.idle[0].append((kept, 7, 2))
    for number, total in enumerate((5, 5, 6)):
        worker.launch((number, 0, 100, 0), 10)
        kept.total = total
        worker.end(worker.fresh.pop(), 20, 0)
    os.write(worker.fd, flow_sender.HEAD.pack(flow_sender.MAGIC, 0))
    worker.flush()
    _, rows = flow_records.records(tmp_path / "flows.0.bin")
    assert rows["retransmits"].tolist() == [3, 0, 1]
    assert rows["dport"].tolist() == [7, 7, 7]
    worker.epoll.close()
    os.close(worker.fd)


class KeptConnection:
    """A connection whose kernel says how many segments it has retransmitted in all."""

    total = 2

    def fileno(self):
        return 1000

    def getsockopt(self, *_):
        return flow_sender.RETRANSMITS.pack(self.total)

    def getsockname(self):
        return (HERE, 40000)


def test_a_sender_that_is_told_to_end_again_while_it_ends_still_waits_for_its_workers(monkeypatch):
    calls = []

    def stopped(workers):
        calls.append(workers)
        if len(calls) == 1:
            raise flow_sender.Stopped
        return 0

    monkeypatch.setattr(flow_sender, "stopped", stopped)
    assert flow_sender.given_up([(1, 2)]) == 0
    assert calls == [[(1, 2)], [(1, 2)]]
