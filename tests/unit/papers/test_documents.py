"""A paper as a document: answers, verdicts and drawings of a paper that is made here."""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path

import pytest

from orchestrator.api.results import Store
from orchestrator.cli.main import main
from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.experiment import paperfile
from orchestrator.papers import answering, bundle, page, reading, verdicts
from orchestrator.papers.verdicts import HELD, MISSED, NOT_COMPARED
from orchestrator.questions import changes
from orchestrator.questions.rows import Measured
from tests.helpers.night_runs import write_run

PAPER = """
name: made
title: "A. Author, Rings, 2021"
shows: Bytes of rings
sweeps: {quick: [one.yaml]}
printed:
  volumes:
    values: {gb: GB}
    place: Table 1
    rows:
      - {model: small, gb: "1.40"}
      - {model: large, gb: "~40"}
      - {model: huge, gb: "400", place: Fig 9}
  pairs: {place: section 2, rows: [{framework: ring, who: neighbours}]}
figures:
  - title: "Table 1: bytes"
    ask:
      - answers.made: {}
      - sql: "select model, repetition, gb, theory_gb from answer"
    draw: [{kind: bars, x: model, y: gb, printed: volumes}]
    table: {model: model, gb: GB}
    holds:
      - what: "{model}: bytes"
        by: [model]
        value: gb
        printed: volumes.gb
        within: 3%
        because: control messages are below 3 %
        fails:
          doubled: [{sql: "select * replace (gb * 2 as gb) from answer"}]
          theory: [{sql: "select * replace (theory_gb as gb) from answer"}]
          noise: [{noise: {column: gb}}]
"""
MADE = """
from orchestrator.questions.registry import source, step

ROWS = {rows}

@source
def made(measured):
    return [dict(row) for row in ROWS]

@step
def halved(rows, *, column):
    return [{{**row, column: row[column] / 2}} for row in rows]
"""


def row(model, repetition, gb, theory_gb=math.nan):
    return {"model": model, "repetition": repetition, "gb": gb, "theory_gb": theory_gb}


GOOD = [
    row("small", 1, 1.40, 1.2),
    row("small", 2, 1.404, 1.2),
    row("large", 1, 40.1, 33.0),
    row("large", 2, 40.2, 33.0),
]


def paper(folder: Path, rows=GOOD, *, text: str = PAPER):
    (folder / "paper.yaml").write_text(text)
    (folder / "answers.py").write_text(MADE.format(rows=rows).replace("nan", "float('nan')"))
    return reading.paper(folder / "paper.yaml")


def lines_of(found):
    return [one for figure in found.file.figures for one in verdicts.lines(found, figure, Measured(entries=()))]


def verdicts_of(found):
    return {one.what: one.verdict for one in lines_of(found)}


def test_a_value_is_held_where_its_interval_lies_within_the_margin(tmp_path):
    small, large, huge = lines_of(paper(tmp_path))
    assert (small.verdict, small.printed, small.place) == (HELD, "1.40 GB", "Table 1")
    assert (large.verdict, large.printed) == (HELD, "~40 GB")
    assert (huge.verdict, huge.why, huge.place) == (NOT_COMPARED, verdicts.NOTHING, "Fig 9")


def test_a_value_beyond_the_margin_is_missed(tmp_path):
    rows = [row("small", 1, 1.5, 1.2), row("small", 2, 1.501, 1.2)]
    (small, *_) = lines_of(paper(tmp_path, rows))
    assert (small.verdict, small.difference) == (MISSED, "+7.2 %")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([row("small", 1, 1.40, 1.2)], verdicts.ONE_RUN),
        ([row("small", 1, 1.3, 1.2), row("small", 2, 1.5, 1.2)], verdicts.WIDE),
        ([row("small", 1, math.nan, 1.2), row("small", 2, 1.4, 1.2)], verdicts.NOTHING),
    ],
    ids=["one run", "a wide interval", "not a number"],
)
def test_what_cannot_be_told_is_not_compared(tmp_path, rows, why):
    (small, *_) = lines_of(paper(tmp_path, rows))
    assert (small.verdict, small.why) == (NOT_COMPARED, why)


