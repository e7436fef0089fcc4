"""One version in all that names it, a changelog in the format that it says it has, and releases by one command."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers import releases

ROOT = Path(__file__).parents[3]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def version() -> str:
    (found,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return found


def test_what_is_cited_and_what_a_page_checks_out_is_the_version_of_the_package():
    assert f"\nversion: {version()}\n" in (ROOT / "CITATION.cff").read_text()
    page = (ROOT / "docs/getting-started.md").read_text()
    assert re.findall(r"git checkout v([\d.]+\d)", page) == [version()]


def test_the_changelog_begins_with_what_is_unreleased_and_then_has_this_version():
    headings = re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(version())}\] - \d{{4}}-\d\d-\d\d", headings[1])


def test_sections_of_versions_are_those_of_the_format():
    found = set(re.findall(r"^### (.+)$", CHANGELOG, re.MULTILINE))
    assert found <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


SETUP = """
from setuptools import setup
setup()
"""
CLI = """
import sys
if sys.argv[1:] == ["--version"]:
    print("orch 1.2.3")
"""
RELEASED = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-01-02\n\n- one\n"


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    made = tmp_path_factory.mktemp("keys") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", made], check=True)
    return made


@pytest.fixture
def small(tmp_path, key):
    """A small project of our name, ready to be released with this key."""
    checkout = tmp_path / "checkout"
    (checkout / "orchestrator/cli").mkdir(parents=True)
    for module, text in {"__init__": "", "cli/__init__": "", "cli/main": CLI}.items():
        (checkout / f"orchestrator/{module}.py").write_text(text)
    (checkout / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "orch-testbed"\nversion = "1.2.3"\n[tool.setuptools.packages.find]\ninclude = ["orch*"]\n'
    )
    (checkout / "setup.py").write_text(SETUP)
    (checkout / "CHANGELOG.md").write_text(RELEASED)
    releases.committed(checkout)
    (checkout / ".ci/allowed_signers").write_text(f'maintainer namespaces="file,git" {public(key)}')
    releases.commit(checkout)
    return checkout


def public(key):
    return key.with_suffix(".pub").read_text()


def documented(beginning):
    """The command of docs/releasing.md that begins so."""
    page = (ROOT / "docs/releasing.md").read_text()
    (found,) = re.findall(rf"^    ({re.escape(beginning)}.*)$", page, re.MULTILINE)
    return found


def test_a_release_is_signed_and_tagged_and_checked_as_the_page_says(small, key, tmp_path):
    done = releases.release(small, Path("out"), key)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    names = {"orch_testbed-1.2.3-py3-none-any.whl", "orch_testbed-1.2.3.tar.gz", "SHA256SUMS", "SHA256SUMS.sig"}
    assert {path.name for path in out.iterdir()} == names
    assert "tag v1.2.3\n" in releases.git(small, "cat-file", "-p", "v1.2.3")
    shutil.copy(small / ".ci/allowed_signers", out)
    check = "\n".join(["set -e", documented("signer="), documented("ssh-keygen -Y verify"), documented("sha256sum")])

    def checked():
        return subprocess.run(["bash", "-c", check], cwd=out, capture_output=True, text=True, check=False)

    good = checked()
    assert good.returncode == 0, good.stdout + good.stderr
    assert 'Good "file" signature for maintainer' in good.stdout
    (out / "orch_testbed-1.2.3.tar.gz").write_bytes(b"another")
    assert "orch_testbed-1.2.3.tar.gz: FAILED" in checked().stdout
    (out / "SHA256SUMS").write_text((out / "SHA256SUMS").read_text().replace("0", "1"))
    assert checked().returncode != 0
    again = releases.release(small, tmp_path / "again", key)
    assert again.returncode == 1
    assert again.stderr == "release: there is a tag v1.2.3: raise the version\n"


def test_a_key_that_is_not_listed_makes_no_tag(small, key, tmp_path):
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", other], check=True)
    done = releases.release(small, tmp_path / "out", other)
    assert done.returncode == 1
    assert f"release: .ci/allowed_signers does not list {other}" in done.stderr
    assert releases.git(small, "tag") == ""
    assert list((tmp_path / "out").iterdir()) == []


def test_two_builds_that_differ_end_a_release(small, tmp_path):
    (small / "setup.py").write_text('import os\nopen("orchestrator/here.py", "w").write(repr(os.getcwd()))\n' + SETUP)
    releases.commit(small)
    done = releases.release(small, tmp_path / "out")
    assert done.returncode == 1
    assert "release: two builds of orch_testbed-1.2.3" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("CHANGELOG.md", "CHANGELOG.md has lines below Unreleased"),
        ("new.py", "the checkout has changes that are not committed"),
        ("../out/file", "is not empty"),
    ],
)
def test_what_cannot_be_released_is_said_before_anything_is_built(small, key, tmp_path, file, said):
    (tmp_path / "out").mkdir()
    (small / file).write_text(RELEASED.replace("## [1.", "- two\n\n## [1."))
    if file == "CHANGELOG.md":
        releases.commit(small)
    done = releases.release(small, tmp_path / "out", key)
    assert done.returncode == 1
    assert said in done.stderr
    assert releases.git(small, "tag") == ""
