"""What the captures of a sealed run say of its training in the first window, and what theory says."""

from __future__ import annotations

import numpy as np

from orchestrator.analysis.traffic import traffic


def captured(run):
    """Payload that each host sent each other in training: hosts by hosts, in the order of the traffic's hosts."""
    window = run.manifest.windows[0]
    inside = traffic.within(run.traffic, *window.span_ns)
    return traffic.matrix(inside, inside.kind == "training")


def told(run):
    """The same of one iteration in theory."""
    hosts = run.traffic.hosts
    sizes = np.zeros((len(hosts), len(hosts)))
    for src, dst, size in run.manifest.jobs[0].theory.pairs:
        sizes[hosts.index(src), hosts.index(dst)] = size
    return sizes


def apart(sent, expected):
    """How far shares of the whole are apart at most, over the highest; so what the window's edges cut weighs little."""
    shares = expected / expected.sum()
    return np.abs(sent / sent.sum() - shares).max() / shares.max()


def pattern_of(run):
    """The only pattern that was seen in the first window."""
    (job,) = run.views[run.manifest.windows[0].name].jobs
    (pattern,) = job.patterns
    return pattern
