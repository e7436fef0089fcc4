"""`python -m tests.fuzz [TARGET...] [--inputs N] [--seed S]`: goes on where the same commit and seed stopped."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.fuzz.campaign import Campaign
from tests.fuzz.targets import TARGETS
from tests.fuzz.trial import tried_apart

ROOT = Path(__file__).parents[2]


def _commit() -> str:
    """What is tried: the commit, and whether the sources differ from it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout.strip()


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (all)")
    parser.add_argument("--inputs", type=int, default=20_000, metavar="N", help="of all targets together (20000)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the sequence of inputs (1)")
    parser.add_argument("--folder", type=Path, default=ROOT / ".fuzz", help="for states and findings (.fuzz)")
    parser.add_argument("--file", type=Path, help="try this input alone, and tell what comes of it")
    arguments = parser.parse_args()
    unknown = set(arguments.targets) - set(TARGETS)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; accepted: {', '.join(TARGETS)}")
    return arguments


def main() -> int:
    arguments = _parsed()
    chosen = [TARGETS[name] for name in arguments.targets or TARGETS]
    if arguments.file is not None:
        outcomes = [tried_apart(target, arguments.file.read_bytes()) for target in chosen]
        for target, outcome in zip(chosen, outcomes, strict=True):
            told = outcome.wrong or f"nothing wrong, {outcome.seconds:.2f} s, {outcome.mib:.0f} MiB"
            print(f"{outcome.told}{target.name}: {told}")
        return int(any(outcome.wrong for outcome in outcomes))
    whole = sum(target.share for target in chosen)
    campaigns = [Campaign(target, arguments.seed, arguments.folder / _commit()) for target in chosen]
    for campaign in campaigns:
        campaign.carry_out(arguments.inputs * campaign.target.share // whole, lambda line: print(line, flush=True))
        print(campaign.told(), flush=True)
    return int(any(campaign.state.findings for campaign in campaigns))


if __name__ == "__main__":
    sys.exit(main())
