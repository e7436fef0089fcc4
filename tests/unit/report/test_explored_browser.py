"""Pages of reports in a real browser: values at the pointer and by keys, zoom, filters, sorted tables, odd names."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.report import page as pages
from orchestrator.report import tables
from orchestrator.report.run.report_page import render
from orchestrator.report.style import Picture, errorbars, figure, legend, look, save
from tests.helpers.browser import browser, is_here
from tests.helpers.machine import PATIENCE_S
from tests.helpers.sealed_run import loose, make_run

pytestmark = pytest.mark.skipif(not is_here(), reason="chromium-headless-shell is not installed")

NASTY = "</script><img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
expect.set_options(timeout=1e3 * PATIENCE_S)
RATES = ["9 Mbit/s", "1.2 Gbit/s", "", "80 kbit/s", "9 Mbit/s", "none"]


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


def curves():
    """Two panels with a shared x axis: two series with intervals above, bars of words in groups below."""
    drawing, (above,) = figure(height_in=2.5)
    for number, name in enumerate(("vgg16", NASTY)):
        middles = [10.0 * at + 20 * number for at in range(1, 6)]
        estimates = [Estimate(one, one - 1, one + 2) for one in middles]
        errorbars(above, [1.0, 2.0, 3.0, 4.0, 5.0], estimates, number=number, label=name)
    above.set(xlabel="load (Gbit/s)", ylabel="time (ms)")
    legend(above, columns=1)
    return drawing


def groups():
    drawing, (panel,) = figure(height_in=2.5)
    for place, name in enumerate(("one", "two")):
        panel.bar([at + 0.4 * place for at in range(3)], [1.0 + place, 2.0, 3.0], 0.4, label=name)
    panel.set_xticks([0.2, 1.2, 2.2], ["h1", "h2", "h3"])
    panel.set(xlabel="host", ylabel="count")
    legend(panel)
    return drawing


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A page with both figures and a table, and the report of a run."""
    folder = tmp_path_factory.mktemp("explored")

    def shown(figures):
        with look():
            pictures = [
                Picture(name=name, title=name, caption="", saved=save(draw(), figures / name))
                for name, draw in (("curves", curves), ("groups", groups))
            ]
        heads = ["host", tables.Number("rate"), "note"]
        rows = [[f"h{len(RATES) - at}", rate, NASTY if at == 2 else ""] for at, rate in enumerate(RATES)]
        return {"title": NASTY, "points": [], "notes": [], "traffic": "", "pictures": pictures,
                "tables": [tables.table("Loads", heads, rows)]}  # fmt: skip

    def named(manifest):
        manifest["experiment"], manifest["notes"] = NASTY.replace("/", ""), [NASTY]

    run = make_run(folder / "e", tolerances=loose(), iterations=60, windows_count=2, change=named)
    return {
        "figures": pages.write("capture_page.html", folder / "figures.html", shown),
        "run": render([run], folder / "run.html"),
    }


@pytest.fixture
def opened(chromium, written):
    """Open a page; no request may leave it, and nothing may go wrong in its script."""
    wrong: list[str] = []
    contexts = []

    def opened(kind="figures", **context):
        contexts.append(chromium.new_context(viewport={"width": 1280, "height": 900}, **context))
        shown = contexts[-1].new_page()
        shown.set_default_timeout(1e3 * PATIENCE_S)
        shown.on("pageerror", lambda error: wrong.append(str(error)))
        shown.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        shown.on("request", lambda request: None if request.url.endswith(".html") else wrong.append(request.url))
        shown.goto(written[kind].as_uri())
        if context.get("java_script_enabled", True):
            shown.wait_for_selector("html[data-ready]")
            shown.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        return shown

    yield opened
    for context in contexts:
        context.close()
    assert [url for url in wrong if not url.startswith("data:")] == []


def point(shown, frame, x, y):
    """Move the pointer to a place of a drawing, in shares of its width and height."""
    frame.scroll_into_view_if_needed()
    box = frame.locator("svg").bounding_box()
    shown.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])


def drag(shown, frame, start, end):
    point(shown, frame, *start)
    shown.mouse.down()
    point(shown, frame, *end)
    shown.mouse.up()


def drawn(frame):
    """Return everything that tells how a figure is drawn."""
    return frame.locator("svg path").evaluate_all("(paths) => paths.map((one) => one.getAttribute('d'))")


def test_the_value_at_the_pointer_is_named_with_its_units_and_interval(opened):
    shown = opened()
    point(shown, shown.locator(".drawing").first, 0.1, 0.98)
    expect(shown.locator(".tip")).to_be_hidden()
    point(shown, shown.locator(".drawing").first, 0.97, 0.25)
    expect(shown.locator(".tip strong")).to_have_text(NASTY)
    expect(shown.locator(".tip span")).to_have_text(["load (Gbit/s): 5", "time (ms): 70", "interval: 69 to 72"])
    shown.mouse.move(5, 5)
    expect(shown.locator(".tip")).to_be_hidden()


def test_a_bar_is_meant_wherever_the_pointer_is_in_it_and_named_by_its_group(opened):
    shown = opened()
    frame = shown.locator(".drawing").nth(1)
    box = frame.locator("svg").evaluate("(svg) => svg.querySelectorAll('[role=button]').length")
    assert box == 2
    bars = frame.locator("[data-part] > path[clip-path]")
    last = bars.nth(bars.count() - 1).bounding_box()
    frame.scroll_into_view_if_needed()
    last = bars.nth(bars.count() - 1).bounding_box()
    shown.mouse.move(last["x"] + last["width"] / 2, last["y"] + last["height"] - 3)
    expect(shown.locator(".tip strong")).to_have_text("two")
    expect(shown.locator(".tip span")).to_have_text(["host: h3", "count: 3"])


