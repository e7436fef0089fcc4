"""Print a prediction: its terms, messages of a rank, several settings side by side, and the source of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.core.opendata import JsonObject
from orchestrator.core.screen import layout
from orchestrator.core.units import bytes_text, rate_text
from orchestrator.parts.terms import NAMES, Terms
from orchestrator.parts.theory import Pipelined
from orchestrator.predict import messages
from orchestrator.predict.learned import Learned
from orchestrator.predict.measured_runs import MeasuredIteration
from orchestrator.predict.network_costs import Costs
from orchestrator.predict.predicting import Prediction, Subject
from workloads.models import formulation
from workloads.models.gpt import shape_of

NOTHING = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedSetting:
    """A setting with its prediction, and what runs measured of it, if any did."""

    label: str
    prediction: Prediction
    measured: MeasuredIteration | None

    @property
    def error(self) -> float | None:
        """The prediction error: predicted over measured, less 1."""
        return None if self.measured is None else self.prediction.iteration_s / self.measured.iteration_s - 1


def text(found: Sequence[PredictedSetting]) -> str:
    """Return the best setting in full, and all of them as a table where there are several."""
    best = min(found, key=lambda one: one.prediction.iteration_s)
    parts = [headline(best.prediction.subject)]
    if len(found) > 1:
        parts += [settings_table(found), f"best: {best.label}"]
    parts += [terms_table(best), messages_table(best.prediction.subject)]
    if paper := equations(best.prediction):
        parts.append(paper)
    return "\n\n".join(parts)


def headline(subject: Subject) -> str:
    """Return the prediction in a line."""
    config = subject.config
    rates = sorted({subject.topology.link(node).rate for node in subject.job.nodes})
    links = " to ".join(map(rate_text, dict.fromkeys((rates[0], rates[-1]))))
    scale = f", scale {subject.topology.scale}" if subject.topology.scale > 1 else ""
    ranks = len(subject.job.ranks)
    return (
        f"{subject.workload} of {config.model}: {ranks} ranks on {len(subject.job.nodes)} hosts, links {links}{scale}"
    )


def terms_table(one: PredictedSetting) -> str:
    """Return where the time of rank 0 goes; beside runs with the difference by term."""
    predicted, measured = one.prediction, one.measured
    theirs = {} if measured is None else measured.terms.parts()
    rows = [
        _row(name, seconds, predicted.iteration_s, theirs.get(name))
        for name, seconds in predicted.terms.parts().items()
        if seconds or theirs.get(name)
    ]
    whole_s, hidden_s = (None, None) if measured is None else (measured.iteration_s, measured.terms.hidden_s)
    rows.append(_row("iteration", predicted.iteration_s, predicted.iteration_s, whole_s))
    if predicted.terms.hidden_s or hidden_s:
        rows.append(_row("(hidden)", predicted.terms.hidden_s, predicted.iteration_s, hidden_s))
    head = (
        "rank 0",
        "predicted\nms",
        "share\n%",
        "measured\nms",
        "predicted\nless measured, ms",
        "of the\niteration, %",
    )
    width = 6 if measured is not None else 3
    table = layout.table(head[:width], [row[:width] for row in rows])
    runs = (
        "" if measured is None else f"\nmeasured: {', '.join(measured.runs)}{'' if measured.valid else ' (not valid)'}"
    )
    return f"{table}\n{interval_text(predicted)}{runs}"


def interval_text(predicted: Prediction) -> str:
    """Return the interval of the iteration, and what it does not hold."""
    low, high = map(_ms, predicted.interval_s)
    return f"iteration between {low} and {high} ms by the inputs' intervals, which do not hold what the terms get wrong"


def _row(name: str, seconds: float, whole_s: float, measured_s: float | None) -> tuple[str, ...]:
    predicted = (name, _ms(seconds), f"{seconds / whole_s * 100:.1f}")
    if measured_s is None:
        return (*predicted, NOTHING, NOTHING, NOTHING)
    apart = seconds - measured_s
    return (*predicted, _ms(measured_s), f"{apart * 1e3:+.1f}", f"{apart / whole_s * 100:+.1f}")


def settings_table(found: Sequence[PredictedSetting]) -> str:
    """Return all settings, the quickest first, with the terms that any of them has."""
    ordered = sorted(found, key=lambda one: one.prediction.iteration_s)
    names = [name for name in (*NAMES, "hidden_s") if any(getattr(one.prediction.terms, name) for one in found)]
    measured = any(one.measured for one in found)
    head = ["setting", "ms", "from", "to", *(name.removesuffix("_s") for name in names)]
    head += ["measured\nms", "error\n%"] if measured else []
    rows = []
    for one in ordered:
        own = one.prediction
        row = [one.label, _ms(own.iteration_s), *map(_ms, own.interval_s)]
        row += [_ms(getattr(own.terms, name)) for name in names]
        if measured:
            row += [NOTHING, NOTHING] if one.measured is None else [_ms(one.measured.iteration_s), _percent(one.error)]
        rows.append(row)
    return layout.table(head, rows)


def messages_table(subject: Subject) -> str:
    """Return the messages that rank 0 sends in an iteration (Li, table 3), at full size; an MB has 10^6 bytes."""
    rows = [
        (one.kind, str(one.count), bytes_text(one.size), bytes_text(one.volume), bytes_text(one.sent))
        for one in messages.of_rank(subject, 0)
    ]
    return layout.table(("rank 0", "messages", "largest", "volume", "sent"), rows)


def equations(prediction: Prediction) -> str:
    """Return Li's equations 1 to 7 with the same bandwidths, where a model is split; empty where it is not."""
    work, subject = prediction.subject.work, prediction.subject
    if not isinstance(work, Pipelined):
        return ""
    config = subject.config
    shape = shape_of(config.model)
    split = formulation.Split(p=config.pipeline, t=config.tensor, d=config.data, m=config.microbatches, b=config.batch)
    own, terms = work.stages[0], prediction.terms
    tensor = split.m * (own.forward_all_reduces + own.backward_all_reduces) * formulation.ring_factor(split.t)
    speed = {
        "tensor": _bandwidth(tensor * work.activation, terms.tensor_s),
        "pipeline": _bandwidth(split.m * work.activation, terms.pipeline_s),
        "data": _bandwidth(formulation.ring_factor(split.d) * own.gradients, terms.data_s),
    }
    parameters = formulation.parameters(
        layers=shape.layers, h=shape.hidden, s=shape.sequence, vocabulary=shape.vocabulary
    )
    times = formulation.iteration(
        split,
        layers=shape.layers,
        message=work.activation,
        parameters=parameters / subject.topology.scale,
        compute_s=config.compute_time,
        c_tensor=speed["tensor"],
        c_pipeline=speed["pipeline"],
        c_data=speed["data"],
        all_reduces=formulation.ALL_REDUCES if config.recompute else 4,
    )
    terms_listed = ", ".join(
        f"{name} {_ms(seconds)}"
        for name, seconds in (
            ("compute", times.compute_s),
            ("tensor", times.tensor_s),
            ("pipeline", times.pipeline_s),
            ("data", times.data_s),
            ("bubble", times.bubble_s),
        )
    )
    return (
        f"Li's equations 1 to 6 with the bandwidths of these terms: {_ms(times.iteration_s)} ms ({terms_listed}); "
        f"equation 7: a bubble of {formulation.bubble_share(split) * 100:.1f} % of what is not `data`"
    )


