"""Row 35: more ranks than threads work at once."""

from __future__ import annotations

from tests.faults.matrix import LOCAL, row
from tests.faults.scene import Scene

RANKS = 66
SCRIPT = """\
import itertools, time
for step in itertools.count():
    time.sleep(0.5)
    print(f"step {step} took 0.5 s", flush=True)
"""


@row(35, f"{RANKS} ranks", on=(LOCAL,), about_s=60)
def many_ranks(scene: Scene) -> None:
    program = scene.program("train.py", SCRIPT)
    command = {
        "argv": ["{python}", "-S", "train.py"],
        "files": [str(program)],
        "iterations": {"pattern": r"took (?P<seconds>[\d.]+) s"},
        "hosts": [f"h{1 + rank % 3}" for rank in range(RANKS)],
    }
    measure = {"warmup": 1, "iterations": 5, "at_most": "120s", "stall_timeout": "60s"}
    run = scene.run(
        scene.path(workload={"command": command}, traffic=None, collect=["nic"], measure=measure), "--force"
    )
    run.must_be_completed(within_s=240, iterations=5 * RANKS)
