"""A damaged file of a store changes no answer: run folders answer in its place, or it is named, with what mends it."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from orchestrator.core.errors import StoreError
from orchestrator.report.runs import Run
from orchestrator.store import baselines, digests, index, rundir
from orchestrator.store.compact import catalogue, compacting
from orchestrator.store.compact.catalogue import FOLDER
from orchestrator.store.elsewhere import reading
from orchestrator.store.tabular import tables
from tests.helpers.experiments import orch
from tests.helpers.night_runs import write_night

SQL = "select run, window_name, max(seconds) m, count(*) n from iterations group by all order by all"
QUESTIONS = (
    ("query", SQL, "--csv"),
    ("query", "select * from windows order by all", "--csv"),
    ("query", "select * from runs order by all", "--csv"),
    ("history", "nightly", "--json"),
    ("ls", "--json"),
)


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compacting, "today", lambda: "2026-11-25")
    monkeypatch.setattr(digests, "_SETTLED_NS", -1)  # what was written this instant is remembered too
    digests.of.cache_clear()  # each command is a process of its own


@pytest.fixture
def results(tmp_path):
    """Three nights of two runs, with the digests of their files in their manifests, compacted."""
    for night in range(3):
        for run in write_night(tmp_path / "results", night, repetitions=2, iterations=20):
            folder = rundir.RunFolder(run, rundir.opened(run).manifest)
            folder.hash_files()
            folder.save(folder.manifest)
    compacting.compact(tmp_path / "results")
    return tmp_path / "results"


def ask(results, *argv, status=0):
    digests.of.cache_clear()
    code, out, err = orch(*argv, "--results", str(results))
    assert code == status, err
    assert "Traceback" not in err
    return out, err


def answers(results):
    return [ask(results, *question)[0] for question in QUESTIONS]


def keeping_times(change):
    """A change as a disk makes it: without a trace in the file's times."""

    def changed(path: Path, *more) -> None:
        about = path.stat()
        change(path, *more)
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))

    return changed


def flip(path: Path, place: float = 0.4, bit: int = 0x10) -> None:
    with path.open("r+b") as file:
        at = int(path.stat().st_size * place)
        file.seek(at)
        (old,) = file.read(1)
        file.seek(at)
        file.write(bytes([old ^ bit]))


def zero(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))


def swap(path: Path) -> None:
    other = next(one for one in sorted(path.parent.iterdir()) if one != path)
    aside = path.with_name("aside")
    path.rename(aside)
    other.rename(path)
    aside.rename(other)


DAMAGES = {
    "a bit at the beginning": lambda path: flip(path, 0.1), "a bit in the middle": flip,
    "a bit at the end": lambda path: flip(path, 0.999),
    "zeros": zero, "nothing": lambda path: os.truncate(path, 0), "half of it": lambda path: os.truncate(path, 500),
    "more of it": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "two files exchanged": swap,
    "another day's rows": lambda path: shutil.copy(max(path.parent.iterdir()), path),
}  # fmt: skip


