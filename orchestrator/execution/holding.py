"""Keep hosts of this machine, or a cluster of Slurm on it, up for a person to try things by hand (`orch testbed`)."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orchestrator.core import lock
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import ConfigError, Interrupted
from orchestrator.core.exitcodes import Exit
from orchestrator.core.interrupts import Interrupts
from orchestrator.core.opendata import YamlMapping
from orchestrator.core.units import Mistake
from orchestrator.execution import phases, session
from orchestrator.execution.execute import patiently
from orchestrator.execution.observers.progress import Progress
from orchestrator.experiment import testbeds
from orchestrator.testbed.local.local_spec import LocalTestbed
from orchestrator.testbed.local.netns import NetnsTestbed
from orchestrator.testbed.slurm.cluster import LOGIN, LocalCluster

SLURM_EXAMPLE = "playbooks/experiments/slurm.yaml"


def hold_testbed(asked: YamlMapping, *, slurm: bool = False, wait_s: float, orch: Sequence[str]) -> Exit:
    """Keep a local testbed, as an experiment would ask for it, up until Ctrl-C and say how to reach its hosts.

    With `slurm` they are the nodes of a cluster, and one more to log in to. `wait_s` is the time to wait where another
    process holds the machine's testbeds, `orch` the command line by which to call orch there.
    """
    try:
        local = LocalTestbed.model_validate(dict(asked))
    except ValidationError as error:
        raise ConfigError("\n".join(dict.fromkeys(map(_option_told, error.errors())))) from None
    hold = partial(_hold_cluster, orch=orch) if slurm else _hold
    patiently(lambda: hold(local), wait_s=wait_s, retry_s=testbeds.LOCAL_RETRY_S, progress=Progress())
    return Exit.OK


def _option_told(item: ErrorDetails) -> str:
    """Return a mistake of the testbed's model as one of the option that the value came from."""
    mistake = item.get("ctx", {}).get("error")
    at = item["loc"] or (mistake.at if isinstance(mistake, Mistake) else ())
    return f"--{at[0]}: {item['msg'].removeprefix('Value error, ')}"


def _hold(local: LocalTestbed) -> None:
    run_id = f"testbed-{time.time_ns()}"
    testbed = NetnsTestbed(testbeds.local_spec(local), run_id)
    with _alone(run_id, testbed.close):
        folder = testbed.ssh_proxy().folder  # it goes when this process does, or when the next one comes
        testbed.open(folder / "nodes", Deadline.after(phases.OPEN_S))
        _stay(testbed, folder)


def _hold_cluster(local: LocalTestbed, *, orch: Sequence[str]) -> None:
    run_id = f"testbed-{time.time_ns()}"
    cluster = LocalCluster(len(local.names), link_bps=local.link, run_id=run_id)
    with _alone(run_id, cluster.close):
        folder = cluster.testbed.ssh_proxy().folder
        cluster.open(folder / "nodes", Deadline.after(session.opening_s(len(local.names)) + phases.OPEN_S))
        print(f"{len(cluster.nodes)} nodes of Slurm, idle after {cluster.idle_s:.1f} s. Try, from another terminal:")
        login = ["ssh", "-t", "-F", str(folder / "ssh_config"), LOGIN]
        run = shlex.join([*orch, "run", SLURM_EXAMPLE])
        here = f"cd {shlex.quote(str(Path.cwd()))} &&"
        for line in ("sinfo", f"salloc --nodes 4 {run}", f"{run} --sbatch --nodes 4 --wait"):
            print(f"  {shlex.join([*login, f'{here} {line}'])}")
        _stay(cluster.testbed, folder)


@contextmanager
def _alone(run_id: str, close: Callable[[], None]) -> Iterator[None]:
    """Hold the machine's lock of local testbeds until Ctrl-C or an error, then `close`."""
    with Interrupts(), lock.machine(lock.local_testbed(), session.holder(run_id)):
        try:
            yield
        except Interrupted:
            return
        finally:
            close()


def _stay(testbed: NetnsTestbed, folder: Path) -> None:
    """Say how each host is reached, and wait for a signal."""
    for host in testbed.topology.hosts:
        print(f"{host.name}  {host.address}  ssh -F {folder}/ssh_config {host.name}")
    print("up; Ctrl-C puts it down", flush=True)
    while True:
        signal.pause()
