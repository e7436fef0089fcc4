"""Four trainings, each pair on one link: who sends beside the other waits for half of the time that both do."""

from __future__ import annotations

from itertools import combinations

PERIOD_S = 0.45
SENDS_S = {"vgg16": 0.177, "bert": 0.140, "gpt2": 0.159, "resnet101": 0.057}  # from 50 ms on
COMPUTES_S = 0.05


def both_s(first, second, shift):
    """How long both send at once where the second begins so many periods later."""
    by_s = min(shift, 1 - shift) * PERIOD_S
    ahead = SENDS_S[first] if shift < 0.5 else SENDS_S[second]
    return max(0.0, min(ahead - by_s, SENDS_S[first], SENDS_S[second]))


def pairs(draw):
    rows = []
    for first, second in combinations(SENDS_S, 2):
        for repetition in (1, 2, 3):
            keys = {"pair": f"{first} + {second}", "repetition": repetition, "run": f"{first} {second} {repetition}"}
            for shift in (number / 8 for number in range(8)):
                together = both_s(first, second, shift)
                for training, beside in ((first, second), (second, first)):
                    alone_s = COMPUTES_S + SENDS_S[training]
                    seconds = (alone_s + together) * draw.normal(1, 0.005)
                    rows.append(
                        {
                            **keys,
                            "training": training,
                            "beside": beside,
                            "shift": shift,
                            "seconds": seconds,
                            "alone_s": alone_s,
                            "slowdown": seconds / alone_s,
                            "both_s": together,
                            "shared_mb": 40_000.0,
                            "score": 1 - together / PERIOD_S,
                        }
                    )
    return rows


FIRST = {"Who slows whom": pairs, "The shift that hurts least": pairs}
