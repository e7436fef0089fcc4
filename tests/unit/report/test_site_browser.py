"""The front page in a real browser: filters, keys, views, themes, small screens, and names that are markup."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from orchestrator.report.site import page as site
from orchestrator.store import baselines, sweeps
from tests.helpers import manifests
from tests.helpers.browser import browser, is_here
from tests.helpers.machine import PATIENCE_S
from tests.helpers.night_runs import sweep_id, write_night, write_run

pytestmark = pytest.mark.skipif(not is_here(), reason="chromium-headless-shell is not installed")

NASTY = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
COUNT = 230
expect.set_options(timeout=1e3 * PATIENCE_S)
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Runs of one experiment, every third invalid and every fifth failed, and ten nights of a sweep with a step."""
    results = tmp_path_factory.mktemp("store") / "results"
    for number in range(COUNT):
        name = f"2026{number:04d}"
        manifests.left(
            results / "plain" / name,
            run=name,
            experiment="plain",
            began_ns=(1_790_000_000 + 86_400 * number) * 10**9,
            outcome="failed" if number % 5 == 4 else "completed",
            valid=number % 3 != 0,
            reasons=["cross traffic missed the request"] if number % 3 == 0 else [],
            jobs=job("resnet50"),
            windows=[window(0.1)],
        )
    for night in range(10):
        runs = write_night(results, night, slower=1.2 if night >= 5 else 1.0)
        if night == 0:
            baselines.save(results, "main", of=["nightly"], runs=[f"nightly/{run.name}" for run in runs])
    manifests.left(
        results / "odd" / "nasty",
        run="nasty",
        experiment="odd",
        valid=False,
        reasons=[NASTY],
        jobs=job(NASTY),
        windows=[window(0.2, label=NASTY)],
    )
    site.write(results)
    return results


def job(model: str) -> list[dict]:
    return [{"name": "training", "workload": "ddp", "model": model, "ranks": [{"rank": 0, "node": "h1"}]}]


def window(p50_s: float, label: str = "w1") -> dict:
    training = {
        "job": "training",
        "iterations": 100,
        "mean_s": p50_s,
        "p50_s": p50_s,
        "p50_low_s": 0.99 * p50_s,
        "p50_high_s": 1.01 * p50_s,
        "p99_s": 2 * p50_s,
    }
    load = {"source": "iperf0", "src": "h1", "dst": "h2", "requested_bps": 8e9, "achieved_bps": 7.9e9}
    return {
        "name": label,
        "start_ns": 1,
        "end_ns": 2,
        "valid": True,
        "reasons": [],
        "loads": [load],
        "training": [training],
    }