def test_a_line_with_which_theory_agrees_as_well_shows_nothing(tmp_path):
    rows = [row("small", 1, 1.40, 1.39), row("small", 2, 1.404, 1.39)]
    (small, *_) = lines_of(paper(tmp_path, rows))
    assert small.verdict == NOT_COMPARED
    assert "with theory in place of the measurements it agrees as well" in small.why


def test_an_input_that_leaves_a_line_as_it_is_does_not_count_against_it(tmp_path):
    rows = [row("small", 1, 1.40, 1.40), row("small", 2, 1.404, 1.404)]
    assert lines_of(paper(tmp_path, rows))[0].verdict == HELD


def test_rows_in_another_order_are_no_other_input(tmp_path):
    rows = [row("small", 1, 1.40, 1.40), row("small", 1, 1.41, 1.41), row("small", 2, 1.404, 1.404)]
    shuffled = PAPER.replace("select * replace (theory_gb as gb) from answer", "select * from answer order by gb desc")
    assert lines_of(paper(tmp_path, rows, text=shuffled))[0].verdict == HELD


def test_half_a_unit_of_the_last_printed_digit_agrees(tmp_path):
    exact = PAPER.replace("        within: 3%\n", "")
    rows = [
        row("large", 1, 40.4, 33.0),
        row("large", 2, 40.41, 33.0),
        row("small", 1, 1.42, 1.0),
        row("small", 2, 1.4201, 1.0),
    ]
    assert verdicts_of(paper(tmp_path, rows, text=exact)) == {
        "large: bytes": HELD,
        "small: bytes": MISSED,
        "huge: bytes": NOT_COMPARED,
    }


CLAIM = """
      - what: "{framework}: who exchanges"
        by: [framework]
        value: same_pairs
        printed: pairs.who
        because: the same pairs
        fails: {mesh: [{sql: "select * replace (false as same_pairs) from answer"}]}
"""


