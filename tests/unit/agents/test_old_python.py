"""What is sent to hosts runs on the Python that they have, from 3.8 on; an older one is refused with a remedy.

Interpreters are found where pyenv, distributions and `ORCH_AGENT_PYTHON` put them. Where a machine has none but its
own, that is tried; what else there is of Python 3.8 is held against its grammar.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import TransportError
from orchestrator.core.machines.remedies import remedy
from orchestrator.parts.launch import Exited, Launch, Line, Requirement

ROOT = Path(__file__).parents[3]
OURS = "bounds.py"  # of answers: it lies with the agent, and the controller alone imports it
SENT = [
    path
    for folder in ("orchestrator/agents", "cross_traffic/agents")
    for path in ROOT.glob(f"{folder}/**/*.py")
    if path.name != OURS
]
LEAST = (3, 8)
OPTIONAL = {"gufo"}  # packages that a program says are missing, where they are


def version(python: str) -> tuple[int, int] | None:
    """Of an interpreter; None where there is none: pyenv's shims are there for versions that are not chosen."""
    asked = [python, "-c", "import sys; sys.stdout.write('%d %d' % sys.version_info[:2])"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return None if done.returncode else tuple(map(int, done.stdout.split()))  # type: ignore[return-value]


def interpreters() -> dict[tuple[int, int], str]:
    """One of each version that this machine has, its own among them."""
    places = [sys.executable, os.environ.get("ORCH_AGENT_PYTHON")]
    places += [shutil.which(f"python3.{minor}") for minor in range(6, sys.version_info.minor)]
    places += map(str, Path("~/.pyenv/versions").expanduser().glob("*/bin/python"))
    found = {version(place): place for place in places if place}
    return {which: place for which, place in found.items() if which is not None}


ALL = interpreters()
ABLE = [place for which, place in sorted(ALL.items()) if which >= LEAST]


def soon() -> Deadline:
    return Deadline.after(60)


@pytest.mark.parametrize("python", ABLE)
def test_an_agent_does_its_work(connect_agent, python, tmp_path):
    client = connect_agent(python=python, hello=False)
    greeting = client.hello(soon())
    assert tuple(map(int, greeting.python.split(".")[:2])) == version(python)
    wants = [
        ("program", "sh"),
        ("module", "json"),
        ("privilege", "CAP_NET_ADMIN"),
        ("device", "lo"),
        ("mtu", "9 on lo"),
    ]
    needs = [Requirement(node="n1", kind=kind, what=what, remedy="", needed_by="") for kind, what in wants]
    found = client.check(needs, soon())
    assert [finding.found for finding in found][:2] == [True, True]
    shell = Launch(
        name="sh", node="n1", role="collector", argv=("sh", "-c", "echo up; exec sleep 600"), ready=Line("up")
    )
    client.start(shell, soon())
    soon().poll(  # while it becomes another program it has no name
        lambda: [process.name for process in client.processes(soon())] == ["sh"], every_s=0.05, waiting_for="its name"
    )
    assert client.stop(shell, soon()).was_over is False
    assert client.run(["cat"], soon(), stdin=b"told").stdout == "told"
    client.change("one", soon(), undo=[("true",)], apply=[("true",)])
    client.undo("one", soon())
    ended = Launch(name="end", node="n1", role="collector", argv=("true",), ready=Exited(), lives=False)
    client.start(ended, soon())
    (listed, *_) = [file for file in client.files(soon()) if file.path == "sh/stdout"]
    client.fetch(listed, tmp_path, soon())
    assert (tmp_path / "sh/stdout").read_text() == "up\n"
    client.remove(soon())


@pytest.mark.parametrize("python", ABLE)
def test_what_is_sent_beside_it_is_understood(python):
    """Each file compiles, and what it imports is there."""
    program = (
        "import ast, importlib, sys\n"
        f"OPTIONAL = {OPTIONAL}\n"
        "for path in sys.argv[1:]:\n"
        "    tree = ast.parse(open(path).read(), path)\n"
        "    compile(tree, path, 'exec')\n"
        "    for node in ast.walk(tree):\n"
        "        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []\n"
        "        if isinstance(node, ast.ImportFrom) and not node.level:\n"
        "            if node.module.split('.')[0] in OPTIONAL: continue\n"
        "            found = importlib.import_module(node.module)\n"
        "            assert all(hasattr(found, alias.name) for alias in node.names), (path, node.module)\n"
        "        for name in names: importlib.import_module(name)\n"
    )
    beside = ":".join(str(ROOT / folder) for folder in ("orchestrator/agents", "orchestrator/agents/agent"))
    env = {**os.environ, "PYTHONPATH": beside}  # what is sent to the same folder
    argv = [python, "-c", program, *map(str, SENT)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", SENT, ids=lambda path: path.stem)
def test_it_keeps_to_the_grammar_of_the_oldest(path):
    ast.parse(path.read_text(), feature_version=LEAST)


REFUSED = {(3, 6): "Python 3.6 is too old: the agent needs 3.8", (2, 7): "Unknown option: -I"}


@pytest.mark.parametrize("which", REFUSED)
def test_one_that_is_too_old_is_told_with_a_remedy(connect_agent, which):
    """By what it says, and by itself where this machine has it."""
    told = "install Python 3.8 or later on the node, or set `python` to its path"
    assert remedy(REFUSED[which]) == told
    if which in ALL:
        with pytest.raises(TransportError) as caught:
            connect_agent(python=ALL[which])
        assert REFUSED[which] in str(caught.value.tail)
        assert caught.value.hint == told