@pytest.fixture
def opened(chromium, results):
    """Open a view of the page; no request may leave it, and nothing may go wrong in its script."""
    wrong: list[str] = []
    contexts = []

    def opened(view: str = "", **context):
        contexts.append(chromium.new_context(**context))
        page = contexts[-1].new_page()
        page.set_default_timeout(1e3 * PATIENCE_S)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: None if "/index.html" in request.url else wrong.append(request.url))
        page.goto((results / site.FILE).as_uri() + view)
        page.wait_for_selector("html[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def count(page) -> str:
    return page.inner_text("#count")


def shown(page) -> list[str]:
    return page.locator("#runs-table a.row").all_inner_texts()


def test_all_runs_are_listed_in_pages_newest_first(opened):
    page = opened()
    assert count(page) == f"{COUNT + 31} runs"
    assert len(shown(page)) == 100
    page.click("button:has-text('Last')")
    page.wait_for_selector("text=page 3 of 3")
    assert len(shown(page)) == 61


def test_filters_narrow_the_list_and_stay_in_the_address(opened):
    page = opened()
    page.fill("#q", "RESNET50 2026000")
    assert count(page) == f"10 of {COUNT + 31} runs"
    page.select_option("#verdict", "failed")
    assert shown(page) == ["20260009", "20260004"]
    again = opened("#" + page.url.partition("#")[2])
    assert shown(again) == ["20260009", "20260004"]
    again.click("#clear")
    expect(again.locator("#q")).to_have_value("")
    again.select_option("#name", "nightly")
    assert count(again) == f"30 of {COUNT + 31} runs"
    again.fill("#q", "no such run")
    assert again.is_visible("text=No run is like that.")


def test_dates_bound_the_list(opened):
    page = opened("#runs?name=plain", timezone_id="UTC")
    days = page.locator("#runs-table td[data-label=began]").all_inner_texts()
    page.fill("#from", days[2][:10])
    page.fill("#to", days[1][:10])
    assert len(shown(page)) == 2


def test_columns_sort_both_ways_and_keep_the_focus(opened):
    page = opened()
    page.click("th button:has-text('median')")
    page.wait_for_selector("th[aria-sort]:has-text('median')")
    first = page.locator("#runs-table td[data-label='median iteration']").first
    expect(first).to_have_text("100 ms")
    page.keyboard.press("Enter")
    expect(first).not_to_have_text("100 ms")
    assert page.evaluate("document.activeElement.dataset.column") == "p50"


def test_keys_reach_everything(opened):
    page = opened("#sweeps")
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("2026001")
    assert len(shown(page)) == 10
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.innerText") == shown(page)[1]
    style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert style == "solid", "the focus is to be seen"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.press("ArrowDown")
    wanted = shown(page)[0]
    page.keyboard.press("Enter")
    page.wait_for_selector(f"#view-run h2:has-text('{wanted}')")


def test_the_first_stop_of_the_focus_skips_to_the_content(opened):
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    stops = []
    for _ in range(9):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.id || document.activeElement.innerText"))
    assert stops == ["Runs", "Sweeps", "History", "Compare", "theme", "q", "name", "verdict", "from"]


def test_a_run_is_shown_with_its_windows_and_what_to_type(opened):
    page = opened("#run?id=20260003")
    text = page.inner_text("#view-run")
    assert "cross traffic missed the request" in text
    assert "orch report 20260003" in text
    assert "99 ms to 101 ms" in text
    assert "8 Gbit/s" in text


def test_an_unknown_run_is_told(opened):
    page = opened("#run?id=%3Cb%3E")
    assert "<b> is not among the runs" in page.inner_text("#view-run")


def test_two_runs_stand_side_by_side(opened):
    page = opened()
    page.fill("#q", "2026001")
    for name in ("20260011", "20260012"):
        page.check(f"input[aria-label='compare {name}']")
    page.click("#picked a")
    page.wait_for_selector("#compared table")
    text = page.inner_text("#compared")
    assert "orch compare 20260011 20260012" in text
    assert "differs" in page.inner_text("#compared tr:has-text('verdict')")
    assert "+0.0 %" in text
    times = page.locator("#compared table").nth(1).locator("tbody tr")
    assert [row.inner_text().split("\t")[2].strip() for row in times.all()[:3]] == ["median", "mean", "p99"]
    loads = page.locator("#compared table").nth(2).inner_text()
    assert "8 Gbit/s" in loads
    assert "yes" in loads


def test_runs_that_were_set_differently_are_said_to_be(opened, results):
    nightly = min(path.name for path in (results / "nightly").iterdir())
    text = opened(f"#compare?a=20260001&b={nightly}").inner_text("#compared")
    assert "Set differently." in text
    assert f"orch compare 20260001 {nightly} --settings" in text
    assert "not measured" in text


def test_history_shows_each_point_its_step_and_its_baseline(opened):
    page = opened("#history?name=nightly")
    assert "2 points over 10 nights" in page.inner_text("#histories")
    assert "1 point moved" in page.inner_text("#histories")
    assert re.search(r"since \S+ mean \+(19|20)\.\d %", page.inner_text("#histories figcaption.stepped"))
    assert page.locator("#histories figure:first-of-type circle.marked").count() == 1
    page.click("#histories summary >> nth=0")
    assert len(page.locator("#histories details[open] tbody tr").all()) == 10
    assert "main" in page.inner_text("#histories details[open] tbody tr:first-child")
    page.check("#steps")
    expect(page.locator("#histories figure")).to_have_count(1)


def test_names_that_are_markup_stay_text(opened):
    page = opened("#run?id=nasty")
    assert NASTY in page.inner_text("#view-run")
    for view in ("#runs?q=nasty", "#compare?a=nasty&b=20260001", "#sweeps", "#history", f"#runs?q={NASTY}"):
        page.evaluate("(view) => { location.hash = view; }", view)
        expect(page.locator(f"#view-{view[1:].partition('?')[0]}")).to_be_visible()
        expect(page.locator("img")).to_have_count(0)
    assert page.title() == "results: runs"


def test_what_is_not_our_script_is_not_carried_out(chromium, results):
    page = chromium.new_page()
    page.goto((results / site.FILE).as_uri())
    button = "<b id=x onclick=\"document.title='taken'\">x</b>"
    with page.expect_console_message(lambda message: "Content Security Policy" in message.text):
        page.evaluate("(button) => document.body.insertAdjacentHTML('beforeend', button)", button)
        page.evaluate("document.getElementById('x').click()")
    assert page.title() == "results: runs"
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_until_it_is_chosen(opened, scheme):
    page = opened(color_scheme=scheme)
    back = "getComputedStyle(document.body).backgroundColor"
    colors = {"light": "rgb(255, 255, 255)", "dark": "rgb(23, 24, 27)"}
    assert page.evaluate(back) == colors[scheme]
    other = {"light": "dark", "dark": "light"}[scheme]
    page.select_option("#theme", other)
    assert page.evaluate(back) == colors[other]
    page.select_option("#theme", "auto")
    assert page.evaluate(back) == colors[scheme]


@pytest.mark.parametrize(
    "view", ["", "#run?id=20260003", "#run?id=nasty", "#compare?a=20260001&b=20260002", "#history", "#sweeps"]
)
def test_a_small_screen_shows_all_without_scrolling_sideways(opened, view):
    page = opened(view, viewport=PHONE)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= PHONE["width"], view
    if not view:
        card = page.locator("#runs-table tbody tr").first
        assert "verdict" in card.evaluate("(row) => getComputedStyle(row.cells[4], '::before').content")


def test_an_alarmed_night_and_a_failed_run_are_told_before_anything_else(chromium, tmp_path):
    plan = sweeps.Plan(
        id=sweep_id(0),
        name="nightly",
        began_ns=10**18,
        definition="d",
        repetitions=1,
        mode="windows",
        points=tuple(sweeps.PlannedPoint(point=f"id-load{load}", values={}) for load in (0, 8)),
    )
    sweep = sweeps.create(tmp_path, plan)
    alarmed = write_run(tmp_path)
    points = [{"point": "id-load0", "verdict": "worse"}, {"point": "id-load8", "verdict": "same"}]
    (sweep.path / "verdict.json").write_text(json.dumps({"points": points}))
    (sweep.path / "verdict.html").write_text("")
    failed = manifests.left(tmp_path / "e" / "lost", run="lost", outcome="failed", error="no tcpdump", windows=[])
    (failed / "experiment.yaml").write_text(json.dumps({"name": "e", "traffic": [{"iperf": {"load": "5gbit"}}]}))
    page = chromium.new_page()
    page.goto(site.write(tmp_path).as_uri())
    page.wait_for_selector("html[data-ready]")
    alarm = page.locator("#alarms p").first
    assert alarm.inner_text().startswith("nightly ")
    assert "worse 1" in alarm.inner_text()
    assert alarm.get_by_role("link").first.get_attribute("href") == f"sweeps/nightly/{sweep.id}/verdict.html"
    assert alarm.bounding_box()["y"] < page.locator("#filters").bounding_box()["y"]
    assert page.locator("#counts").inner_text().split() == ["failed", "1", "worse", "1"]
    row = page.locator(f"#runs-table tr:has-text('{alarmed.name}')")
    assert row.locator(".badge").all_inner_texts() == ["worse"]
    assert "5 Gbit/s" in page.locator("#runs-table tr:has-text('lost')").inner_text()
    assert "requested, not measured" in page.locator("#runs-table tr:has-text('lost')").inner_text()
    page.select_option("#verdict", "worse")
    assert shown(page) == [alarmed.name]
    page.close()
