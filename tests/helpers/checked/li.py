"""Li: trainings whose messages are the paper's, and whose terms are measured as predicted but for a per cent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from orchestrator.analysis.traffic.traffic import Volume
from orchestrator.papers.li import accuracy, bandwidth, experts, heatmaps, overhead, printed_training, sizes, stages
from orchestrator.papers.li.experts import Routed
from orchestrator.papers.li.published import li
from orchestrator.papers.li.trainings import Found, Training
from orchestrator.parts.terms import Terms
from orchestrator.parts.theory import Replicated
from orchestrator.report.study.content import Comparison
from tests.helpers.checked import NOISE, ONE_RUN, RUNS
from workloads import ptd
from workloads.common import rank_traffic

TWISTS = (
    *(
        "terms-off",
        "shuffled-trainings",
        "no-bubble",
        "terms-doubled",
        "same-mapping",
        "same-scaling",
        "shuffled-ranks",
    ),
    *("flat-bandwidth", "doubled", "small-messages", "another-mapping"),
    *("uniform-experts", "steady-experts", "shuffled-iterations"),
)
MIB = 2**20
SUBJECTS = {name: printed_training.subject(mapping=name) for name in ("default", "customized")}
TENSOR_4 = printed_training.subject(tensor=4, data=2)
BYTES = {name: ptd.traffic(subject.config, 1) for name, subject in SUBJECTS.items()}
COMPUTE_S = {"resnet50": 0.2, "vgg16": 0.4}
RANKS = (2, 4, 8)
ITERATIONS = 40


def lines(twist: str, seed: int) -> list[Comparison]:
    """Return every comparison of a whole study."""
    random, printed = np.random.default_rng(seed), li()
    made = _Made(twist, random)
    replicated = [made.replicated(model, ranks) for model in COMPUTE_S for ranks in RANKS]
    split = [made.split(mapping) for mapping in SUBJECTS]
    found = Found(replicated=tuple(replicated), split=tuple(split), experts=(), benchmarks=(), costs=None)
    kinds = (("data parallel", replicated), ("split", split))
    papers = {**SUBJECTS, "tensor 4": TENSOR_4}
    return [
        *sizes.compared([*replicated[2::3], *split], printed),
        *heatmaps.compared(found, papers, printed),
        *experts.compared("gpt2", [made.routed() for _ in made.runs], printed),
        *overhead.mappings(split, printed),
        *overhead.compared(replicated, printed),
        *bandwidth.compared({"all-reduce": [made.bandwidth() for _ in made.runs]}, printed),
        *(stages.compared(one, "equation 7", printed.check("bubble")) for one in split),
        *(accuracy.compared(kind, name, ones, printed) for kind, ones in kinds for name in accuracy.QUANTITIES),
    ]


class _Made:
    def __init__(self, twist: str, random: np.random.Generator) -> None:
        self.twist, self.random = twist, random
        self.runs = range(1 if twist == ONE_RUN else RUNS)

    def about(self, value: float, spread: float = 0.01) -> float:
        """A measurement of a value; noise knows nothing of it."""
        if self.twist == NOISE:
            return float(self.random.lognormal(-1, 2))
        return value * float(self.random.normal(1, spread))

    def replicated(self, model: str, ranks: int) -> Training:
        """Communication grows with ranks, and half of it is hidden."""
        compute, all_reduce = COMPUTE_S[model], 0.1 * (ranks - 1)
        if self.twist == "same-scaling":
            all_reduce = 0.1
        predicted = Terms(compute_s=compute, data_s=all_reduce / 2, hidden_s=all_reduce / 2)
        subject = SimpleNamespace(
            work=Replicated(ranks=ranks, forward_s=0.1, backward_s=0.1, passes=1, buckets=()),
            workload="ddp",
            config=SimpleNamespace(model=model),
            job=SimpleNamespace(ranks=tuple(range(ranks))),
        )
        sent = [25 * MIB] * 12 + [392 * MIB if model == "vgg16" else 8 * MIB]
        return self._training(subject, predicted, sent, ranks=ranks)

    def split(self, mapping: str) -> Training:
        custom = mapping == "customized" and self.twist != "same-mapping"
        bubble, rest = 0.3, 0.8
        predicted = Terms(
            compute_s=rest - (0.1 if custom else 0.2),
            pipeline_s=0.1 if custom else 0.2,
            data_s=0.4 if custom else 0.2,
            bubble_s=bubble,
            hidden_s=0.05,
        )
        one = self._training(SUBJECTS[mapping], predicted, [125 * MIB] * 16, ranks=32)
        one.__dict__["captured"] = tuple(
            SimpleNamespace(window=SimpleNamespace(entry=SimpleNamespace(run=f"r{number}")), volume=self._volume(one))
            for number in self.runs
        )
        return one

    def _training(self, subject: Any, predicted: Terms, sent: list[int], *, ranks: int) -> Training:
        measured = [self._terms(predicted) for _ in self.runs]
        seconds = [terms.iteration_s for terms in measured]
        if self.twist == "shuffled-ranks" and ranks != RANKS[-1]:
            seconds = [10 / ranks + self.about(0.01) for _ in self.runs]
        one = Training(
            point=SimpleNamespace(
                job=SimpleNamespace(compute="real"),
                run_means_s=seconds,
                mean_s=SimpleNamespace(value=float(np.mean(seconds))),
            ),
            subject=subject,
            prediction=SimpleNamespace(terms=predicted),
            runs=tuple(self._run(sent) for _ in self.runs),
        )
        one.__dict__["terms_of_runs"] = tuple({0: terms} for terms in measured)
        return one

    def _terms(self, predicted: Terms) -> Terms:
        """Measured terms of a run."""
        values = {name: getattr(predicted, name) for name in Terms.__slots__}
        if self.twist == "terms-off":
            for name in ("compute_s", "bubble_s", "data_s", "pipeline_s", "hidden_s"):
                values[name] *= 1.5 if name == "bubble_s" else 1.3 if name == "compute_s" else 0.7
        if self.twist == "terms-doubled":
            values["bubble_s"] *= 2
        if self.twist == "no-bubble":
            values["bubble_s"] = 0.0
        if self.twist == "shuffled-trainings":
            values = {name: value * self.random.choice([0.3, 3.0]) for name, value in values.items()}
        return Terms(**{name: self.about(value) if value else 0.0 for name, value in values.items()})

    def _run(self, sent: list[int]) -> Any:
        if self.twist in ("doubled", "small-messages"):
            sent = [size * 2 if self.twist == "doubled" else size // 1000 for size in sent]
        if self.twist == NOISE:
            sent = [int(size) for size in self.random.uniform(1, 2 * MIB, len(sent))]
        row = {"rank": 0, "window_name": "w", "lane": "communication", "iteration": 1, "span": "all-reduce"}
        rows = [{**row, "bytes": size} for size in sent]
        return SimpleNamespace(rows=lambda _: rows, scale=1)

    def _volume(self, one: Training) -> Volume:
        """Captured bytes between hosts: those that the mapping gives, and control messages."""
        mapping = one.config.mapping
        if self.twist == "another-mapping":
            mapping = "default" if mapping == "customized" else "customized"
        hosts = one.subject.job.nodes
        payload = np.zeros((len(hosts), len(hosts)))
        pairs = rank_traffic.summed(BYTES[mapping].values())
        for src, dst, size in rank_traffic.between_nodes(one.subject.job, pairs):
            factor = 2.0 if self.twist == "doubled" else 1.0
            payload[hosts.index(src), hosts.index(dst)] = factor * self.about(1.005, 0.001) * size
        return Volume(hosts=tuple(hosts), payload=payload, wire=payload, flows=1, big=np.ones(1))

    def bandwidth(self) -> dict[int, float]:
        """Bus bandwidth over sizes of a run."""
        fast = 1e9 if self.twist == "flat-bandwidth" else 8e9
        return {1000: self.about(1e9), 1_000_000: self.about(fast)}

    def routed(self) -> Routed:
        """All-to-all traffic that grows a tenth and evens out; a busy pair has half as much again in the beginning."""
        sent = np.ones((ITERATIONS, 4, 4))
        steps = np.linspace(0, 1, ITERATIONS)
        if self.twist not in ("uniform-experts", "steady-experts"):
            sent *= (1 + 0.1 * steps)[:, None, None]
        more = np.full(ITERATIONS, 0.5) if self.twist == "steady-experts" else 0.5 * (1 - steps)
        if self.twist != "uniform-experts":
            sent[:, 0, 1] += more
        sent *= self.random.normal(1, 0.002, sent.shape)
        if self.twist in ("shuffled-iterations", NOISE):
            sent = sent[self.random.permutation(ITERATIONS)]
        if self.twist == NOISE:
            sent = np.full_like(sent, self.random.lognormal(0, 1)) * self.random.lognormal(0, 1, (ITERATIONS, 1, 1))
        spread = np.ptp(sent.reshape(ITERATIONS, -1), axis=1) + 1e-3
        return Routed(label="gpt2", iterations=np.arange(ITERATIONS, dtype=float), sent=sent, nonuniform=spread)
