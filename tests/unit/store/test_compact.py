"""A compacted store answers as its run folders do, whatever became of them since and whatever ended the compacting."""

from __future__ import annotations

import json
import os
import shutil

import pyarrow.parquet as pq
import pytest

from orchestrator.core.errors import StoreError
from orchestrator.store import query, rundir, stores
from orchestrator.store.compact import catalogue, compacting, targets
from orchestrator.store.compact.catalogue import FOLDER
from orchestrator.store.compact.targets import Member
from orchestrator.store.listing import Filter
from orchestrator.store.manifests import coding
from orchestrator.store.manifests import manifest as manifests
from orchestrator.store.stores import Here
from tests.helpers.experiments import orch
from tests.helpers.killed_at import killed_at
from tests.helpers.night_runs import write_night, write_run
from tests.helpers.sealed_run import loose, make_run
from tests.helpers.sweep_files import leave

SMALL = ("runs", "windows", "hosts", "all_iterations")


def answers(results, names=SMALL, **wanted):
    """The rows of these tables, in order."""
    store = Here(results)
    picked = stores.picked(store, [], Filter(**wanted))
    with query.opened(store, picked, names) as connection:
        return {name: sorted(map(repr, connection.sql(f"select * from {name}").fetchall())) for name in names}  # noqa: S608


def by_folders(results, tmp_path, names=SMALL, **wanted):
    """What a store answers that was never compacted."""
    bare = tmp_path / "bare"
    shutil.copytree(results, bare / results.name, ignore=shutil.ignore_patterns(FOLDER))
    try:
        found = answers(bare / results.name, names, **wanted)
        return {name: sorted(row.replace(f"{bare}/", f"{tmp_path}/") for row in found[name]) for name in names}
    finally:
        shutil.rmtree(bare)


def compact(results):
    status, out, err = orch("store", "compact", "--results", str(results))
    assert status == 0, err
    return out


def sources(results, table="iterations"):
    store = Here(results)
    return store.sources(table, store.every().sealed)


@pytest.fixture(autouse=True)
def today(monkeypatch):
    """The month of the runs that tests make is not over."""
    monkeypatch.setattr(compacting, "today", lambda: "2026-11-25")


@pytest.fixture
def results(tmp_path):
    """Three nights of two runs each."""
    for night in range(3):
        write_night(tmp_path / "results", night, repetitions=2, iterations=20)
    return tmp_path / "results"


def test_every_table_is_answered_alike(tmp_path):
    results = tmp_path / "results"
    for number in (1, 2):
        make_run(results / "resnet-load", repetition=number, iterations=40, tolerances=loose())
    leave(results, {"name": "s", "id": "i", "points": {}}, outcome="running", sealed=False, jobs=[])
    before = answers(results, query.names())
    assert compact(results).startswith(f"{results}: 2 runs in ")
    assert not sources(results).folders
    assert answers(results, query.names()) == before
    some = {"valid": True, "where": ("repetition=2",)}
    assert answers(results, **some) == by_folders(results, tmp_path, **some)
    assert len(answers(results, **some)["runs"]) == 1


def test_a_second_call_has_nothing_to_do_and_a_new_run_is_all_that_the_next_one_writes(results):
    compact(results)
    assert "; 0 written" in compact(results)
    names = catalogue.read(results).names()
    write_run(results, night=3, iterations=20)
    compact(results)
    new = catalogue.read(results).names() - names
    assert sorted({name.partition("/")[0] for name in new}) == sorted(
        ["iterations", "runs", "windows", "hosts", "briefs"]
    )
    assert names - catalogue.read(results).names() == set(), "no older file was written anew"


def changed_table(run):
    shutil.copy(next(run.parent.parent.glob("nightly/*0001")) / "tables/iterations.parquet", run / "tables/new")
    (run / "tables/new").replace(run / "tables/iterations.parquet")


def changed_in_place(run):
    path = run / "tables/iterations.parquet"
    other = next(other for other in run.parent.iterdir() if other != run)
    path.write_bytes((other / "tables/iterations.parquet").read_bytes())


