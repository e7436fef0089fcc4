"""Verify a testbed: ask its hosts, carry out the measurements one after the other, and judge every claim."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.analysis.compare import regression, selection
from orchestrator.analysis.compare.regression import DEFAULT, Pair, PointChange
from orchestrator.analysis.compare.selection import Chosen
from orchestrator.core import lock
from orchestrator.core.errors import ConfigError, Interrupted, LockedError, OrchError, ShortOfLoad
from orchestrator.core.exitcodes import Exit
from orchestrator.core.interrupts import Interrupts
from orchestrator.core.opendata import JsonObject, YamlMapping
from orchestrator.core.units import duration_text
from orchestrator.execution import execute
from orchestrator.execution.run_options import RunOptions
from orchestrator.execution.session import holder
from orchestrator.experiment import loading, opening, plan, testbeds
from orchestrator.experiment.documents import Document
from orchestrator.experiment.experiment import Experiment, TestbedChoice
from orchestrator.parts.launch import Requirement
from orchestrator.parts.topology import Topology
from orchestrator.remote.agent_client import Finding
from orchestrator.report.runs import Run
from orchestrator.store import rundir
from orchestrator.testbed.inventory import Inventory
from orchestrator.testbed.local.local_spec import LocalTestbed
from orchestrator.verify import claims, experiments, survey, undoing
from orchestrator.verify.claims import Claim, DeviceSeen, Evidence, Judged, Ran, Undone
from orchestrator.verify.experiments import Measurement
from orchestrator.verify.survey import Survey

VERIFY = "verify"
LOCAL = "local"
LOCAL_TESTBED: YamlMapping = {"hosts": 3, "link": "25gbit", "scale": 100}
MOST_S = 1500.0  # after which no further run begins
OF_DEVICES = r"^([a-z0-9_]+|(ethtool|rdma)\..+)$"  # counters that the collector `nic` reads
MOST_TOLD = 3  # of what hosts lack


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Every claim with its judgement, and what they rest on; `began_ns` and `seconds` say when and how long."""

    testbed: str  # as its owner calls it
    topology: Topology
    quick: bool
    began_ns: int
    seconds: float
    evidence: Evidence
    judged: tuple[tuple[Claim, Judged], ...]
    interrupted: bool = False

    def of(self, verdict: claims.Verdict) -> list[tuple[Claim, Judged]]:
        """Return the claims with this verdict."""
        return [(claim, one) for claim, one in self.judged if one.verdict == verdict]

    @property
    def status(self) -> Exit:
        """The exit code: BROKEN where a claim is, INCONCLUSIVE where none was judged."""
        if self.interrupted:
            return Exit.INTERRUPTED
        if self.of("broken"):
            return Exit.BROKEN
        return Exit.OK if self.of("held") else Exit.INCONCLUSIVE


def testbed_of(target: str) -> TestbedChoice:
    """Return the testbed that a command names: of this machine, of an inventory, or of an experiment."""
    if target == LOCAL:
        return TestbedChoice(local=LocalTestbed.model_validate(LOCAL_TESTBED))
    found = opening.inventory_or_experiment(Path(target))
    return TestbedChoice(inventory=found) if isinstance(found, Inventory) else found.testbed


def chosen(only: Sequence[str]) -> tuple[Claim, ...]:
    """Return the claims of these names, or all; ConfigError for a name of none."""
    every = claims.claims()
    known = [claim.name for claim in every]
    for name in only:
        if name not in known:
            raise ConfigError(f"--only {name}: no such claim; accepted: {', '.join(known)}")
    return tuple(claim for claim in every if not only or claim.name in only)


def verify(target: str, options: RunOptions, *, quick: bool, only: Sequence[str] = ()) -> Verified:
    """Measure on a testbed what these claims rest on, or all claims, and judge them.

    A signal ends the measuring: what was measured until then is judged. LockedError where somebody else holds the
    testbed for longer than is waited for.
    """
    began, began_ns, asked = time.monotonic(), time.time_ns(), chosen(only)
    choice = testbed_of(target)
    topology = testbeds.place(choice).topology
    wanted = {name for claim in asked for name in claim.rests}
    extent = experiments.QUICK if quick else experiments.FULL
    measured = [one for one in experiments.measurements(topology, extent) if one.name in wanted]
    work = _Work(choice, topology, options, until=began + MOST_S, file=target)
    with Interrupts() as interrupts:
        work.carry_out(measured)
        interrupts.unwinding()  # what was measured is judged whatever comes
        evidence = work.evidence()
    return Verified(
        testbed=target,
        topology=topology,
        quick=quick,
        began_ns=began_ns,
        seconds=time.monotonic() - began,
        evidence=evidence,
        judged=tuple((claim, claim.judge(evidence)) for claim in asked),
        interrupted=work.interrupted,
    )


