"""Experiment files that tests start from."""

from __future__ import annotations

import contextlib
import io

from orchestrator.cli.main import main

GOOD = """\
name: t
testbed:
  local: {hosts: 3, link: 1gbit, scale: 10}
workload:
  ddp: {model: resnet50}
traffic:
  - iperf: {from: h1, to: h2, load: 200mbit}
collect: [tcpdump, nic]
measure:
  iterations: 10
"""
LOCAL = "local: {hosts: 3, link: 1gbit, scale: 10}"
IPERF = "  - iperf: {from: h1, to: h2, load: 200mbit}\n"
WORKLOAD = "workload:\n  ddp: {model: resnet50}\n"


def changed(old: str, new: str) -> str:
    """The good experiment with one thing replaced."""
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


def orch(*argv: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(argv))
    return status, out.getvalue(), err.getvalue()
