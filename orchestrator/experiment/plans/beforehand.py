"""What keeps runs from starting, or will make them slow, as far as that shows before anything starts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.core.errors import MissingRequirement, TestbedError
from orchestrator.core.exitcodes import Exit
from orchestrator.core.machines import machine
from orchestrator.core.machines.machine import Machine
from orchestrator.core.unwind import add_note
from orchestrator.experiment.plans import capacity, missing
from orchestrator.experiment.plans.capacity import Verdict
from orchestrator.experiment.plans.missing import Lack
from orchestrator.experiment.plans.plan import RunPlan
from orchestrator.parts import secret_env


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What this machine lacks; in what it is too small; what will merely be slow."""

    lacking: tuple[Lack, ...] = ()
    room: Verdict = field(default_factory=Verdict)

    @property
    def lines(self) -> list[str]:
        """A line for each thing, for people."""
        lines = [f"missing: {lack.what}; remedy: {lack.remedy}" for lack in self.lacking]
        lines += [f"too small: {line}" for line in self.room.refused]
        return lines + [f"warning: {line}" for line in self.room.warnings]

    def refuse(self, *, force: bool) -> None:
        """Raise one error with all that keeps runs from starting; what is too small does not where it is forced."""
        errors: list[TestbedError] = [MissingRequirement(lack.what, hint=lack.remedy) for lack in self.lacking]
        errors += [TestbedError(line) for line in (() if force else self.room.refused)]
        if errors:
            for other in errors[1:]:
                add_note(errors[0], other.message + (f"; remedy: {other.hint}" if other.hint else ""))
            raise errors[0]


def look(plans: Iterable[RunPlan]) -> Findings:
    """Hold runs on containers of this machine against it; of hosts elsewhere nothing is known before they are asked."""
    runs = list(plans)
    found = secret_env.lacking(launch for plan in runs for launch in plan.launches())
    lacking = [Lack(what=what, remedy=remedy) for what, remedy in found]
    local = [plan for plan in runs if plan.topology.kind == "local"]
    if not local:
        return Findings(lacking=tuple(lacking))
    hosts = dict.fromkeys((plan.topology.runtime, plan.topology.image) for plan in local)
    missed = [lack for runtime, image in hosts for lack in _missing(local, runtime, image)]
    return Findings(lacking=(*dict.fromkeys(missed), *lacking), room=_room(local, machine.local()))


def _missing(plans: Sequence[RunPlan], runtime: str, image: str) -> list[Lack]:
    """What those of the plans lack whose hosts this runtime makes of this image."""
    alike = [plan for plan in plans if (plan.topology.runtime, plan.topology.image) == (runtime, image)]
    return missing.on(alike[0].topology, dict.fromkeys(need for plan in alike for need in plan.requirements))


def settle(plans: Iterable[RunPlan], *, force: bool, say: Callable[[str], None]) -> tuple[str, ...]:
    """Raise what keeps runs from starting, and say what will be slow; gives what speaks against them all the same.

    That is none unless `force` starts them on a machine that is too small.
    """
    findings = look(plans)
    findings.refuse(force=force)
    for line in (*findings.room.refused, *findings.room.warnings):
        say(f"  warning: {line}")
    return findings.room.refused


def tell(plans: Iterable[RunPlan]) -> int:
    """Print what `settle` would raise or say on standard error; 1 where this machine is too small, else 0."""
    findings = look(plans)
    for line in findings.lines:
        print(line, file=sys.stderr)
    return Exit.FAILED if findings.room.refused else Exit.OK


def of_hosts(plan: RunPlan, machines: Mapping[str, Machine]) -> Verdict:
    """Hold a run against the hosts of an inventory, each for itself."""
    verdicts = {
        node: capacity.judge(capacity.need(plan, [node], controller=False), one, scales=False)
        for node, one in machines.items()
    }
    return Verdict(
        refused=tuple(f"{node}: {line}" for node, verdict in verdicts.items() for line in verdict.refused),
        warnings=tuple(f"{node}: {line}" for node, verdict in verdicts.items() for line in verdict.warnings),
    )


def _room(plans: Sequence[RunPlan], found: Machine) -> Verdict:
    verdicts = [
        capacity.judge(
            capacity.need(plan, [node.name for node in plan.topology.nodes], controller=True), found, scales=True
        )
        for plan in plans
    ]
    return Verdict(
        refused=tuple(dict.fromkeys(line for verdict in verdicts for line in verdict.refused)),
        warnings=tuple(dict.fromkeys(line for verdict in verdicts for line in verdict.warnings)),
    )
