from __future__ import annotations

import math

import pytest

from orchestrator.hosts import doctor

BEFORE = "cpu  700 100 200 5000 40 10 20 30 9 9\ncpu0 1\n"


def after(**more):
    names = ("user", "nice", "system", "idle", "waiting", "irq", "softirq", "steal")
    numbers = [int(word) for word in BEFORE.split()[1:9]]
    grown = [number + more.get(name, 0) for name, number in zip(names, numbers, strict=True)]
    return f"cpu  {' '.join(map(str, grown))} 9 9\ncpu0 1\n"


@pytest.mark.parametrize(
    ("grown", "share"),
    [
        ({"idle": 200}, 0.0),
        ({"idle": 90, "waiting": 10, "user": 60, "nice": 20, "system": 20}, 0.5),
        ({"idle": 150, "irq": 10, "softirq": 10, "steal": 30}, 0.25),
    ],
)
def test_all_but_idle_time_is_taken(grown, share):
    assert doctor.busy_share(BEFORE, after(**grown)) == pytest.approx(share)


def test_two_looks_in_the_same_instant_tell_nothing():
    assert math.isnan(doctor.busy_share(BEFORE, BEFORE))
    assert doctor.load_warning(math.nan) == ""


def test_only_much_is_warned_of():
    assert doctor.load_warning(0.09) == ""
    assert doctor.load_warning(0.43).startswith("other work takes 43% of the processors' time now")


@pytest.mark.parametrize(("busy", "warned"), [(0, False), (100, True)])
def test_the_doctor_warns_of_a_busy_machine_and_does_not_fail(busy, warned, tmp_path, monkeypatch, capsys):
    stat = tmp_path / "stat"
    stat.write_text(BEFORE)
    monkeypatch.setattr(doctor, "PROC_STAT", str(stat))
    monkeypatch.setattr(doctor.netns_needs, "requirements_problems", list)
    monkeypatch.setattr(doctor.time, "sleep", lambda _: stat.write_text(after(idle=200 - busy, user=busy)))
    assert doctor.examine(None, local=False) == 0
    assert ("warning  other work takes 50%" in capsys.readouterr().out) is warned