class _Work:
    """The measurements of one testbed: planned, then made, then read."""

    def __init__(
        self, choice: TestbedChoice, topology: Topology, options: RunOptions, *, until: float, file: str
    ) -> None:
        self._choice = choice
        self._topology = topology
        self._options = options
        self._until = until  # on the monotonic clock
        self._file = file
        self._planned: dict[str, Experiment] = {}
        self._ran: dict[str, Ran] = {}
        self._paths: dict[str, list[Path]] = {}
        self._survey = Survey(hosts=(), facts={}, lacking={})
        self._undone: Undone | None = None
        self.interrupted = False

    def carry_out(self, measured: Sequence[Measurement]) -> None:
        """Ask the hosts and make every measurement; an interrupt ends that, and is why those without a run lack it."""
        try:
            self.ask(measured)
            for one in experiments.in_order(measured):
                self.measure(one.name)
        except Interrupted:
            self.interrupted = True
            for name in [one.name for one in measured]:
                ran = self._ran.get(name, Ran())
                if not ran.manifests and not ran.code:
                    self._ran[name] = replace(ran, code="interrupted", why="interrupted")

    def ask(self, measured: Sequence[Measurement]) -> None:
        """Plan every measurement, ask the hosts for what they need, and note which cannot be made there, and why."""
        needs: dict[str, tuple[Requirement, ...]] = {}
        for one in measured:
            try:
                self._planned[one.name] = self._experiment(one.data)
                needs[one.name] = plan.single(self._planned[one.name], 1).requirements
            except ConfigError as error:
                self._ran[one.name] = Ran(code="refused", why=error.message)
        every = tuple(dict.fromkeys(need for some in needs.values() for need in some))
        self._options.progress.say(f"asking {len(self._topology.hosts)} hosts")
        self._survey = self._asked(every)
        lacking = self._survey.lacking
        for one in measured:
            missing = [lacking[need] for need in needs.get(one.name, ()) if need in lacking]
            if one.name in needs:
                self._look_at(one, missing)

    def _asked(self, needs: Sequence[Requirement]) -> Survey:
        """Ask the hosts while nobody else has those of this machine."""
        place = testbeds.place(self._choice)
        local = self._topology.kind == "local"

        def ask() -> Survey:
            with lock.machine(lock.local_testbed(), holder(VERIFY)) if local else nullcontext():
                return survey.ask(place.made(VERIFY), self._topology, needs, self._options.progress.say)

        wait_s, progress = self._options.wait_s, self._options.progress
        return execute.patiently(ask, wait_s=wait_s, retry_s=place.retry_s, progress=progress)

    def _look_at(self, one: Measurement, missing: Sequence[Finding]) -> None:
        """Note why a measurement cannot be made, if so; a collector that hosts may lack is left out of it."""
        silent = [host.host for host in self._survey.hosts if host.trouble]
        parts = {finding.requirement.needed_by for finding in missing}
        if silent:
            self._ran[one.name] = Ran(code="unreached", why=f"{', '.join(silent)}: not reached")
        elif not missing:
            self._ran[one.name] = Ran()
        elif not parts <= set(experiments.OPTIONAL):
            self._ran[one.name] = replace(_lacking(missing), code="lacking")
        else:
            collect = [entry for entry in one.data["collect"] if not parts & set(entry)]
            self._planned[one.name] = self._experiment({**one.data, "collect": collect})
            self._ran[one.name] = _lacking(missing)

    def _experiment(self, data: YamlMapping) -> Experiment:
        """Return the experiment of this data on the testbed; ConfigError where it does not fit that."""
        testbed = self._choice.model_dump(mode="json", by_alias=True, exclude_none=True)
        document = Document(f"verify {self._file}", {**data, "testbed": testbed}, None)
        return loading.fit(loading.validated(document, ()), document, local=False)

    def measure(self, name: str) -> None:
        """Carry a measurement out once, if hosts can and the time is not over."""
        known = self._ran[name]
        if known.code:
            return
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            self._ran[name] = known if known.manifests else replace(known, code="out of time", why="out of time")
            return
        self._options.progress.say(f"{name} (no run begins later than {duration_text(round(left_s))} from now)")
        try:
            if name == experiments.UNDO:
                self._kill(name)
            else:
                self._run(name, known)
        except (Interrupted, LockedError):
            raise
        except OrchError as error:
            self._ran[name] = replace(known, code="refused", why=error.message)

    def _run(self, name: str, known: Ran) -> None:
        """Carry a measurement out, again where other work keeps a claim that rests on it from being judged."""
        for _ in range(experiments.TRIES):
            (outcome,) = execute.last_tries(execute.carry_out(self._planned[name], self._options))
            short = str(outcome.error) if isinstance(outcome.error, ShortOfLoad) else ""
            self._ran[name] = replace(known, manifests=(*known.manifests, outcome.manifest), short=short)
            if isinstance(outcome.error, Interrupted) or not self._spoilt(name):
                break
        self._paths.setdefault(name, []).append(outcome.path)
        if isinstance(outcome.error, Interrupted):
            raise outcome.error

    def _spoilt(self, name: str) -> bool:
        """Return whether a claim that rests on this measurement alone is broken beside other work."""
        so_far, resting = self._of_gates(), (claim for claim in claims.claims() if claim.rests == (name,))
        return any(claim.judge(so_far).code == "disturbed" for claim in resting)

    def _kill(self, name: str) -> None:
        found = undoing.killed(
            self._planned[name], self._options.results, self._survey.facts, wait_s=self._options.wait_s, file=self._file
        )
        self._undone = found

    def evidence(self) -> Evidence:
        """Read what was measured."""
        return replace(self._of_gates(), devices=self._devices(), undone=self._undone, overhead=self._overhead())

    def _of_gates(self) -> Evidence:
        """Return what claims rest on that gates judge."""
        return Evidence(
            hosts=self._survey.hosts,
            gpu_hosts=sum(host.gpus > 0 for host in self._topology.hosts),
            rdma=any(host.rdma for host in self._topology.hosts),
            ran=self._ran,
        )

    def _devices(self) -> tuple[DeviceSeen, ...]:
        """Return the devices of which counters were sampled beside captures, else beside loads."""
        for name in (experiments.CAPTURES, experiments.LOAD):
            for path in self._paths.get(name, []):
                if found := _counted(Run(path), self._survey.facts):
                    return found
        return ()

    def _overhead(self) -> PointChange | None:
        """Compare iterations with collectors and without; None where there are no valid ones of both."""
        sides = [
            selection.of_entries([rundir.opened(path) for path in self._paths.get(name, [])], name=name)
            for name in (experiments.BARE, experiments.COLLECTED)
        ]
        return compared(sides[0], sides[1])


