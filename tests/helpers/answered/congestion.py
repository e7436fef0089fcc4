"""Two jobs on an uplink: losses keep its queue nearly full, marks at a fifth of it half as full."""

from __future__ import annotations


def score(draw):
    return [
        {
            "control": control,
            "marks": "leaf1-spine1" if marks else None,
            "repetition": repetition,
            "run": f"{control} {marks} {repetition}",
            "seconds": 0.34 * draw.normal(1, 0.01),
            "unused_pct": 3.0 * draw.normal(1, 0.01),
            "fairness": 0.99,
            "waiting_ms": (0.9 if marks else 3.0) * draw.normal(1, 0.02),
            "drops": 0.0 if marks else 50.0,
            "marked_pct": 4.0 if marks else None,
        }
        for control in ("cubic", "reno", "dctcp")
        for marks in ((True,) if control == "dctcp" else (False, True))
        for repetition in (1, 2, 3)
    ]


FIRST = {"A score of congestion controls": score}
