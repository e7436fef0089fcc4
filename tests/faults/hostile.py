"""Row 36: a host whose agent is not ours."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from orchestrator.remote.transport import bootstrap
from tests.faults import checks
from tests.faults.checks import LINE
from tests.faults.matrix import INVENTORY, row
from tests.faults.scene import Scene

GREETING = b"\0orch-agent 1\n"
SAID = {
    "list": GREETING + (2).to_bytes(4, "big") + b"[]",
    "length": GREETING + b"\xff" * 8,
    "noise": b"Welcome!\n" * 20000,
}
# In place of a host's Python. The first says this to whoever wants an agent, and stays; the second takes the agent's
# source as Python would, and becomes another agent.
SPEAKING = """\
import sys
sys.stdout.buffer.write({said!r})
sys.stdout.flush()
sys.stdin.buffer.read()
"""
BECOMING = """\
import os, sys, zlib
if "-c" not in sys.argv[1:3]:  # a rank
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
stream = sys.stdin.buffer
stream.read(int(stream.readline().split()[-1]))
exec(compile(zlib.decompress({source!r}), "orch-agent", "exec"))
"""
LISTING = """
_listing = Files.listing
Files.listing = lambda self: _listing(self)._replace(files=[*_listing(self).files, RunFile({path!r}, 3)])
"""


def listing(path: str) -> str:
    """What becomes an agent that lists a file which it has not."""
    modules = bootstrap.agent_modules()
    modules["files"] += LISTING.format(path=path)
    source = bootstrap.packed(modules).partition(b"\n")[2]
    return BECOMING.format(python=sys.executable, source=source)


def with_python(scene: Scene, program: str) -> dict[str, Any]:
    """The inventory, with this program in place of the second host's Python."""
    path = scene.program("python", f"#!{sys.executable} -I\n{program}")
    inventory = scene.rack.inventory()
    inventory["hosts"]["h2"]["python"] = str(path)
    return {"inventory": inventory}


def garbage(scene: Scene, said: bytes) -> None:
    run = scene.run(scene.path(testbed=with_python(scene, SPEAKING.format(said=said))))
    run.must_end(1, told="h2: ", within_s=60)
    run.must_be_home("failed")


for _variant, _said in SAID.items():
    row(36, f"a host's agent says garbage: {_variant}", variant=_variant, on=(INVENTORY,), about_s=8)(
        partial(garbage, said=_said)
    )


@row(36, "a host's agent lists a file outside of its folder", variant="paths", on=(INVENTORY,), about_s=15)
def paths(scene: Scene) -> None:
    """All else comes home, nothing is written elsewhere; what the host keeps is given up by name."""
    run = scene.measuring(scene.path(testbed=with_python(scene, listing("../../../../escaped"))))
    run.interrupt()
    run.must_end(130, told="stopped by SIGINT", within_s=60)
    scene.held(LINE, checks.mention("\n".join(run.manifest()["notes"]), "h2: .*escaped .*refused.* did not come home"))
    assert not [*scene.folder.rglob("escaped")], "it was written elsewhere"
    run.must_be_home("interrupted", iterations=6)
    assert run.manifest()["given_up"] == ["h2"]
    scene.clean("--data")
