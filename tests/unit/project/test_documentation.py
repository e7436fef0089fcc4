"""Pages are read as a forge and the site read them: what is code, what is a link, what is to be run."""

from __future__ import annotations

import shlex

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from documentation import generated, markdown, tried
from orchestrator.cli.main import main
from tests.helpers.sealed_run import make_run

PAGE = """\
# A page

Text with [a link](other.md#part) and `[none](here.md)`:

    orch ls    every run
    ls

```bash run
orch run a.yaml \\
  --local  # for a start
# a remark
```

- an item

    with a paragraph, which is no code

```yaml
# a.yaml
name: a
```
"""


def test_blocks_are_fenced_or_indented():
    found = list(markdown.blocks(PAGE))
    assert [(block.language, block.marker, block.line) for block in found] == [
        ("", "", 5),
        ("bash", "run", 9),
        ("yaml", "", 19),
    ]
    assert found[0].text == "orch ls    every run\nls"


def test_an_open_fence_goes_to_the_end():
    (block,) = markdown.blocks("```\na\nb")
    assert block.text == "a\nb"


def test_commands_are_lines_without_their_remarks(tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text(PAGE)
    monkeypatch.setattr(tried, "ROOT", tmp_path)
    found = list(tried.commands("page.md"))
    assert [(one.text, one.line, one.how, one.explained) for one in found] == [
        ("orch ls", 5, "parsed", False),
        ("orch run a.yaml   --local", 9, "run", True),
    ]
    (block,) = tried.yaml_blocks("page.md")
    assert (block.name, block.only_read) == ("a.yaml", False)


@pytest.mark.parametrize("marker", ["parsed: it takes hours", "run on a testbed"])
def test_a_block_says_how_it_is_tried(tmp_path, monkeypatch, marker):
    (tmp_path / "page.md").write_text(f"```bash {marker}\norch ls\n```\n")
    monkeypatch.setattr(tried, "ROOT", tmp_path)
    (found,) = tried.commands("page.md")
    assert (found.how, found.explained) == ({"run on a testbed": "testbed"}.get(marker, "parsed"), True)


def test_a_command_says_in_its_remark_what_it_ends_with(tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text("```bash run\norch ls  # every run\norch compare a b  # ends with 4\n```\n")
    monkeypatch.setattr(tried, "ROOT", tmp_path)
    assert [(one.text, one.status) for one in tried.commands("page.md")] == [("orch ls", 0), ("orch compare a b", 4)]


def test_a_page_says_why_nothing_is_run(tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text("<!-- commands are parsed: they need a cluster -->\n\n    orch ls\n")
    monkeypatch.setattr(tried, "ROOT", tmp_path)
    assert [one.explained for one in tried.commands("page.md")] == [True]


def test_links_are_changed_outside_of_code():
    assert markdown.links(PAGE) == ["other.md"]
    changed = markdown.relinked(PAGE, lambda path: f"moved/{path}")
    assert "[a link](moved/other.md#part)" in changed
    assert "`[none](here.md)`" in changed
    assert markdown.links("[a](https://x.org) [b](#here) [c](mailto:x@y)") == []


def test_links_are_resolved_from_their_page():
    assert markdown.resolved("docs/a.md", "../README.md") == "README.md"
    assert markdown.resolved("README.md", "docs/a.md") == "docs/a.md"


def test_lists_that_the_site_would_show_as_text_are_found():
    assert list(markdown.loose_lists("text\n- a\n- b\n\n- c\n# d\n- e\n")) == [2]
    assert list(markdown.loose_lists("    - code\n    - code\n\ntext\n\n1. a\n2. b\n")) == []


def test_a_part_that_nobody_makes_is_an_error():
    with pytest.raises(KeyError, match="nothing"):
        generated.expanded("<!-- generated: nothing -->\n")


@pytest.mark.parametrize(
    ("typed", "page"),
    [
        *(
            (word, "not-supported.md")
            for word in (
                "Kubernetes",
                "pods",
                "macOS",
                "Windows",
                "WSL",
                "PBS",
                "LSF",
                "Ray",
                "InfiniBand",
                "NVLink",
                "EFA",
                "RCCL",
                "jumbo frames",
                "JAX",
                "Grafana",
                "BSD",
                "Intel MPI",
                "elastic",
            )
        ),
        *((word, "which-host-is-slow.md") for word in ("straggler", "host is slow", "latency", "retransmissions")),
        ("own collector", "own-parts.md"),
        ("jumbo frames", "first-cluster.md"),
        ("Grafana", "metrics.md"),
        ("permission denied", "no-root.md"),
        ("uninstall", "getting-started.md"),
    ],
)
def test_words_that_users_type_stand_in_the_page_that_answers(typed, page):
    """The site's search finds words of pages, and nothing else."""
    text = " ".join((tried.ROOT / "docs" / page).read_text(encoding="utf-8").lower().split())
    assert typed.lower() in text


def test_who_asks_for_a_slow_host_or_a_collector_is_answered_by_a_title():
    """Titles count most in a search."""
    titles = {
        page: (tried.ROOT / "docs" / page).read_text(encoding="utf-8").partition("\n")[0]
        for page in ("which-host-is-slow.md", "not-supported.md", "own-parts.md")
    }
    assert titles == {
        "which-host-is-slow.md": "# Which host is slow?",
        "not-supported.md": "# What is not supported",
        "own-parts.md": "# Your own collector, workload, traffic or condition",
    }


def test_the_commands_of_the_page_find_the_host_that_is_slow(tmp_path, monkeypatch, capsys):
    """In a run whose third rank computes longer, and on whose host packets are sent again and dropped."""
    run = make_run(
        tmp_path / "results" / "quickstart", change=lambda manifest: manifest.update(experiment="quickstart")
    )

    def slower(table, change):
        path = run / "tables" / f"{table}.parquet"
        frame = pq.read_table(path).to_pandas()
        change(frame)
        pq.write_table(pa.Table.from_pandas(frame, schema=pq.read_schema(path), preserve_index=False), path)

    def computes(frame):
        frame.loc[frame["node"] == "h3", "backward_s"] += 0.1

    def loses(frame):
        mine = frame["node"] == "h3"
        frame.loc[mine, "src"] = "10.77.0.3"
        frame.loc[mine, "retransmits"] = range(mine.sum())

    def drops(frame):
        mine = (frame["node"] == "h3") & (frame["counter"] == "rx_bytes")
        frame.loc[mine, "counter"] = "rx_dropped"
        frame.loc[frame["counter"].str.startswith("qdisc"), "value"] = 0.0

    for table, change in (("iterations", computes), ("sockets", loses), ("counters", drops)):
        slower(table, change)
    monkeypatch.chdir(tmp_path)
    answers = []
    for command in tried.commands("docs/which-host-is-slow.md"):
        if any(f" {table} " in command.text for table in ("iterations", "sockets", "counters")):
            assert main(shlex.split(command.text)[1:]) == 0
            answers.append(capsys.readouterr().out.splitlines()[2].split()[:2])
    assert answers[:3] == [["2", "h3"], ["10.77.0.3", "10.77.0.1"], ["h3", "eth0"]]
