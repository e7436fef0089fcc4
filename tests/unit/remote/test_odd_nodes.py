"""Nodes that lack what an agent takes for granted: room, a new Python, lines that end, short names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError, OrchError
from orchestrator.parts.launch import Launch
from orchestrator.remote.events import LineRead
from orchestrator.testbed.inventory import Name
from tests.helpers.machine import PATIENCE_S

RUN = "20261122T064320123-0123abcd"
OLD = """#!/bin/sh
exec {python} -I -c 'import sys; sys.version_info = (3, 6, 8, "final", 0); exec(sys.argv[1])' "$3"
"""
NO_FILES = """#!/bin/sh
ulimit -f 0
exec {python} "$@"
"""
ENDLESS = r"""
with open("log", "wb") as file:
    for _ in range(256): file.write(bytes(1 << 18))
    file.write(b"\nend\n")
"""


def soon() -> Deadline:
    return Deadline.after(PATIENCE_S)


def script(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(text.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


def test_a_python_that_is_too_old_is_told_with_what_would_mend_it(connect_agent, tmp_path):
    client = connect_agent(hello=False, python=script(tmp_path, OLD))
    with pytest.raises(OrchError) as caught:
        client.hello(soon())
    assert caught.value.tail == "Python 3.6 is too old: the agent needs 3.8"
    assert "install Python 3.8 or later on the node" in caught.value.hint


def test_a_command_gets_its_input_where_no_file_can_be_written(connect_agent, tmp_path):
    """As where /tmp is full, or read-only."""
    client = connect_agent(hello=False, python=script(tmp_path, NO_FILES))
    text = b"x" * 3_000_000
    assert client.run(["wc", "-c"], soon(), stdin=text).stdout.strip() == "3000000"
    assert client.run(["true"], soon(), stdin=text).status == 0, "nobody reads it"
    assert client.run(["wc", "-c"], soon()).stdout.strip() == "0"
    with pytest.raises(AgentError, match="no program named"):
        client.run(["orch-no-such-program"], soon(), stdin=text)
    assert client.run(["head", "-c", "5"], soon(), stdin=text).stdout == "xxxxx"


def test_a_line_without_end_costs_little_memory(connect_agent):
    """What a JSON text spells with six characters a byte is the worst."""
    client = connect_agent()
    status = Path(f"/proc/{client.channel.pid}/status")
    before = most_memory(status)
    client.start(Launch(name="p", node="n1", role="rank", argv=(sys.executable, "-c", ENDLESS), follow="log"), soon())
    client.await_event(lambda event: isinstance(event, LineRead) and event.text == "end")
    assert most_memory(status) - before < 8 << 20


def most_memory(status: Path) -> int:
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def test_the_longest_name_of_a_host_has_room_in_every_name_that_is_made_of_it(connect_agent):
    name = "h" * 63
    assert TypeAdapter(Name).validate_python(name) == name
    assert connect_agent(name=name, run=RUN).node.name == name
    with pytest.raises(ValidationError, match="not a name"):
        TypeAdapter(Name).validate_python(name + "h")