@pytest.mark.parametrize("table", ["iterations", "windows", "runs", "briefs"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_run_folders_answer_for_a_damaged_compacted_file_and_compacting_mends_it(results, damage, table):
    before = answers(results)
    keeping_times(DAMAGES[damage])(min((results / FOLDER / table).iterdir()))
    assert answers(results) == before
    asked = {"iterations": QUESTIONS[0], "windows": QUESTIONS[1]}.get(table, QUESTIONS[2])
    _, told = ask(results, *asked)
    assert re.search(rf"compacted/{table}/2026-11-18-[0-9a-f]+\.parquet: is damaged, and the run folders answer", told)
    assert "remedy: orch store compact" in told
    out, _ = ask(results, "store", "compact")
    assert "; 0 written" not in out
    assert answers(results) == before
    assert not ask(results, *asked)[1]


def test_a_file_is_read_whole_once_by_a_reader_and_again_when_it_changed(results, monkeypatch):
    read, plain = [], digests.read_once
    monkeypatch.setattr(digests, "read_once", lambda path: read.append(path.parent.name) or plain(path))
    for _ in range(3):
        ask(results, *QUESTIONS[0])
    assert sorted(read) == ["briefs"] * 3 + ["iterations"] * 3
    (first, *_) = sorted((results / FOLDER / "iterations").iterdir())
    os.utime(first)
    ask(results, *QUESTIONS[0])
    assert len(read) == 7
    for kept in (results.parent / "cache/orch/verified").iterdir():
        flip(kept, 0.5)
    ask(results, *QUESTIONS[0])
    assert len(read) == 13, "what is remembered is damaged, and nothing is believed of it"


def test_a_file_that_has_just_changed_is_not_remembered(results, monkeypatch):
    monkeypatch.setattr(digests, "_SETTLED_NS", 10**18)
    read, plain = [], digests.read_once
    monkeypatch.setattr(digests, "read_once", lambda path: read.append(path.parent.name) or plain(path))
    for _ in range(2):
        ask(results, *QUESTIONS[0])
    assert len(read) == 12


def test_a_damage_that_left_no_trace_is_found_by_compacting(results):
    before = answers(results)
    (path, *_) = sorted((results / FOLDER / "iterations").iterdir())
    known = digests.of(results)
    name = path.relative_to(results).as_posix()
    flip(path)
    known._remember({name: known._identity(name)})  # as of a disk that gives other bytes at the same times
    assert not ask(results, *QUESTIONS[0])[1]
    assert "; 1 written" in ask(results, "store", "compact")[0]
    assert answers(results) == before


def test_whatever_bit_of_a_catalogue_is_flipped_answers_stay(results):
    before = answers(results)
    path = results / FOLDER / catalogue.FILE
    whole = path.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 25)):
        path.write_bytes(whole)
        flip(path, (place + 0.5) / len(whole), 1 << place % 7)
        digests.of.cache_clear()
        assert ask(results, *QUESTIONS[0])[0] == before[0], place
    path.write_bytes(whole)
    flip(path, 0.5)
    assert "catalogue.json: is left out, and the run folders answer" in ask(results, *QUESTIONS[0])[1]
    ask(results, "store", "compact")
    assert answers(results) == before
    assert not ask(results, *QUESTIONS[0])[1]


def test_whatever_digit_of_an_index_is_changed_listings_stay(results):
    before = ask(results, "ls", "--json")[0]
    path = results / index.FILE
    whole = path.read_text()
    for hit in list(re.finditer(r"\d\.\d+", whole))[::20]:
        at = hit.end() - 1
        path.write_text(whole[:at] + str((int(whole[at]) + 1) % 10) + whole[at + 1 :])
        assert ask(results, "ls", "--json")[0] == before
    assert path.read_text() == whole, "it is made anew"


def test_a_manifest_with_another_digit_is_left_out_and_named(results):
    run = min(results.glob("nightly/*"))
    path = run / "manifest.json"
    path.write_text(path.read_text().replace('"p50_s": 0.', '"p50_s": 1.', 1))
    for question in (QUESTIONS[2], QUESTIONS[4]):
        out, err = ask(results, *question)
        assert run.name not in out
        assert f"left out: {path}: it was changed since it was written" in err
    _, err = ask(results, "show", run.name, status=1)
    assert "its digest is another" in err
    code, _, err = orch("store", "compact", "--results", str(results))
    assert code == 1
    assert "left out" in err


def test_a_manifest_that_another_program_wrote_is_read(results):
    path = min(results.glob("nightly/*")) / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "stage": "noted"}))
    assert rundir.opened(path.parent).manifest.stage == "noted"


