"""The command that foretells: `orch predict`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli import options
from orchestrator.cli.commands import Group
from orchestrator.core.errors import ConfigError
from orchestrator.core.exitcodes import Exit, gravest

if TYPE_CHECKING:
    from orchestrator.predict.foreseeing import How
    from orchestrator.predict.foreseentext import ForeseenSetting
    from orchestrator.predict.learned import Learned
    from orchestrator.predict.network_costs import Costs
    from orchestrator.predict.predicttext import PredictedSetting
    from orchestrator.predict.whatif import Setting

_MORE = """\
Simulates every window of the file with the very flows that its cross traffic
will send. Of ddp (emulated compute) and ptd without cross traffic the terms of
Li's model stand beside it. Compute times come from the file, or of
real compute from runs in the results folder, as does what a training takes
beside all costs where one like it was measured alone; costs of messages come
from runs of `collective` in the results folder, or are assumed. Each is listed
with its source. KEY of --what-if is a path as for --set, an option of
the workload (mapping, bucket, batch, ...), or
  link         the rate of all links, such as 100gbit
  accelerator  peak rate and the share of it that is used, such as 71tflops@30%;
               they give the compute time
  ptd          p x t x d with the same samples, such as 2x2x2, or all that fit
Over several loads the congestion point is told."""


def register(group: Group) -> None:
    """Add `orch predict`."""
    predict = group.add(
        "predict",
        "predict how long iterations take beside cross traffic, by simulation, and what measured runs took",
        action=_predict,
        example="orch predict exp.yaml --what-if traffic.0.websearch.load=0gbit,8gbit,16gbit",
        more=_MORE,
    )
    _options(predict)


def _options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch predict`."""
    options.experiment(parser, "an experiment file")
    options.results(parser)
    parser.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="KEY=VALUE[,VALUE...]",
        dest="what_if",
        help="predict with these values, too; if repeated, with every combination of them",
    )
    parser.add_argument(
        "--inputs",
        action="append",
        default=[],
        metavar="RUN",
        help="fit the costs of communication to this run of `collective`, or take compute times from this training "
        "(default: all of them on a testbed like this)",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="SOURCE",
        help="predict as if this source of cross traffic, or this one of several jobs, were not there",
    )
    parser.add_argument("--seed", metavar="SALT", help="send the very flows of the run that has this salt")
    parser.add_argument("--draws", type=int, metavar="N", help="of costs and of flows (5; 1 with --full-size)")
    parser.add_argument(
        "--full-size",
        action="store_true",
        help="also simulate each window as it would be without a scale, and say what the scale costs",
    )
    parser.add_argument(
        "--grain",
        choices=("flows", "packets"),
        help="simulate flows that share links, or every packet (default: packets where they are few)",
    )
    parser.add_argument(
        "--best",
        type=int,
        metavar="N",
        help="print the N values of --what-if with the shortest iterations alone, the shortest first",
    )
    parser.add_argument(
        "--measure", action="store_true", help="then measure these N, and say whether the best predicted is the best"
    )
    options.wait(parser)
    options.force(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="also draw the predictions, as FILE.svg and FILE.pdf"
    )


