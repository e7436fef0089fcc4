"""Rates, sizes, durations and shares: what is written is what is read, and the schema says the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from orchestrator.core import units
from orchestrator.core.fields import Duration, Rate, Share, Size

KINDS = {"rate": Rate, "size": Size, "duration": Duration, "share": Share}
ADAPTERS = {name: TypeAdapter(kind) for name, kind in KINDS.items()}
FACTORS = {
    "rate": {"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12},
    "size": {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 1024, "mib": 2**20, "gib": 2**30},
    "duration": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600},
    "share": {"%": 0.01},
}
UNITS = [(kind, unit) for kind, units in FACTORS.items() for unit in units]


def accepted(kind: str, text: object) -> bool:
    try:
        ADAPTERS[kind].validate_python(text)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(value=st.floats(min_value=0, max_value=1e18))
@example(value=1.0)
@example(value=25e9)
@example(value=0.1)
@example(value=1e-12)
def test_a_value_survives_being_written_and_read(kind, value):
    text = ADAPTERS[kind].dump_python(value, mode="json")
    back = ADAPTERS[kind].validate_python(text)
    assert back == pytest.approx(value, rel=1e-14, abs=1e-300)
    # and from then on nothing changes any more
    assert ADAPTERS[kind].dump_python(back, mode="json") == text


@settings(max_examples=100, deadline=None)
@given(unit=st.sampled_from(UNITS), number=st.integers(0, 10**9), spaces=st.sampled_from(["", " ", "  "]))
def test_every_unit_means_what_it_says_in_any_case(unit, number, spaces):
    kind, name = unit
    for spelled in (name, name.upper(), name.capitalize()):
        assert ADAPTERS[kind].validate_python(f"{number}{spaces}{spelled}") == pytest.approx(
            number * FACTORS[kind][name]
        )


NEARLY = st.text(alphabet="0123456789.eE+-_ \t\n%bitkmgtsunhBITKMGTSUNH²٣", max_size=12)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(text=NEARLY | st.from_regex(r" ?[0-9]{1,3}(\.[0-9]{1,2})?(e[0-9]{1,3})? ?(bit|Gbit|kB|MiB|ms|h|%|)\n?"))
@example(text="10gbit\n")
@example(text="10Gbit")
@example(text="10\tgbit")
@example(text="10")
@example(text="%")
def test_the_schema_takes_what_the_reader_takes(kind, text):
    pattern = ADAPTERS[kind].json_schema()["pattern"]
    # JSON Schema's `$` is the very end; Python's also stands before a last line end.
    matches = re.search(pattern.removesuffix("$") + r"\Z", text, re.ASCII) is not None
    assert matches == accepted(kind, text) or is_out_of_bounds(text)


def is_out_of_bounds(text: str) -> bool:
    number = re.match(r" *([0-9.]+[eE]\+?[0-9]+)", text)
    return number is not None and float(number[1]) > units.MOST / 1e12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [0, 1, 1.5, True, None, [], {}, float("nan"), float("inf"), b"1s", "", " ", "1e999s"])
def test_what_is_no_text_with_a_unit_is_refused(kind, value):
    assert not accepted(kind, value)