@pytest.mark.parametrize("damage", ["a bit in the middle", "zeros", "half of it", "two files exchanged"])
def test_a_table_of_a_run_that_is_not_what_was_sealed_is_named_and_not_answered_with(results, damage):
    run = min(results.glob("nightly/*"))
    path = run / "tables/iterations.parquet"
    if damage == "two files exchanged":
        shutil.copy(max(results.glob("nightly/*/tables/iterations.parquet")), path)
    else:
        keeping_times(DAMAGES[damage])(path)
    os.utime(path, ns=(1, 1))  # so that the rows in compacted files do not count for it
    _, err = ask(results, *QUESTIONS[0], status=1)
    assert f"{path}: is damaged: it is not what was sealed" in err
    assert "restore it from a copy" in err
    with pytest.raises(StoreError, match="not what was sealed"):
        tables.read(run / "tables", "iterations")
    with pytest.raises(StoreError, match="not what was sealed"):
        Run(run).table("iterations")
    code, _, err = orch("store", "compact", "--results", str(results))
    assert (code, "not what was sealed" in err) == (1, True)
    out, _ = ask(results, *QUESTIONS[0], "--where", f"run!={run.name}")
    assert out


def test_a_baseline_that_was_changed_is_told(results):
    path = baselines.save(results, "main", of=("nightly",), runs=["nightly/" + min(results.glob("nightly/*")).name])
    path.write_text(path.read_text().replace("-00000001", "-00000002"))
    with pytest.raises(StoreError, match="its digest is another"):
        baselines.every(results)


# Elsewhere


@pytest.fixture
def place(results, tmp_path):
    """The store as it was pushed, behind a URL."""
    url = f"file://{tmp_path}/bucket/results"
    ask(results, "store", "push", url)
    return url


def bucket_of(place: str) -> Path:
    return Path(place.removeprefix("file://"))


def forget(place: str) -> None:
    shutil.rmtree(reading.Elsewhere.opened(place).cache, ignore_errors=True)


def sent(results, place, *more) -> str:
    return ask(results, "store", "push", place, *more)[0].splitlines()[-1]


ELSEWHERE = (*QUESTIONS[:2], ("query", "select * exclude path from runs order by all", "--csv"), QUESTIONS[3])


@pytest.mark.parametrize("table", ["iterations", "windows", "briefs"])
@pytest.mark.parametrize(
    "damage",
    ["a bit at the beginning", "a bit at the end", "zeros", "half of it", "two files exchanged", "another day's rows"],
)
def test_files_of_runs_answer_for_a_damaged_file_of_a_bucket_and_pushing_mends_it(results, place, damage, table):
    before = [ask(results, *question)[0] for question in ELSEWHERE]
    keeping_times(DAMAGES[damage])(min((bucket_of(place) / FOLDER / table).iterdir()))
    asked = {"iterations": 0, "windows": 1, "briefs": 3}[table]
    for again in (False, True):  # the second time with what the first has left in the cache
        assert [ask(place, *question)[0] for question in ELSEWHERE] == before, again
    _, told = ask(place, *ELSEWHERE[asked])
    assert re.search(rf"compacted/{table}/2026-11-18-[0-9a-f]+.parquet: is damaged; the files of 2 runs are", told)
    assert f"remedy: where the runs lie: orch store push {place}" in told
    assert " 0 compacted files sent" not in sent(results, place)
    assert " 0 compacted files sent" in sent(results, place)
    forget(place)
    assert [ask(place, *question)[0] for question in ELSEWHERE] == before
    assert not ask(place, *ELSEWHERE[asked])[1]


@pytest.mark.parametrize("damage", ["a bit in the middle", "zeros", "nothing", "half of it"])
def test_a_damaged_block_of_the_cache_is_fetched_again(place, damage):
    before = [ask(place, *question)[0] for question in ELSEWHERE]
    for block in (reading.Elsewhere.opened(place).cache / FOLDER).glob("*/*/*"):
        keeping_times(DAMAGES[damage])(block)
    assert [ask(place, *question)[0] for question in ELSEWHERE] == before
    assert not ask(place, *QUESTIONS[0])[1]


