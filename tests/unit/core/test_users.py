"""Users that the machine lists, and those of containers that run as any number."""

from __future__ import annotations

import os
import pwd

from orchestrator.core.machines import users
from orchestrator.experiment import starter_files

UNLISTED = 0x7FFF0123


def test_a_user_has_the_name_that_the_machine_lists_or_its_number():
    assert users.name() == pwd.getpwuid(os.geteuid()).pw_name
    assert users.name(0) == "root"
    assert users.name(UNLISTED) == str(UNLISTED)


def test_starter_files_are_written_for_a_user_that_is_not_listed(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: UNLISTED)
    starter_files.write("nightly", tmp_path)
    assert f"User={UNLISTED}\n" in (tmp_path / "orch-nightly.service").read_text()