def _predict(arguments: argparse.Namespace) -> int:
    """Predict every setting, find measured runs of it, and print both."""
    from orchestrator.experiment import fitting, seeds
    from orchestrator.predict import foreseeing, foreseentext, full_size, inputs, learned, predicttext, ranking, whatif
    from orchestrator.predict.foreseeing import How
    from orchestrator.store import stores

    axes = whatif.axes(arguments.what_if)
    if arguments.best is not None and (arguments.best < 1 or not axes):
        raise ConfigError(f"--best {arguments.best}: accepted: 1 and more, of the values of --what-if")
    if arguments.measure and arguments.best is None:
        raise ConfigError("--measure: says not how many; accepted: with --best N")
    wanted = whatif.settings(arguments.file, arguments.overrides, axes, local=arguments.local)
    if arguments.without:
        wanted = [replace(one, experiment=foreseeing.without(one.experiment, arguments.without)) for one in wanted]
    named = stores.entries(stores.opened(str(arguments.results)), arguments.inputs) if arguments.inputs else []
    costs = inputs.costs(arguments.results, fitting.topology_of(wanted[0].experiment), named=named)
    trained = [entry for entry in named if not inputs.is_benchmark(entry)]
    known = learned.find(arguments.results, [one.experiment for one in wanted], costs, named=trained)
    how = How(
        salt=seeds.given(arguments.seed) or seeds.PLANNED,
        draws=arguments.draws or (1 if arguments.full_size else foreseeing.DRAWS),
        grain=arguments.grain,
    )
    hows = [replace(how, computed=one.computed, beside=one.beside) for one in known]
    simulated = _simulated(arguments, wanted, costs, hows, known)
    congestion = foreseentext.congestion(simulated) if whatif.is_load(axes) else None
    status = Exit.OK
    if arguments.best is not None:
        chosen = ranking.best(simulated, arguments.best)
        wanted, simulated = [wanted[place] for place in chosen], [simulated[place] for place in chosen]
        known = [known[place] for place in chosen]
    if arguments.measure:
        status = _measured(arguments, wanted)
        simulated = _beside_runs(arguments, wanted, simulated)
    by_terms = _terms(arguments, wanted, costs)
    both = [
        size
        for one, found, told in zip(wanted, simulated, known, strict=True)
        if arguments.full_size
        for size in full_size.of_experiment(
            one.experiment,
            costs,
            file=str(arguments.file),
            how=replace(how, computed=told.computed, beside=told.beside),
            label=found.label,
            measured=found.measured,
        )
    ]
    agreement = ranking.agreement(simulated) if arguments.best is not None else None
    if arguments.json:
        told = predicttext.data(by_terms, costs, known[0]) | foreseentext.data(simulated, congestion=congestion)
        told |= {"sizes": full_size.data(both)} if both else {}
        told |= {"ranking": ranking.data(agreement)} if agreement is not None else {}
        print(json.dumps(told, indent=1))
    else:
        parts = [predicttext.text(by_terms)] if by_terms else []
        parts += [foreseentext.text(simulated, congestion=congestion), *([full_size.text(both)] if both else [])]
        parts += [ranking.text(agreement)] if agreement is not None else []
        print("\n\n".join([*parts, predicttext.inputs_table(costs, known[0])]))
    if arguments.output is not None:
        from orchestrator.report import predicted_settings, simulated_windows

        drawn = (
            predicted_settings.write(by_terms, arguments.output)
            if by_terms
            else simulated_windows.write(simulated, arguments.output)
        )
        print(drawn)
    return status


def _simulated(
    arguments: argparse.Namespace,
    wanted: Sequence[Setting],
    costs: Costs,
    hows: Sequence[How],
    known: Sequence[Learned],
) -> list[ForeseenSetting]:
    """Return every setting's windows by simulation, and what runs measured of them."""
    from orchestrator.predict import foreseeing
    from orchestrator.predict.foreseentext import ForeseenSetting

    found = [
        ForeseenSetting(
            label=one.label if arguments.what_if else "",
            windows=tuple(foreseeing.foresee(one.experiment, costs, file=str(arguments.file), how=how)),
            measured={},
            taught=told.runs,
        )
        for one, how, told in zip(wanted, hows, known, strict=True)
    ]
    return _beside_runs(arguments, wanted, found)


def _beside_runs(
    arguments: argparse.Namespace, wanted: Sequence[Setting], simulated: Sequence[ForeseenSetting]
) -> list[ForeseenSetting]:
    """Return settings with what the store's runs measured of them by now."""
    from orchestrator.predict import measured_windows

    measured = measured_windows.find(arguments.results, [one.experiment for one in wanted])
    return [
        replace(
            found,
            measured={
                (window.name, job): result
                for window in one.experiment.all_windows()
                for (key, job), result in measured.items()
                if key == measured_windows.key(one.experiment, window)
            },
        )
        for one, found in zip(wanted, simulated, strict=True)
    ]


def _measured(arguments: argparse.Namespace, wanted: Sequence[Setting]) -> Exit:
    """Measure every setting, one after the other; return the gravest status."""
    from orchestrator.execution import execute

    how = options.of_runs(arguments)
    found: list[Exit] = []
    for one in wanted:
        how.progress.say(f"measuring {one.label}")
        outcomes = execute.carry_out(one.experiment, how)
        found += [outcome.status for outcome in execute.last_tries(outcomes)]
        if Exit.INTERRUPTED in found:
            break
    how.progress.done()
    return gravest(found)


def _terms(arguments: argparse.Namespace, wanted: Sequence[Setting], costs: Costs) -> list[PredictedSetting]:
    """Return all settings by the terms of Li's model, beside runs; none where it does not know one of them."""
    from orchestrator.predict import measured_runs, predicting
    from orchestrator.predict.predicttext import PredictedSetting

    if any(predicting.refused(one.experiment) for one in wanted):
        return []
    subjects = [predicting.subject(one.experiment, file=str(arguments.file)) for one in wanted]
    measured = measured_runs.find(arguments.results, subjects)
    return [
        PredictedSetting(
            label=setting.label,
            prediction=predicting.predict(subject, costs),
            measured=measured.get(measured_runs.key(subject)),
        )
        for setting, subject in zip(wanted, subjects, strict=True)
    ]
