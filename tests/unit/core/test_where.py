"""Conditions on values: what they are about, and units that are not in the way."""

from __future__ import annotations

import pytest

from orchestrator.core import where
from orchestrator.core.errors import ConfigError

FIELDS = {
    "traffic.0.iperf.load": "4gbit",
    "workload.ddp.model": "vgg16",
    "workload.ddp.hosts": ["h1", "h2"],
    "measure.iterations": 40,
    "valid": True,
    "mean_s": 0.2,
    "error": None,
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("load=4gbit", True),
        ("load == 4000mbit", True),
        ("load=4e9", True),
        ("iperf.load<=4gbit", True),
        ("load<4gbit", False),
        ("load>3999mbit", True),
        ("load!=4gbit", False),
        ("load!=5gbit", True),
        ("load<10s", False),  # a rate is no duration
        ("model=vgg16", True),
        ("model<vgg17", False),  # text has no order
        ("hosts=h1,h2", True),
        ("iterations>=40", True),
        ("valid=true", True),
        ("valid=false", False),
        ("error=null", True),
        ("mean_s<250ms", True),
        ("oad=4gbit", False),  # an end is whole steps
        ("nothing!=1", False),
    ],
)
def test_a_condition_holds_or_not(text, holds):
    (condition,) = where.parse([text])
    assert condition.holds(FIELDS) is holds


def test_a_key_of_that_very_name_wins_over_longer_ones():
    assert not where.parse(["load=1"])[0].holds({"load": 2, "traffic.load": 1})


@pytest.mark.parametrize("text", ["", "load", "=4", "load~4", "a b=1"])
def test_what_is_no_condition_is_said(text):
    with pytest.raises(ConfigError, match="not a condition; accepted: key, relation"):
        where.parse([text])
