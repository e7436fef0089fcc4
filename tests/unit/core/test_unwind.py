"""Putting things back: all of it, in reverse, whatever goes wrong."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import OrchError
from orchestrator.core.unwind import Unwind, add_note, combined


def test_every_step_runs_once_in_reverse():
    done, unwind = [], Unwind()
    for name in "abc":
        unwind.push(name, lambda name=name: done.append(name))
    assert unwind.run() == []
    assert done == ["c", "b", "a"]
    assert unwind.run() == []
    assert done == ["c", "b", "a"]


def test_an_error_keeps_no_other_step_from_running():
    done, unwind = [], Unwind()

    def fail(name):
        done.append(name)
        raise OrchError(f"{name} failed")

    for name in "abcd":
        unwind.push(name, (lambda name=name: done.append(name)) if name in "ac" else lambda name=name: fail(name))
    errors = unwind.run()
    assert done == ["d", "c", "b", "a"]
    assert [(name, str(error)) for name, error in errors] == [("d", "d failed"), ("b", "b failed")]
    first = combined(errors)
    assert isinstance(first, OrchError)
    assert first.render() == "d failed\n  also: b: b failed"


def test_a_step_may_register_more():
    done, unwind = [], Unwind()
    unwind.push("last", lambda: done.append("last"))
    unwind.push("first", lambda: unwind.push("between", lambda: done.append("between")))
    unwind.run()
    assert done == ["between", "last"]


def test_what_is_no_error_of_a_step_goes_through():
    unwind = Unwind()
    unwind.push("left", lambda: None)

    def interrupt():
        raise KeyboardInterrupt

    unwind.push("interrupted", interrupt)
    with pytest.raises(KeyboardInterrupt):
        unwind.run()


def test_nothing_combined_is_no_error():
    assert combined([]) is None


def test_notes_add_up_on_any_python():
    error = ValueError("x")
    add_note(error, "one")
    add_note(error, "two")
    assert error.__notes__ == ["one", "two"]