@pytest.mark.parametrize(
    ("true", "verdict"),
    [([True, True], HELD), ([False, False], MISSED), ([True, False], NOT_COMPARED), ([True], NOT_COMPARED)],
)
def test_a_claim_has_to_hold_each_time(tmp_path, true, verdict):
    rows = [{"framework": "ring", "repetition": place, "same_pairs": one} for place, one in enumerate(true)]
    start = PAPER.index("      - what:")
    text = (
        PAPER[:start].replace("select model, repetition, gb, theory_gb from answer", "select * from answer") + CLAIM[1:]
    )
    text = text.replace("draw: [{kind: bars, x: model, y: gb, printed: volumes}]", "draw: []").replace(
        "    table: {model: model, gb: GB}\n", ""
    )
    (line,) = lines_of(paper(tmp_path, rows, text=text))
    assert (line.verdict, line.printed) == (verdict, "neighbours")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("volumes.gb", "volume.gb", "printed: volume.gb: accepted: volumes, pairs"),
        ("volumes.gb", "volumes.tb", "accepted columns: model, gb"),
        ("- answers.made: {}", "- answers.nothing: {}", "answers.nothing: no such step; accepted: answers.made"),
        ("- answers.made: {}", "- volumes_of: {}", "volumes_of: no such step; accepted: sql, "),
        ("- answers.made: {}", "- answers.halved: {column: gb}", "changes rows; accepted: after a step"),
        ("- answers.made: {}", "- iterations: {colums: {}}", "colums: no such argument; accepted: columns"),
        ('gb: "1.40"', "gb: 1.40", "accepted: text, so that its digits are kept"),
        ('gb: "1.40"', 'gb: "many"', "is no number as printed"),
        ("        because: control messages are below 3 %\n", "", "because"),
        ("select model, repetition, gb", "selec model, repetition, gb", "syntax error"),
        ("select model, repetition, gb, theory_gb from answer", "create table x(y int)", "accepted: one select"),
        ("select model, repetition, gb, theory_gb from answer", "select 1; select 2", "accepted: one select"),
        ("select model, repetition, gb, theory_gb from answer", "", "accepted: one select"),
        ("kind: bars", "kind: pie", "draw.0.kind"),
        ("kind: bars", "kind: answers.drawn", "answers.drawn: no such step"),
        ("        within: 3%\n", "        within: 3%\n        least: 1\n", "one of within, by_most, and least or most"),
    ],
)
def test_a_mistake_is_told_before_anything_is_measured(tmp_path, old, new, said):
    assert old in PAPER
    with pytest.raises(ConfigError) as caught:
        paper(tmp_path, text=PAPER.replace(old, new, 1))
    assert said in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("by: [model]", "by: [modell]", "modell: no such column of its answer; accepted: model, repetition, gb"),
        ("select model, repetition, gb", "select model, repetition, tb as gb", "tb"),
        ("x: model, y: gb", "x: modell, y: gb", "drawing: modell: accepted columns: model"),
        ("value: gb", "value: model", "model: accepted: a number, or true and false"),
        ("{noise: {column: gb}}", "{noise: {column: gbb}}", "noise: KeyError: 'gbb'; columns of its rows: model"),
        (
            "- answers.made: {}",
            "- answers.made: {}\n      - answers.halved: {column: tb}",
            "answers.halved: KeyError: 'tb'",
        ),
    ],
)
def test_a_mistake_of_columns_is_told_with_those_there_are(tmp_path, old, new, said):
    found = paper(tmp_path, text=PAPER.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        page.render(found, (), tmp_path / "page.html")
    assert said in str(caught.value), str(caught.value)


@pytest.mark.parametrize("reads", ["select * from read_csv('/etc/passwd')", "select * from '/etc/passwd'"])
def test_sql_of_a_paper_touches_nothing_but_its_tables(tmp_path, reads):
    found = paper(tmp_path, text=PAPER.replace("select model, repetition, gb, theory_gb from answer", reads, 1))
    with pytest.raises(ConfigError):
        answering.answer(found, found.file.figures[0], Measured(entries=()))


def test_a_page_has_the_counts_first_and_a_drawing_for_each_figure(tmp_path):
    out = page.render(paper(tmp_path), (), tmp_path / "page.html")
    text = out.path.read_text()
    assert text.index("2 held, 0 missed, 1 not compared") < text.index("Table 1: bytes") < text.index("<svg")
    assert (tmp_path / "page-figures/figure-1.svg").is_file()
    assert (tmp_path / "page-figures/figure-1.csv").is_file()


def test_a_page_without_an_answer_says_so(tmp_path):
    with pytest.raises(Exception, match="nothing to show"):
        page.render(paper(tmp_path, []), (), tmp_path / "page.html")


def test_printed_values_that_nothing_uses_are_found(tmp_path):
    assert list(reading.unused(paper(tmp_path))) == ["pairs: {'framework': 'ring', 'who': 'neighbours'}"]


@pytest.mark.parametrize(
    ("text", "value", "half"),
    [("1.40", 1.4, 0.005), ("~85", 85, 0.5), ("1,880", 1880, 0.5), ("1.5e3", 1500, 50), ("-2", -2, 0.5)],
)
def test_a_printed_number_keeps_its_digits(text, value, half):
    found = paperfile.number(text)
    assert (found.value, pytest.approx(found.half)) == (value, half)


def test_sums_and_decimals_of_sql_are_numbers(tmp_path):
    told = (
        "select model, repetition, 0.5 * 2.8 as gb, 1.2 as theory_gb, sum(repetition) as many from answer group by all"
    )
    found = paper(tmp_path, text=PAPER.replace("select model, repetition, gb, theory_gb from answer", told))
    (row, *_) = answering.answer(found, found.file.figures[0], Measured(entries=()))
    assert (type(row["gb"]), type(row["many"])) == (float, int)
    assert row["gb"] == pytest.approx(1.4)


def test_values_of_several_kinds_in_a_column_are_told(tmp_path):
    with pytest.raises(ConfigError, match="a column has values of several kinds"):
        lines_of(paper(tmp_path, [row("small", 1, 1.4), row(7, 2, 1.4)]))


def test_rotated_rows_have_the_values_of_others():
    rows = [row(model, rep, gb) for model, gb in (("a", 1.0), ("b", 2.0), ("c", 3.0)) for rep in (1, 2)]
    by_model = {one["model"]: one["gb"] for one in changes.rotated(rows, column="gb", over="model")}
    assert by_model == {"a": 2.0, "b": 3.0, "c": 1.0}


def test_rows_without_a_place_are_not_rotated():
    rows = [{"repetition": 1, "cap": cap, "s": cap or 0.5} for cap in (None, 1.0, 2.0, math.nan)]
    found = changes.rotated(rows, column="s", over="cap")
    assert sorted((str(one["cap"]), str(one["s"])) for one in found) == [
        ("1.0", "2.0"),
        ("2.0", "1.0"),
        ("None", "0.5"),
        ("nan", "nan"),
    ]


def test_a_ratio_is_that_of_its_repetition():
    rows = [
        {"traffic": name, "repetition": rep, "s": s}
        for name, rep, s in [("none", 1, 2.0), ("web", 1, 3.0), ("none", 2, 4.0), ("web", 2, 8.0)]
    ]
    assert [one["ratio"] for one in changes.ratio(rows, of="s", over="traffic", to="none")] == [1.5, 2.0]


@pytest.fixture
def bundled(tmp_path):
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "one.yaml").write_text(
        "name: one\nexperiment: e.yaml\naxes: {seed: [1]}\n".replace("seed: [1]", "measure.iterations: [3]")
    )
    (folder / "e.yaml").write_text(
        "name: e\ntestbed: {local: {hosts: 2, link: 1gbit, scale: 100}}\n"
        "workload: {ddp: {model: resnet50, hosts: [h1, h2]}}\n"
        "measure: {warmup: 1, iterations: 3}\n"
    )
    (folder / "study-made.html").write_text("a page of yesterday")
    (folder / "study-made-figures").mkdir()
    (folder / "study-made-figures/figure-1.csv").write_text("of yesterday")
    (folder / "results").mkdir()
    (folder / "results/big").write_text("runs")
    out = bundle.write(paper(folder), (), tmp_path / "out.zip", version="quick", options=("--set", "measure.warmup=2"))
    return folder, out


