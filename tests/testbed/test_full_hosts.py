"""Hosts whose disks are full, read-only or without executables: told with the host and the folder."""

from __future__ import annotations

import dataclasses
import re

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError
from orchestrator.remote.agent_client import AgentClient
from tests.helpers.machine import PATIENCE_S
from tests.helpers.orch_runs import as_root, in_stage, light, start, wait_for, write

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.skipif(not as_root(), reason="a small disk to fill is a mount, which root alone can make"),
]

WORK = "/run/orch/small"


def soon():
    return Deadline.after(PATIENCE_S)


@pytest.fixture
def disk(up, on):
    """Mount a file system with these options, with something in it, at the work folder of a host; a client there."""
    testbed = up(2)
    made = []

    def mount(options, command="true"):
        on(
            testbed,
            "h1",
            f"mkdir -p {WORK} && mount -t tmpfs -o size=1m,mode=755 none {WORK} && cd {WORK} && {command}",
        )
        on(testbed, "h1", f"mount -o remount,{options} {WORK}")
        node = dataclasses.replace(testbed.topology.node("h1"), work=WORK)
        client = AgentClient(node, testbed.connect("h1", soon()), run="r1", holder={}, on_event=lambda _: None)
        made.append(client)
        return client

    yield mount
    for client in made:
        client.close(soon())
    on(testbed, "h1", f"umount {WORK}")


FILL = "dd if=/dev/zero of=fill bs=4096 2>/dev/null; true"


def test_a_disk_that_is_full_at_the_start_is_told_by_its_path(disk):
    client = disk("rw", FILL)
    with pytest.raises(AgentError) as caught:
        client.hello(soon())
    assert caught.value.node == "h1"
    assert caught.value.message.startswith(f"no space is left at {WORK}/r1.h1")
    assert caught.value.hint == "make room there, or name another folder in `work:`"


def test_a_disk_that_gets_full_is_told_by_its_path(disk):
    client = disk("rw")
    client.hello(soon())
    with pytest.raises(AgentError, match=f"no space is left at {WORK}/r1.h1"):
        client.put("big", bytes(2 << 20), soon())
    with pytest.raises(AgentError, match=f"no space is left at {WORK}/r1.h1"):
        client.change("rate", soon(), undo=[["true"]], apply=[["true"]])


def test_a_read_only_disk_is_told_by_its_path(disk):
    with pytest.raises(AgentError, match=rf"{WORK}/r1.h1: Read-only file system\n +remedy: .*`work`"):
        disk("ro").hello(soon())


def test_a_program_where_nothing_may_be_executed_is_not_told_as_missing(disk):
    client = disk("noexec", "echo '#!/bin/sh' >program && chmod +x program")
    client.hello(soon())
    with pytest.raises(AgentError, match="program cannot be executed: its file system is mounted noexec"):
        client.run([f"{WORK}/program"], soon())


def test_a_host_whose_disk_gets_full_in_a_window_is_named(hosts, tmp_path):
    """Its rank can say no more than that it was ready."""
    inventory, on = hosts
    on("h2", f"mkdir -p {WORK} && mount -t tmpfs -o size=1m,mode=755 none {WORK}")
    others = inventory["hosts"]
    inventory = {**inventory, "hosts": {**others, "h2": {**others["h2"], "work": WORK}}}
    experiment = light(
        testbed={"inventory": inventory},
        conditions=None,
        traffic=None,
        collect=["nic"],
        measure={"warmup": 1, "at_most": "120s"},
    )
    results = tmp_path / "results"
    process = start("run", write(tmp_path, experiment), "--results", results, "--no-report")
    wait_for(in_stage(results, "window"), 360, "the window")
    on("h2", f"cd {WORK}; {FILL}")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1, out + err
    assert re.search(r"h[12]: training-rank[01]", err)  # the other one is told first where it dies of that
    assert f"no space on h2: {WORK}/" in err
    assert "bytes free: make room there, or name another folder in `work:`" in err
    assert "Traceback" not in err.split("last output:")[0]
