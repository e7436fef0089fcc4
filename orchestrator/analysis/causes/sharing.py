"""Share out time that several causes claim at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def shared(claims: Floats, weights: Floats | None = None) -> Floats:
    """Return what each of some causes gets of the time that they claim, rows of causes; columns sum to the largest.

    Time that one cause alone claims is its own. Time that several claim passes only once all of them are gone, so that
    each has a part in it by its weight: these are the (weighted) Shapley values of the time saved, as of the airport
    game (Littlechild and Owen, "A simple expression for the Shapley value in a special case", 1973).
    """
    count = len(claims)
    if count == 0:
        return claims
    order = np.argsort(claims, axis=0, kind="stable")
    layers = np.diff(np.take_along_axis(claims, order, axis=0), axis=0, prepend=0.0)
    weight = np.broadcast_to(np.ones(count) if weights is None else weights, (claims.shape[1], count)).T
    sorted_weight = np.take_along_axis(weight, order, axis=0)
    above = np.cumsum(sorted_weight[::-1], axis=0)[::-1]  # of all that claim a layer
    given = np.cumsum(layers / above, axis=0) * sorted_weight
    found = np.empty_like(claims)
    np.put_along_axis(found, order, given, axis=0)
    return found