def test_a_bundle_has_what_shows_and_repeats_a_study(bundled, tmp_path):
    folder, out = bundled
    found = bundle.unpacked(out, tmp_path / "there")
    names = {str(path.relative_to(found)) for path in found.rglob("*") if path.is_file()}
    assert {
        "page.html",
        "page-figures/figure-1.svg",
        "answers/figure-1.csv",
        "environment.json",
        "bundle.json",
    } <= names
    assert {name for name in names if name.startswith("paper/")} == {
        f"paper/{name}" for name in ("paper.yaml", "answers.py", "one.yaml", "e.yaml")
    }
    assert "orch study paper --sweeps quick --set measure.warmup=2" in (found / "README.md").read_text()
    assert bundle.about(out).headline == "2 held, 0 missed, 1 not compared"
    assert reading.paper(found / "paper/paper.yaml").file == reading.paper(folder / "paper.yaml").file


def test_a_bundle_that_lies_in_the_paper_s_folder_is_no_part_of_the_next_one(bundled):
    folder, _ = bundled
    for _ in range(2):
        out = bundle.write(reading.paper(folder / "paper.yaml"), (), folder / "made.zip", version="quick")
    with zipfile.ZipFile(out) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".zip")]


def test_a_paper_that_needs_files_elsewhere_is_not_bundled(bundled, tmp_path):
    folder, _ = bundled
    (tmp_path / "elsewhere.yaml").write_text("measure: {warmup: 1, iterations: 3}\n")
    text = (
        (folder / "e.yaml").read_text().replace("measure: {warmup: 1, iterations: 3}\n", "include: ../elsewhere.yaml\n")
    )
    (folder / "e.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"cannot be read from a copy of this folder alone"):
        bundle.write(reading.paper(folder / "paper.yaml"), (), tmp_path / "o.zip", version="quick")


def test_the_command_shows_a_bundle_and_carries_out_nothing_of_it(bundled, tmp_path, monkeypatch, capsys):
    folder, out = bundled
    monkeypatch.chdir(tmp_path)
    (folder / "answers.py").write_text("raise SystemExit('carried out')")
    assert main(["study", str(out)]) == 0
    said = capsys.readouterr().out
    assert "2 held, 0 missed, 1 not compared" in said
    assert (tmp_path / "out/made/page.html").is_file()
    (tmp_path / "out/made/results").mkdir()
    assert main(["study", str(out)]) == 0, "it was shown, and perhaps measured, before"
    (tmp_path / "out/made/page.html").write_text("another")
    assert main(["study", str(out)]) == 1
    assert "is there already, and not what" in capsys.readouterr().err
    assert main(["study", str(folder), "--again"]) == 2
    assert "is no bundle" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "made/../../outside", "other/file", "file"])