def _bandwidth(size: float, seconds: float) -> float:
    """Return the bandwidth in bytes a second; infinite where nothing is sent."""
    return size / seconds if seconds > 0 else float("inf")


def inputs_table(costs: Costs, known: Learned) -> str:
    """Return the model's inputs and what was learned of runs, with interval and source."""
    told = known.quantities() | costs.quantities()
    rows = [(name, f"{one.value:.4g}", f"{one.low:.4g}", f"{one.high:.4g}", one.source) for name, one in told.items()]
    return layout.table(("input", "value", "from", "to", "source"), rows)


def data(found: Sequence[PredictedSetting], costs: Costs, known: Learned) -> JsonObject:
    """Return the predictions as JSON data, times in seconds."""
    return {
        "settings": [
            {
                "setting": one.label,
                "iteration_s": one.prediction.iteration_s,
                "low_s": one.prediction.interval_s[0],
                "high_s": one.prediction.interval_s[1],
                "terms": terms_data(one.prediction.terms),
                "ranks": [terms_data(terms) for terms in one.prediction.ranks],
                "measured": None
                if one.measured is None
                else {
                    "runs": list(one.measured.runs),
                    "iteration_s": one.measured.iteration_s,
                    "error": one.error,
                    "terms": terms_data(one.measured.terms),
                },
            }
            for one in found
        ],
        "inputs": {
            name: {"value": one.value, "low": one.low, "high": one.high, "source": one.source}
            for name, one in (known.quantities() | costs.quantities()).items()
        },
    }


def terms_data(terms: Terms) -> Mapping[str, float]:
    return {**terms.parts(), "hidden": terms.hidden_s}


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share * 100:+.1f}"