def pruned(run):
    manifest = rundir.opened(run).manifest
    manifests.save(run / "manifest.json", coding.decoded(coding.encoded(manifest), type(manifest)))


def changed_manifest(run):
    about = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**about, "stage": "changed", "valid": False}))


def recovered(run):
    """As a run that is fetched and reduced again: unsealed, its tables made anew, sealed."""
    folder = rundir.RunFolder(run, rundir.opened(run).manifest)
    folder.reopen()
    changed_in_place(folder.path)
    folder.seal()


CHANGES = {
    "changed table": changed_table, "changed in place": changed_in_place, "pruned": pruned, "recovered": recovered,
    "changed manifest": changed_manifest, "gone": shutil.rmtree,
    "no table": lambda run: (run / "tables/iterations.parquet").unlink(),
    "no manifest": lambda run: (run / "manifest.json").unlink(),
    "damaged manifest": lambda run: (run / "manifest.json").write_text("{"),
    "unsealed": lambda run: run.rename(run.with_name(run.name + ".partial")),
    "moved": lambda run: run.rename(run.with_name("19990101T000000000-moved")),
    "copied": lambda run: shutil.copytree(run, run.parent.parent / "copies" / run.name),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_that_changed_or_vanished_is_noticed_at_once_and_by_the_next_call(results, tmp_path, change):
    compact(results)
    run = sorted(results.glob("nightly/*"))[3]
    CHANGES[change](run)
    truth = by_folders(results, tmp_path)
    assert answers(results) == truth
    compacting.compact(results)
    assert answers(results) == truth
    assert not sources(results).folders


def test_a_manifest_that_changes_while_it_is_read_is_read_again_by_the_next_call(results, tmp_path, monkeypatch):
    run, plain = sorted(results.glob("nightly/*"))[3], compacting.index.listing

    def overtaken(folder):
        found = plain(folder)
        changed_manifest(run)
        return found

    monkeypatch.setattr(compacting.index, "listing", overtaken)
    compacting.compact(results)
    monkeypatch.undo()
    truth = by_folders(results, tmp_path)
    assert answers(results) == truth
    assert len(sources(results, "runs").folders) == 1
    compacting.compact(results)
    assert not sources(results, "runs").folders
    assert answers(results) == truth


def test_pruning_makes_only_what_is_made_of_manifests_stale(results):
    compact(results)
    pruned(sorted(results.glob("nightly/*"))[3])
    assert not sources(results).folders
    assert len(sources(results, "runs").folders) == 1


DAMAGES = {
    "a truncated file": lambda folder: os.truncate(next(folder.glob("iterations/*")), 100),
    "a file that is gone": lambda folder: next(folder.glob("iterations/*")).unlink(),
    "a link": lambda folder: (
        (path := next(folder.glob("iterations/*"))).rename(folder / "aside"), path.symlink_to(folder / "aside"),
    ),
    "no catalogue": lambda folder: (folder / catalogue.FILE).unlink(),
    "half a catalogue": lambda folder: os.truncate(folder / catalogue.FILE, 200),
    "a later catalogue": lambda folder: edited(folder, format=99),
    "a name that leads out": lambda folder: edited(folder, tables={"iterations": [{**FILE, "name": "../../x"}]}),
    "a run that is none": lambda folder: edited(folder, runs=[{"folder": "../x", "manifest": ""}]),
    "a run that is not there": lambda folder: edited(folder, tables={"iterations": [{**FILE, "runs": [99]}]}),
    "no stamps": lambda folder: edited(folder, tables={"iterations": [{**FILE, "stamps": []}]}),
}  # fmt: skip
FILE = {"name": f"iterations/2026-11-{'0' * 16}.parquet", "bytes": 1, "rows": 1, "runs": [0], "stamps": [[1, 1, 1]]}


def edited(folder, **values):
    about = json.loads((folder / catalogue.FILE).read_text())
    (folder / catalogue.FILE).write_text(json.dumps({**about, **values}))


@pytest.mark.parametrize("damage", DAMAGES)
def test_run_folders_answer_for_what_is_damaged_and_the_next_call_mends_it(results, damage):
    before = answers(results)
    compact(results)
    DAMAGES[damage](results / FOLDER)
    assert answers(results) == before
    compact(results)
    assert not sources(results).folders
    assert answers(results) == before


def test_wherever_it_is_killed_nothing_is_lost_and_the_next_call_goes_on(tmp_path):
    results = tmp_path / "results"
    write_run(results, iterations=5)
    compact(results)
    write_run(results, night=1, iterations=5)
    changed_manifest(next(results.glob("nightly/*")))
    truth = by_folders(results, tmp_path, ("runs", "all_iterations"))
    started = tmp_path / "started"
    shutil.copytree(results, started, symlinks=True)
    compacting.compact(started)  # copies have other inodes: now they are known
    changed_manifest(next(started.glob("nightly/*")))
    step = 0
    while killed_at(step := step + 1, lambda: compacting.compact(results)):
        assert answers(results, ("runs", "all_iterations")) == truth, f"killed at step {step}"
        if step % 3 == 0:  # go on from here; else the next one begins where this one was killed
            compacting.compact(results)
            changed_manifest(next(results.glob("nightly/*")))
    assert step > 10
    compacting.compact(results)
    assert answers(results, ("runs", "all_iterations")) == truth
    assert not [*results.glob("*/**/*.new")]
    on_disk = {path.relative_to(results / FOLDER).as_posix() for path in (results / FOLDER).glob("*/*")}
    assert on_disk == catalogue.read(results).names()


def test_what_a_killed_call_finished_is_not_written_again(results):
    step = 1
    while killed_at(step, lambda: compacting.compact(results)):
        finished = {path.name: path.stat().st_ino for path in (results / FOLDER).glob("*/*.parquet")}
        if len(finished) >= 5:
            break
        step += 4
    assert len(finished) >= 5
    compacting.compact(results)
    left = {path.name: path.stat().st_ino for path in (results / FOLDER).glob("*/*.parquet")}
    assert finished.items() <= left.items()


def overtaken(monkeypatch, results):
    """Have the next question find its files replaced between asking where they are and reading them."""
    plain = Here.sources

    def sources(self, table, folders):
        found = plain(self, table, folders)
        monkeypatch.setattr(Here, "sources", plain)
        shutil.rmtree(min(results.glob("nightly/*")))
        compacting.compact(results)
        return found

    monkeypatch.setattr(Here, "sources", sources)


QUESTIONS = {
    "query": lambda results: orch("query", "select count(*) n from iterations", "--csv", "--results", str(results)),
    "export": lambda results: orch("export", "all_iterations", "-o", f"{results}.csv", "--results", str(results)),
    "history": lambda results: orch("history", "nightly", "--json", "--results", str(results)),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_answered_whose_files_compacting_replaces(results, monkeypatch, question):
    compact(results)
    names = catalogue.read(results).names()
    overtaken(monkeypatch, results)
    status, found, err = QUESTIONS[question](results)
    assert status == 0, err
    gone = names - catalogue.read(results).names()
    assert any(name.startswith("iterations/") for name in gone), "what was to be read is gone"
    status, after, _ = QUESTIONS[question](results)
    assert (status, found.partition(" rows")[0]) == (0, after.partition(" rows")[0])


def test_a_file_that_is_damaged_while_nothing_is_compacted_is_an_error(results, monkeypatch):
    compact(results)
    plain = Here.sources

    def sources(self, table, folders):
        found = plain(self, table, folders)
        for path in (results / FOLDER / "iterations").iterdir():
            os.truncate(path, 100)
        return found

    monkeypatch.setattr(Here, "sources", sources)
    status, _, err = QUESTIONS["history"](results)
    assert status == 1
    assert "cannot be read" in err


def test_nights_are_compared_from_compacted_columns_alone(results, monkeypatch):
    write_night(results, 3, repetitions=2, iterations=20, slower=1.2)
    asked = (("history", "nightly", "--json"), ("compare", "nightly@2026-11-18", "nightly", "--json"))
    before = [orch(*argv, "--results", str(results)) for argv in asked]
    compact(results)
    for path in results.glob("nightly/*/tables/iterations.parquet"):
        about = path.stat()
        path.write_bytes(b"x" * about.st_size)  # whoever reads it fails
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert [orch(*argv, "--results", str(results)) for argv in asked] == before
    monkeypatch.setattr(manifests, "load", None)  # of all nights no whole manifest is read
    assert orch(*asked[0], "--results", str(results)) == before[0]


def test_only_text_lies_in_compacted_files_with_dictionaries(results):
    compact(results)
    for path in (results / FOLDER / "iterations").iterdir():
        group = pq.read_metadata(path).row_group(0)
        columns = [group.column(place) for place in range(group.num_columns)]
        assert {one.physical_type for one in columns if one.has_dictionary_page} == {"BYTE_ARRAY"}
        assert {one.compression for one in columns} == {"LZ4"}


def test_two_at_once_are_refused(results):
    with compacting.alone(results):
        status, _, err = orch("store", "compact", "--results", str(results))
    assert status == 1
    assert "another process compacts or pushes it" in err
    compact(results)


def test_a_damaged_table_is_told_and_the_rest_is_compacted(results):
    (sorted(results.glob("nightly/*"))[3] / "tables/iterations.parquet").write_bytes(b"x")
    status, _, err = orch("store", "compact", "--results", str(results))
    assert status == 1
    assert "cannot read" in err
    assert len(sources(results).folders) == 1


def test_a_link_among_a_runs_tables_is_not_followed(results, tmp_path):
    path = sorted(results.glob("nightly/*"))[3] / "tables/iterations.parquet"
    path.rename(tmp_path / "theirs.parquet")
    path.symlink_to(tmp_path / "theirs.parquet")
    compact(results)
    assert len(answers(results)["runs"]) == 6
    held = [len(file.runs) for file in catalogue.read(results).tables["iterations"]]
    assert sum(held) == 5


def test_without_a_store_there_is_nothing_to_compact(tmp_path):
    with pytest.raises(StoreError, match="no such folder"):
        compacting.compact(tmp_path / "nowhere")


def member(place, day, size=1000):
    return Member(place=place, folder=f"e/{place}", day=day, stamp=(place, size, place))


def partitions(members, today="2026-11-22"):
    return [(one.partition, len(one.members)) for one in targets.targets("iterations", members, today=today)]


def test_a_month_is_one_file_once_it_is_over_and_where_it_is_small():
    found = [member(1, "2026-10-01"), member(2, "2026-10-31"), member(3, "2026-11-01"), member(4, "2026-11-20")]
    assert partitions(found) == [("2026-10", 2), ("2026-11-01", 1), ("2026-11-20", 1)]
    assert partitions(found, "2026-12-01") == [("2026-10", 2), ("2026-11", 2)]
    large = member(5, "2026-10-01", targets.MONTH_BYTES)
    assert partitions([*found, large]) == [("2026-10-01", 2), ("2026-10-31", 1), ("2026-11-01", 1), ("2026-11-20", 1)]


def test_a_file_is_made_anew_where_one_of_its_runs_changed_and_nowhere_else():
    def made(*members):
        return [one.made_of for one in targets.targets("iterations", members, today="2026-11-22")]

    first = made(member(1, "2026-10-01"), member(2, "2026-11-02"))
    assert made(member(7, "2026-10-01"), member(2, "2026-11-02"))[1] == first[1]
    assert made(member(1, "2026-10-01", 7), member(2, "2026-11-02"))[0] != first[0]


@pytest.mark.parametrize(
    ("instant_ns", "day"), [(0, "1970-01-01"), (-(1 << 63), "1677-09-21"), ((1 << 63) - 1, "2262-04-11")]
)
def test_every_instant_has_a_day(instant_ns, day):
    assert targets.day_of(instant_ns) == day


def test_days_become_a_month_without_reading_run_folders_again(results, monkeypatch):
    compact(results)
    truth = answers(results)
    monkeypatch.setattr(compacting, "today", lambda: "2026-12-24")
    monkeypatch.setattr(compacting.Builder, "_of_run", lambda self, table, folder: pytest.fail(f"{folder} was read"))
    compacting.compact(results)
    assert [file.name.partition("-")[0] for file in catalogue.read(results).tables["iterations"]] == ["iterations/2026"]
    assert answers(results) == truth
