"""How time that several causes claim is shared out."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.analysis.causes.sharing import shared


def test_what_one_alone_claims_is_its_own_and_what_all_claim_is_shared() -> None:
    given = shared(np.array([[6.0, 0.0, 4.0], [2.0, 0.0, 4.0], [0.0, 5.0, 4.0]]))
    assert given[:, 0] == pytest.approx([5, 1, 0])
    assert given[:, 1] == pytest.approx([0, 0, 5])
    assert given[:, 2] == pytest.approx([4 / 3] * 3)


def test_shares_sum_to_the_largest_claim_whatever_the_weights() -> None:
    random = np.random.default_rng(2)
    claims = random.exponential(1.0, (5, 40))
    for weights in (None, random.uniform(1, 4, 5)):
        given = shared(claims, weights)
        assert given.sum(axis=0) == pytest.approx(claims.max(axis=0))
        assert (given >= 0).all()
        assert (given <= claims + 1e-12).all()


def test_stronger_evidence_gets_more_of_what_both_claim() -> None:
    assert shared(np.array([[4.0], [4.0]]), np.array([3.0, 1.0]))[:, 0] == pytest.approx([3, 1])


def test_nobody_claims_anything() -> None:
    assert shared(np.zeros((0,))).size == 0