def test_a_damaged_file_of_a_run_in_the_cache_is_fetched_again(results, place, tmp_path):
    run = min(results.glob("nightly/*"))
    ask(place, "export", "zip", run.name, "-o", str(tmp_path / "run.zip"))
    kept = reading.Elsewhere.opened(place).cache / "runs" / "nightly" / run.name
    for path in (kept / "experiment.yaml", kept / "manifest.json", kept / "tables/iterations.parquet"):
        keeping_times(flip)(path)
    ask(place, "export", "zip", run.name, "-o", str(tmp_path / "run.zip"))
    for path in run.rglob("*.*"):
        assert (kept / path.relative_to(run)).read_bytes() == path.read_bytes()


def test_a_catalogue_without_digests_of_blocks_is_read_and_whole_files_verified(results, place):
    before = [ask(results, *question)[0] for question in ELSEWHERE]
    (path,) = bucket_of(place).glob(f"{FOLDER}/catalogue-*.json")
    about = json.loads(path.read_text())
    for file in (file for files in about["tables"].values() for file in files):
        del file["blocks"]
    path.write_text(json.dumps(about))
    forget(place)
    for _ in range(2):
        assert [ask(place, *question)[0] for question in ELSEWHERE] == before
    forget(place)
    keeping_times(flip)(min((bucket_of(place) / FOLDER / "iterations").iterdir()))
    assert [ask(place, *question)[0] for question in ELSEWHERE] == before
    assert "is damaged" in ask(place, *QUESTIONS[0])[1]


def test_a_damaged_catalogue_of_a_bucket_is_named_and_pushing_writes_it_anew(results, place):
    gone = min(results.glob("nightly/*"))
    before = ask(place, *QUESTIONS[0])[0]
    shutil.rmtree(gone)
    (path,) = bucket_of(place).glob(f"{FOLDER}/catalogue-*.json")
    path.write_text(path.read_text().replace('"rows":', '"rows":1', 1))
    assert "its digest is another" in ask(place, *QUESTIONS[0], status=1)[1]
    _, told = ask(results, "store", "push", place, status=1)
    assert "it is written anew" in told
    assert ask(place, *QUESTIONS[0])[0] == before, "runs that are gone here are still there"
    assert " 0 compacted files sent" in sent(results, place)


def test_a_damaged_file_of_a_run_is_not_pushed_and_is_once_it_is_mended(results, tmp_path):
    run, place = min(results.glob("nightly/*")), f"file://{tmp_path}/bucket/results"
    whole = (run / "experiment.yaml").read_bytes()
    keeping_times(flip)(run / "experiment.yaml")
    for _ in range(2):
        _, told = ask(results, "store", "push", place, status=1)
        assert f"{run.name}/experiment.yaml: is damaged: it is not what was sealed, and is not sent" in told
    assert not (bucket_of(place) / "nightly" / run.name / "experiment.yaml").exists()
    (run / "experiment.yaml").write_bytes(whole)
    assert sent(results, place).startswith(f"{place}: 1 runs")
    assert (bucket_of(place) / "nightly" / run.name / "experiment.yaml").read_bytes() == whole
    assert sent(results, place).startswith(f"{place}: 0 runs and 0 ")


def test_what_is_damaged_there_is_sent_again_where_all_is_verified(results, place):
    run = min(bucket_of(place).glob("nightly/*"))
    whole = (run / "experiment.yaml").read_bytes()
    keeping_times(flip)(run / "experiment.yaml")
    sent(results, place)
    assert (run / "experiment.yaml").read_bytes() != whole
    sent(results, place, "--verify")
    assert (run / "experiment.yaml").read_bytes() == whole