def compared(bare: Chosen, collected: Chosen) -> PointChange | None:
    """Compare the only points of two sides; None where one of them has no valid iterations."""
    if not bare.points or not collected.points:
        return None
    (first,), (second,) = bare.points.values(), collected.points.values()
    margin = {**DEFAULT.margin, "mean": claims.MOST_OVERHEAD, "p50": claims.MOST_OVERHEAD}
    (change,) = regression.compare([Pair(point="iterations", a=first, b=second)], replace(DEFAULT, margin=margin))
    return change


def _counted(run: Run, facts: Mapping[str, JsonObject]) -> tuple[DeviceSeen, ...]:
    """Return each device of the data plane with the counters that were sampled of it."""
    rows = run.counter_rows(OF_DEVICES).group_by(["node", "port", "counter"]).aggregate([]).to_pylist()
    found = []
    for host in run.hosts:
        for device in host.devices:
            names = frozenset(row["counter"] for row in rows if (row["node"], row["port"]) == (host.name, device))
            driver = survey.driver(facts.get(host.name, {}), device, host.devices[0])
            if any(row["node"] == host.name for row in rows):
                found.append(DeviceSeen(host=host.name, device=device, driver=driver, counters=names))
    return tuple(found)


def _lacking(missing: Sequence[Finding]) -> Ran:
    """Return why runs lack something, or are not made: what hosts lack, with the first remedy."""
    words = list(dict.fromkeys(f"{one.requirement.node} lacks {one.requirement.what}" for one in missing))
    lack = dict.fromkeys(
        one.requirement.what for one in missing if one.requirement.kind in ("program", "module", "privilege")
    )
    more = f" and {len(words) - MOST_TOLD} more" if len(words) > MOST_TOLD else ""
    remedy = missing[0].requirement.remedy
    return Ran(why=f"{', '.join(words[:MOST_TOLD])}{more}; remedy: {remedy}", lack=tuple(lack))
