"""Every paper keeps its promises: a study file that says what it needs, sweeps that load, values with a source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from orchestrator.cli.main import main
from orchestrator.core.errors import ConfigError
from orchestrator.experiment import studyfile
from orchestrator.papers import registry
from orchestrator.study import run_study, studytext

ROOT = Path(__file__).parents[2]
PAPERS = registry.names()
QUICK_S = 900.0


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_is_what_it_says(name):
    paper = registry.paper(name)
    assert name == paper.NAME
    assert paper.TITLE
    assert paper.SHOWS
    assert callable(paper.content)


@pytest.mark.parametrize("name", PAPERS)
def test_its_study_says_what_it_needs_takes_and_covers(name):
    path = ROOT / studyfile.FOLDER / f"{name}.yaml"
    file = studyfile.read(path)
    assert (file.name, file.paper) == (name, name)
    assert file.takes.quick is not None
    assert file.takes.full is not None
    assert file.takes.quick <= QUICK_S
    assert file.covers.quick
    assert file.covers.full
    assert file.needs is not None


@pytest.mark.variants
@pytest.mark.parametrize("name", PAPERS)
def test_what_it_needs_is_what_its_plans_need(name):
    path = ROOT / studyfile.FOLDER / f"{name}.yaml"
    stated = studyfile.read(path).needs
    needed = [studytext.needs_of(run_study.first_runs(studyfile.load(path, quick=quick))) for quick in (True, False)]
    assert stated.hosts == max(one.hosts for one in needed)
    assert sorted(stated.modules) == sorted({module for one in needed for module in one.modules})
    assert sorted(stated.programs) == sorted({program for one in needed for program in one.programs})


@pytest.mark.parametrize("name", PAPERS)
def test_every_printed_line_has_its_source(name):
    data = yaml.safe_load((ROOT / f"orchestrator/papers/{name}/published.yaml").read_text())
    lines = [line for key, found in data.items() if isinstance(found, list) and key != "checks" for line in found]
    assert lines
    assert all(line.get("source") for line in lines if isinstance(line, dict))


def test_papers_are_listed_with_what_each_needs(capsys):
    assert main(["study"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for name in PAPERS:
        assert f"{name}: {registry.paper(name).SHOWS}" in out
    assert "needs 5 hosts, Python with torch, programs iperf3" in out


def test_a_list_of_papers_measures_nothing(capsys):
    assert main(["study", "--quick"]) == 2
    assert "--quick: no paper is named" in capsys.readouterr().err


def test_a_paper_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ConfigError, match=r"no paper mine; accepted: .*salamy"):
        registry.paper("mine")


def test_listing_papers_imports_nothing_that_draws_or_computes():
    program = (
        "import sys; from orchestrator.papers import registry; [registry.paper(name) for name in registry.names()]; "
        "print([name for name in ('matplotlib', 'scipy', 'pyarrow', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
