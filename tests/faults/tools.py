"""Rows 29 to 31 and 38: programs and ports of a host that a run needs, and processes that cannot start."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from typing import Any

from orchestrator.parts.topology import RENDEZVOUS_PORT
from tests.faults import checks
from tests.faults.breaking import no_more_processes
from tests.faults.checks import LINE
from tests.faults.interrupts import MEASURED
from tests.faults.matrix import INVENTORY, LOCAL, row
from tests.faults.running import VERDICT
from tests.faults.scene import Scene

IPERF_PORT = 15201
LISTEN = """
import socket, sys, time
listener = socket.create_server(("", int(sys.argv[1])))
print("up", flush=True)
time.sleep(3600)
"""


@row(29, "tcpdump dies in the window", variant="dies", on=(LOCAL, INVENTORY), about_s=20)
def tcpdump_dies(scene: Scene) -> None:
    run = scene.measuring(scene.path(measure={"warmup": 1, "iterations": 80, "at_most": "60s"}))
    os.kill(run.launched("tcpdump.h2"), signal.SIGTERM)
    run.must_end(3, told=": INVALID$", within_s=120, begins=VERDICT)
    scene.held(LINE, checks.line(run.said(), "ended early", begins="  - capture at h2:eth0"))
    run.must_be_home("completed", iterations=80)


@row(29, "a required capture has a filter that tcpdump does not understand", variant="filter", on=(LOCAL, INVENTORY))
def bad_filter(scene: Scene) -> None:
    run = scene.run(scene.path(collect=[{"tcpdump": {"filter": "this is no filter", "required": True}}]))
    run.must_end(1, told=r"h\d: tcpdump.h\d .*ended with status", within_s=60)
    run.must_be_home("failed")


NEEDED: dict[str, tuple[str, dict[str, Any]]] = {
    "tc": ("condition rate", {}),
    "nft": ("condition loss", {"conditions": [{"loss": {"host": "h1", "share": "1%"}}]}),
    "iptables": ("condition delay", {"conditions": [{"delay": {"host": "h1", "time": "1ms"}}]}),
    "iperf3": ("iperf", {}),
}


def program_missing(scene: Scene, program: str, needed_by: str, changes: dict[str, Any]) -> None:
    with scene.rack.hidden("h1", program):
        run = scene.run(scene.path(**changes))
        run.must_end(1, told=f"h1: {needed_by} needs program {program}", within_s=60)
    run.must_be_home("failed")


for _program, (_by, _changes) in NEEDED.items():
    _what = f"a host has no {_program}"
    row(30, _what, variant=_program, on=(INVENTORY,), about_s=8)(
        partial(program_missing, program=_program, needed_by=_by, changes=_changes)
    )


@row(30, "a host has no module that ranks need", variant="module", on=(INVENTORY,), about_s=8)
def module_missing(scene: Scene) -> None:
    inventory = scene.rack.inventory()
    inventory["hosts"]["h2"]["python"] = "/usr/bin/python3"
    training = {"ddp": {"model": "mobilenet_v2", "compute_time": "40ms", "hosts": ["h1", "h2"]}}
    run = scene.run(scene.path(testbed={"inventory": inventory}, workload=training))
    run.must_end(1, told="h2: ddp needs module torch", within_s=60)
    run.must_be_home("failed")


def port_taken(scene: Scene, port: int, host: str, told: str) -> None:
    with scene.rack.running(host, sys.executable, "-c", LISTEN, port):
        run = scene.run()
        run.must_end(1, told=told, within_s=180)
    run.must_be_home("failed")


row(31, "the port of the cross traffic is taken on a host", variant="traffic", on=(INVENTORY,), about_s=15)(
    partial(port_taken, port=IPERF_PORT, host="h3", told=f"h3: .*{IPERF_PORT}")
)
row(31, "the port of a rank is taken on a host", variant="rank", on=(INVENTORY,), about_s=15)(
    partial(port_taken, port=RENDEZVOUS_PORT, host="h2", told=r"h2: training-rank1")
)


@row(38, "no process and no thread can start any more, before tables are made", on=(LOCAL, INVENTORY), root=True)
def no_process_starts(scene: Scene) -> None:
    run = scene.measuring()
    with no_more_processes(run.process.pid):
        run.interrupt()
        run.must_end(130, told="stopped by SIGINT", within_s=120)
    run.must_be_safe("interrupted")


@row(38, "no process can start any more when a run is over", variant="measured", on=(INVENTORY,), root=True)
def no_process_starts_measured(scene: Scene) -> None:
    run = scene.measuring(scene.path(**{**MEASURED, "measure": {"warmup": 1, "iterations": 60, "at_most": "60s"}}))
    with no_more_processes(run.process.pid):
        run.must_end(1, told="no process starts|could not be made", within_s=120)
    run.must_be_safe("failed")
