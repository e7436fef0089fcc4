"""CASSINI: iterations that begin together share the link, those half an iteration apart have it to themselves."""

from __future__ import annotations

ALONE_S = {"first": 0.38, "second": 0.40}


def shared(draw):
    rows = []
    for job, alone_s in ALONE_S.items():
        for repetition in (1, 2, 3):
            keys = {"model": "vgg16", "job": job, "repetition": repetition, "run": f"{job} {repetition}"}
            for iteration in range(80):
                shift = abs((iteration / 20) % 1 - 0.5)
                seconds = alone_s * (1.25 - 0.5 * shift) * draw.normal(1, 0.01)
                rows.append({**keys, "iteration": iteration, "seconds": seconds, "shift": shift})
                rows.append({**keys, "iteration": iteration, "seconds": alone_s * draw.normal(1, 0.01), "shift": None})
    return rows


FIRST = {"Two trainings on one link": shared}