def test_a_bundle_with_names_that_lead_elsewhere_is_refused(bundled, tmp_path, name):
    _, out = bundled
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr(name, "x")
    with pytest.raises(StoreError, match="cannot be unpacked"):
        bundle.unpacked(out, tmp_path / "deep/there")
    assert not (tmp_path / "outside").exists()
    assert list((tmp_path / "deep/there").iterdir()) == []


def test_a_bundle_with_a_link_is_refused(bundled, tmp_path):
    _, out = bundled
    link = zipfile.ZipInfo("made/link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(StoreError, match="is a link"):
        bundle.unpacked(out, tmp_path / "there")


def test_a_broken_bundle_is_one_error_and_leaves_nothing(bundled, tmp_path):
    _, out = bundled
    data = bytearray(out.read_bytes())
    at = data.index(b"page.html") + 200
    data[at : at + 400] = bytes(400)
    out.write_bytes(bytes(data))
    with pytest.raises(StoreError, match="cannot be"):
        bundle.unpacked(out, tmp_path / "there")
    assert not (tmp_path / "there/made").exists()


@pytest.mark.parametrize("content", [b"", b"PK no zip", b'{"format": 1}'])
def test_what_is_no_bundle_is_refused(tmp_path, content):
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(StoreError, match="cannot be read as a zip archive"):
        bundle.about(tmp_path / "x.zip")


FIGURES = """
figures:
  - title: Iteration time by model
    ask:
      - iterations: {}
      - sql: select model, repetition, 1000 * seconds as ms from answer
    draw: [{kind: bars, x: model, y: ms}]
    holds:
      - {what: "{model}: time", by: [model], value: ms, says: below a second, place: the goal, most: 1000,
         because: it is the goal, fails: {slower: [{sql: "select * replace (seconds * 100 as seconds) from answer"}]}}
"""


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    results = tmp_path_factory.mktemp("nights")
    for repetition in (1, 2, 3):
        run = write_run(results, name="one", sweep=False, seconds={"w1": 0.2}, repetition=repetition, seed=repetition)
        manifest = json.loads((run / "manifest.json").read_text())
        job = {"name": "training", "workload": "ddp", "model": "resnet50", "compute": "emulated", "ranks": []}
        (run / "manifest.json").write_text(json.dumps(manifest | {"jobs": [job]}))
        (run / "experiment.yaml").write_text("windows: [{name: w1}]")
    return results


def test_a_file_of_figures_is_drawn_without_a_paper(nights, tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text(FIGURES)
    asked = [str(tmp_path / "mine.yaml"), "one", "--results", str(nights), "-o", str(tmp_path / "out/mine")]
    assert main(["figure", *asked]) == 0
    said = capsys.readouterr().out
    assert "resnet50: time: 2" in said
    assert "below a second: held" in said
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        f"mine-1{suffix}" for suffix in (".svg", ".pdf", ".csv", "-rows.csv")
    }
    assert main(["figure", *asked, "--over", "load"]) == 2


def test_a_program_asks_the_same_question(nights):
    store = Store(nights)
    rows = store.ask({"iterations": {}}, {"sql": "select model, repetition, seconds from answer order by repetition"})
    assert [row["repetition"] for row in rows] == [1, 2, 3]
    assert rows[0]["seconds"] == pytest.approx(0.2, rel=0.05)
    assert len(store.ask({"iterations": {}}, runs=store.runs()[:2])) == 2
    with pytest.raises(ConfigError, match="nothing: no such step; accepted: sql, "):
        store.ask({"nothing": {}})
