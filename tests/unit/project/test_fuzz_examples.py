"""What fuzzing found, each made as small as it would go: read by the same readers, held to the same."""

from __future__ import annotations

import contextlib
import json
import struct

import pytest
from pydantic import ValidationError

from orchestrator.analysis.launch_outputs import rows_of
from orchestrator.core.errors import TransportError
from orchestrator.experiment.matrix import Axis
from orchestrator.parts.rows import LaunchOutput
from orchestrator.remote.transport import known_hosts, ssh_config
from orchestrator.remote.transport.ssh_config import Hop, SshTarget
from tests.fuzz.targets import TARGETS, files, outputs, ssh, store


def framed(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


def of_command(number: int, **changes: object) -> bytes:
    return bytes([number]) + json.dumps({**store.MANIFEST, **changes}).encode()


def of_part(label: str, at: int, content: bytes) -> bytes:
    return bytes(([name for name, _ in outputs._outputs()].index(label), at)) + content


def of_window(number: int, **changes: object) -> bytes:
    return of_command(number, windows=[{**store.WINDOW, **changes}])


HUGE = b"9" * 400
LONG = b"x" * 5000
PASS = b'"forward_s": 1.0, "backward_s": 1.0, "wait_s": 1.0, "samples": 1, "accuracy": null'
TIMES = b'"iteration": 1, "start_ns": 1, "end_ns": 2, "mono_start_ns": 1, "mono_end_ns": 2'
SHORT_POINT = (
    b"*,2 ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBqEmKSENjQEezOmxkZMy7opKg"
    b"wFB9nkt5YRrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg=\n"
)
FOUND = [
    ("requests", framed(b"[" * 200_000)), ("requests", framed(b'{"id": NaN}')),
    ("requests", framed(b'{"id": 1e400, "op": "ping"}')), ("journal", b"\n"), ("journal", b"\xc2\n"),
    ("journal", b'{"undo": []}\n'), ("journal", b'{"id": [[]]}\n'),
    ("journal", b'{"id": 2, "undo": [["x"]]}\n'), ("journal", b'{"id": "k", "undo": "x"}\n'),
    ("journal", b'{"id": "k", "undo": [["a\\u0000b"]]}\n'), ("journal", b"[" * 100_000 + b"\n"),
    ("answers", b"\x0b" + framed(b'{"id": 1, "error": "x", "kind": "locked", "holder": {"pid": "' + LONG + b'"}}')),
    ("answers", b"\x0b" + framed(b'{"id": 1, "error": "' + b"x" * 5000 + b'"}')),
    ("known_hosts", SHORT_POINT),
    ("settings", b""), ("settings", b"user a\nhostname h\nport x\n"),
    ("settings", b"user a\nhostname h\nport 22\nidentityfile ~nobody-of-this-name/k\n"),
    ("manifest", of_command(0, windows=True)), ("manifest", of_command(4, began_ns=[])),
    ("manifest", of_command(7, reasons=[7])), ("manifest", of_command(7, seed="x")),
    ("manifest", of_command(7, error={})), ("manifest", of_command(11, controller=7)),
    ("manifest", of_window(3, loads=[{"requested_bps": []}])), ("manifest", of_window(4, training=[{}])),
    ("manifest", of_command(7, overhead_s=1_795_000_000_000_000_000)),
    ("manifest", of_command(7, phases={"total": 1_795_000_000_000_000_000})),
    ("manifest", of_command(4, scale=None)), ("manifest", of_command(11, controller={"pid": "\0"})),
    ("outputs", of_part("workload.ddp", 0, b'{"iteration": 1, "start_ns": 1, "end_ns": 2, ' + PASS + b"}\n")),
    ("outputs", of_part("workload.ddp", 0, b"{" + TIMES + b", " + PASS + b', "loss": ' + HUGE + b"}\n")),
    ("outputs", of_part("workload.collective", 0, b'{"iteration": 1, "bytes": 1, "repeats": 1, "world": 0, "seconds": '
                        b'1.0, "link_bps": 1}\n')),
    ("outputs", of_part("workload.collective", 0, b'{"iteration": ' + HUGE + b', "bytes": 1, "repeats": 1, "world": 2, '
                      b'"seconds": 1.0, "link_bps": 1}\n')),
    ("outputs", of_part("collector.cpu", 0, b"time_ns,late_ns,\xfc\n1,2,3\n")),
    ("outputs", of_part("collector.cpu", 0, b"time_ns,late_ns,x\n1,2\n")),
    ("sweep", files.SWEEP.replace(b"to: 4", b"to: .inf")),
    ("sweep", files.SWEEP.replace(b"vgg16]", b"x" * 5000 + b"]")),
    ("sweep", b"name: s\naxes: {repetitions: [1]}\nexperiment: " + b"x" * 5000 + b"\n"),
    ("study", files.STUDY[0].replace(b"s.yaml", b"x" * 5000)), ("option", b"collect.0=" + b"x" * 5000),
    ("outputs", of_part("traffic.websearch", 1, b"[" * 100_000)),
    ("settings", b"user a\nhostname h\nport 22\nproxyjump j:" + HUGE * 20 + b"\n"),
    ("argument", b"\0" + HUGE + b"d"), ("argument", b"\6" + b"x" * 300), ("argument", b"\6" + b"x" * 5000),
    ("option", b"name" + b"x" * 9000 + b"={}"), ("option", b"x" * 9000),
    ("experiment", b"name: x\nmeasure: {iterations: 1}\ntestbed: {local: {hosts: 2, link: 1gbit}}\n"
     b"workload: {ddp: {model: resnet50, hosts: [" + b"h" * 5000 + b", h1]}}\n"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data"), FOUND, ids=lambda one: ascii(one[:40]))
def test_it_is_read_or_refused_in_our_own_words(tmp_path, name, data):
    target = TARGETS[name]
    with contextlib.suppress(*target.ours):
        target.read(data, tmp_path)


def test_a_key_with_a_short_point_is_no_certificate():
    blob = next(blob for blob in ssh._shown() if b"ecdsa" in blob)
    at = blob.index(b"\0\0\0A\4") + 4  # how long the point is, and that it is spelled out
    with pytest.raises(ValueError, match="uncompressed"):
        known_hosts.read_certificate(blob[:at] + b"\3" + blob[at + 1 :])


def test_the_home_of_nobody_and_another_ssh_are_told():
    target = SshTarget(name="n1", host="h1")
    hop = Hop(target, ssh_config.parsed_settings("hostname h\nuser u\nport 22\n"))
    with pytest.raises(TransportError, match=r"n1: .*'~nobody-of-this-name/k', and there is no such user here"):
        ssh_config.expanded_path("~nobody-of-this-name/k", hop)
    with pytest.raises(TransportError, match="what `ssh -G` prints is not understood"):
        ssh_config.parsed_settings("usage: ssh [user@]host\n")


def test_what_a_host_cannot_have_written_is_told_and_no_more(tmp_path):
    (tmp_path / "cpu.csv").write_bytes(b"time_ns,late_ns,x\n1,2\n")
    output = LaunchOutput(
        folder=tmp_path, node="h1", launch="cpu.h1", job=None, rank=None, window=None, source=None, offset_ns=0
    )
    assert rows_of("collector.cpu", output) == {}
    assert output.unread.sentences() == ["cpu.csv: left out: 1 line has not 3 cells, such as one of 2"]


@pytest.mark.parametrize(
    "axis",
    [
        {"from": 0, "to": 1, "count": 10**12},
        {"from": 0, "to": 1e9, "step": 1e-9},
        {"from": 0, "to": 1e308, "step": 1e-300},
    ],
)
def test_a_range_of_too_many_numbers_is_refused_before_one_is_made(axis):
    with pytest.raises(ValidationError, match=r"a range of .* numbers"):
        Axis.model_validate(axis)