SPOILT = {
    "nightly/{run}/experiment.yaml": "is damaged",
    "nightly/{run}/tables/iterations.parquet": "is damaged",
    "nightly/{run}/manifest.json": "its digest is another",
    "compacted/iterations/{file}": "is damaged",
    "compacted/catalogue.json": "its digest is another",
    "baselines/main.json": "its digest is another",
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_whole_store_is_verified_by_one_command(results, spoilt):
    run = min(results.glob("nightly/*"))
    baselines.save(results, "main", of=("nightly",), runs=[f"nightly/{run.name}"])
    assert "6 runs, 27 files" in ask(results, "store", "verify")[0]
    assert "1 runs, 2 files" in ask(results, "store", "verify", run.name)[0]
    file = min((results / FOLDER / "iterations").iterdir()).name
    path = results / spoilt.format(run=run.name, file=file)
    keeping_times(flip)(path)
    out, err = ask(results, "store", "verify", status=1)
    assert path.name in err
    assert SPOILT[spoilt] in err
    assert "problems" in out
    if "nightly" in spoilt:
        assert "remedy" in ask(results, "store", "verify", run.name, status=1)[1]
    path.unlink()
    if "catalogue" not in spoilt and "baselines" not in spoilt and "manifest" not in spoilt:
        assert f"{path.name}: is gone" in ask(results, "store", "verify", status=1)[1]


@pytest.mark.parametrize("spoilt", [*list(SPOILT)[:4], "compacted/catalogue-{store}.json"])
def test_a_whole_store_elsewhere_is_verified_by_one_command(results, place, spoilt):
    there = bucket_of(place)
    run = min(there.glob("nightly/*"))
    assert "6 runs, 27 files" in ask(place, "store", "verify")[0]
    assert "1 runs, 2 files" in ask(place, "store", "verify", run.name)[0]
    file = min((there / FOLDER / "iterations").iterdir()).name
    path = there / spoilt.format(run=run.name, file=file, store=catalogue.read(results).store)
    keeping_times(flip)(path)
    _, err = ask(place, "store", "verify", status=1)
    assert path.name in err
    assert f"store push {place}" in err or "store push URL" in err


def test_a_manifest_without_a_digest_of_its_own_is_held_against_the_catalogue(results):
    run = min(results.glob("nightly/*"))
    path = run / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text())))
    compacting.compact(results)
    keeping_times(lambda path: path.write_text(path.read_text().replace('"completed"', '"completee"')))(path)
    about = path.read_text()
    keeping_times(lambda path: path.write_text(about.replace("completee", "completed").replace("sealed", "sealen")))(
        path
    )
    assert f"{path}: is damaged" in ask(results, "store", "verify", status=1)[1]


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\0", b"[1]\n", b"windows: [1]\n", b"windows: [{name: other}]\n", b"a: &a [x, x]\nb: &b [*a, *a]\n" * 2],
)
def test_an_experiment_that_is_none_ends_a_comparison_in_a_line(results, content):
    for path in results.glob("nightly/*/experiment.yaml"):
        path.write_bytes(content)
    _, err = ask(results, "compare", "nightly@2026-11-19", "nightly@2026-11-20", status=1)
    assert "experiment.yaml" in err


@pytest.mark.parametrize("content", [b"null", b"[1]", b'{"format": 1}', b'{"format": 1, "points": 5}', b"[" * 100_000])
@pytest.mark.parametrize("argv", [("site",), ("store", "verify")])
def test_a_plan_of_a_sweep_that_is_none_is_passed_over(results, argv, content):
    path = results / "sweeps" / "nightly" / "other" / "sweep.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    out, err = ask(results, *argv, status=int("verify" in argv))
    assert "verify" not in argv or "sweep.json: is damaged" in out + err


@pytest.mark.parametrize(
    ("name", "argv", "status"),
    [
        ("experiment.yaml", ("compare", "nightly@2026-11-19", "nightly@2026-11-20"), 1),
        (".index.json", ("ls",), 0),
        ("compacted/catalogue.json", ("query", SQL), 0),
        ("baselines/other.json", ("compare", "other", "nightly@2026-11-20"), 1),
        ("baselines/other.json", ("baseline", "ls"), 1),
        ("sweeps/nightly/other/sweep.json", ("site",), 0),
        ("sweeps/nightly/other/verdict.json", ("site",), 0),
        ("site.json", ("site",), 0),
        ("nightly/report-other.html", ("site",), 0),
    ],
)
def test_a_pipe_in_the_place_of_a_file_of_a_store_holds_nobody_up(results, name, argv, status):
    folders = [*results.glob("nightly/*/")] if name == "experiment.yaml" else [results]
    for folder in folders:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    ask(results, *argv, status=status)
