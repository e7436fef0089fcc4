"""Byte code that hosts load into their kernels is what clang makes of the C beside it."""

from __future__ import annotations

import json
import struct
import subprocess
import sys

import pytest

from orchestrator.agents import meter
from tests.helpers import bpf_objects

AGENTS = bpf_objects.AGENTS


@pytest.mark.parametrize("source", bpf_objects.SOURCES, ids=lambda path: path.name)
def test_byte_code_is_made_of_its_source(source):
    kept = json.loads(bpf_objects.target(source).read_text())
    made = bpf_objects.built(source)
    again = "run python -m tests.helpers.bpf_objects"
    assert kept["source"] == made["source"], again
    assert kept["maps"] == made["maps"], again
    if kept["clang"] == made["clang"]:  # another version of it may choose other instructions
        assert kept["programs"] == made["programs"], again
    else:
        assert kept["programs"].keys() == made["programs"].keys()


@pytest.mark.parametrize("fresh", [{"source": "0"}, {"programs": {}}])
def test_byte_code_of_another_source_is_found_out(fresh, monkeypatch, tmp_path):
    source = tmp_path / "meter.c"
    source.write_text((AGENTS / "meter.c").read_text())
    kept = json.loads((AGENTS / "meter.bpf.json").read_text())
    monkeypatch.setattr(bpf_objects, "built", lambda _: {**kept, **fresh})
    bpf_objects.target(source).write_text(json.dumps(kept))
    with pytest.raises(AssertionError, match="bpf_objects"):
        test_byte_code_is_made_of_its_source(source)


def test_a_device_whose_frames_are_not_ethernets_is_refused(monkeypatch):
    assert meter.hardware("lo") in meter.ETHERNET
    monkeypatch.setattr(meter.fcntl, "ioctl", lambda *_: struct.pack("=16sH22x", b"ib0", 32))
    with pytest.raises(OSError, match="not Ethernet's"):
        meter.Meter("ib0", 1_000_000)


def test_a_meter_without_rights_says_what_it_takes(tmp_path):
    for name in ("meter.py", "meter.bpf.json", "agent/bpf.py"):
        path = AGENTS / name
        (tmp_path / path.name).write_bytes(path.read_bytes())
    argv = [sys.executable, "-I", "-S", "-B", str(tmp_path / "meter.py"), "-i", "lo", "-w", "1000000", "-e", "0.1"]
    argv = ["unshare", "--user", "--map-root-user", *argv]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("meter: lo: making the map settings: it takes root, or CAP_BPF and CAP_NET_ADMIN")
    assert done.stderr.count("\n") == 1