def test_a_box_zooms_with_ticks_of_its_own_and_a_double_click_shows_all(opened):
    shown = opened()
    frame = shown.locator(".drawing").first
    before = drawn(frame)
    drag(shown, frame, (0.40, 0.4), (0.60, 0.7))
    after = drawn(frame)
    assert after != before
    ticks = [float(text) for text in frame.locator("text.tick").all_text_contents()]
    assert len(ticks) >= 4
    assert all(0 < tick < 70 for tick in ticks)
    point(shown, frame, 0.5, 0.5)
    expect(shown.locator(".tip span").first).to_have_text("load (Gbit/s): 3")
    frame.locator("svg").dblclick(position={"x": 300, "y": 100})
    assert frame.locator("text.tick").count() == 0
    moved = [re.findall(r"-?[\d.]+", one) for one in drawn(frame)]
    kept = [re.findall(r"-?[\d.]+", one) for one in before]
    for new, old in zip(moved, kept, strict=True):
        assert list(map(float, new)) == pytest.approx(list(map(float, old)), abs=0.002)


def test_a_name_in_the_legend_hides_its_series(opened):
    shown = opened()
    frame = shown.locator(".drawing").first
    entry = frame.get_by_role("button", name="onerror")
    entry.focus()
    shown.keyboard.press("Enter")
    expect(entry).to_have_attribute("aria-pressed", "false")
    point(shown, frame, 0.97, 0.25)
    expect(shown.locator(".tip strong")).to_have_text("vgg16")
    entry.click()
    expect(entry).to_have_attribute("aria-pressed", "true")
    assert frame.locator(".out:not(.mark):not(.chosen)").count() == 0


def test_keys_move_along_values_and_zoom(opened):
    shown = opened()
    frame = shown.locator(".drawing").first
    frame.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        shown.keyboard.press(key)
    expect(shown.locator(".tip strong")).to_have_text(NASTY)
    expect(shown.locator("[aria-live]")).to_contain_text("load (Gbit/s): 2, time (ms): 40, interval: 39 to 42")
    shown.keyboard.press("+")
    assert frame.locator("text.tick").count() > 3
    shown.keyboard.press("Escape")
    assert frame.locator("text.tick").count() == 0


def test_a_table_is_sorted_by_its_heads_numbers_by_their_units(opened):
    shown = opened()
    table = shown.get_by_role("region", name="Loads").locator("table")
    head = table.get_by_role("columnheader", name="rate")

    def column(number):
        return table.locator(f"tbody td:nth-child({number})").all_inner_texts()

    head.get_by_role("button").click()
    assert column(2) == ["80 kbit/s", "9 Mbit/s", "9 Mbit/s", "1.2 Gbit/s", "", "none"]
    assert column(1) == ["h3", "h6", "h2", "h5", "h4", "h1"], "rows that are alike keep their order"
    expect(head).to_have_attribute("aria-sort", "ascending")
    head.get_by_role("button").click()
    assert column(2) == ["1.2 Gbit/s", "9 Mbit/s", "9 Mbit/s", "80 kbit/s", "", "none"]
    expect(head).to_have_attribute("aria-sort", "descending")
    head.get_by_role("button").click()
    assert column(2) == RATES
    assert head.get_attribute("aria-sort") is None
    table.get_by_role("columnheader", name="host").get_by_role("button").click()
    assert column(1) == [f"h{number}" for number in range(1, 7)]


@pytest.mark.parametrize("kind", ["figures", "run"])
def test_names_that_are_markup_stay_text(opened, kind):
    shown = opened(kind)
    for frame in shown.locator(".drawing").all():
        point(shown, frame, 0.5, 0.4)
    assert shown.title() != "taken"
    assert shown.locator("img").count() == 0


def test_the_policy_of_a_page_allows_its_own_script_only(chromium, written):
    shown = chromium.new_page()
    shown.goto(written["figures"].as_uri())
    refused = []
    shown.on("console", lambda message: refused.append(message.text))
    shown.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'document.title = 1'}))"
    )
    shown.evaluate("fetch('https://example.org/').catch(() => null)")
    assert shown.title() != "1"
    shown.close()
    assert ["script-src" in text for text in refused[:1]] == [True]
    assert any("connect" in text or "default-src" in text for text in refused[1:])


def test_without_a_script_the_page_has_everything(opened):
    shown = opened(java_script_enabled=False)
    assert shown.locator(".drawing svg").count() == 2
    assert shown.locator("button").count() == 0
    assert shown.get_by_role("region", name="Loads").locator("tbody tr").count() == len(RATES)


def test_what_is_printed_is_what_was_drawn(opened):
    shown = opened()
    frame = shown.locator(".drawing").first
    drag(shown, frame, (0.40, 0.4), (0.60, 0.7))
    assert frame.locator("text.tick").count() > 0
    shown.pdf()
    assert frame.locator("text.tick").count() == 0


def test_exploring_adds_little_to_a_page(written):
    """The script once a page, and of each figure less than its drawing."""
    text = written["run"].read_text()
    figures = re.findall(r'data-explored="([^"]*)">(<svg.*?</svg>)', text, re.DOTALL)
    assert figures
    assert len(pages.environment().globals["script"]) < 32_000
    assert sum(len(data) for data, _ in figures) < sum(len(svg) for _, svg in figures)
