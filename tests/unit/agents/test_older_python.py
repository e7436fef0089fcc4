"""An agent under another Python than ours: PyPy, whose language and modules are those of 3.9."""

from __future__ import annotations

import shutil

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.parts.launch import Launch, Line
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.transport.local import LocalChannel

PYPY = shutil.which("pypy3")


def soon():
    return Deadline.after(120)


@pytest.mark.skipif(PYPY is None, reason="pypy3 is not installed")
def test_an_agent_under_pypy_does_what_a_run_asks_of_it(tmp_path):
    node = Node(name="n1", work=str(tmp_path / "work"))
    client = AgentClient(node, LocalChannel(PYPY), run="older", holder={}, on_event=lambda _: None)
    launch = Launch(name="p", node="n1", role="rank", argv=("sh", "-c", "echo ready; sleep 600"), ready=Line("ready"))
    try:
        assert client.hello(soon()).python.startswith("3.")
        client.change("it", soon(), undo=[["true"]], apply=[["true"]])
        client.start(launch, soon())
        assert client.processes(soon())
        client.stop(launch, soon())
        client.undo("it", soon())
        assert {"p/stdout", "p/stderr"} <= {file.path for file in client.files(soon())}
        client.remove(soon())
    finally:
        client.close(soon())
