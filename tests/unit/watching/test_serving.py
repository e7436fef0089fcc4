"""The page of `orch watch`: for this machine and whoever has its token, and it shows what it is told as text."""

from __future__ import annotations

import http.client
import json
import socket
import threading

import pytest

from orchestrator.core.errors import ConfigError
from orchestrator.watching import serving
from orchestrator.watching.view import Curve, Judged, Shown, View
from tests.helpers.browser import browser, is_here

WIDTHS = (1280, 390)
ODD = "<img src=x onerror=alert(1)>"
SHOWN = View(
    title=ODD,
    label="run 1 of 3",
    phase="window w1",
    progress="20 of 40 iterations",
    share=0.5,
    curves=(Curve(name="training", text="100 ms", values=(0.1, 0.2, 0.1)),),
    waits=("2 ranks wait for rank 1 on h2",),
    failures=(ODD,),
    gates=(Judged(name="load", mark="FAIL", text="load " * 60),),
    tables=(Shown(title="Hosts", head=("host", "receives"), rows=(("a-long-name-of-a-host" * 4, "1gbit"),)),),
)


@pytest.fixture
def page():
    with serving.served(0) as found:
        yield found


def asked(page, path, host=None):
    """Status, headers and content of an answer."""
    name, _, port = page.address.partition(":")
    with socket.create_connection((name, int(port)), timeout=60) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {host or page.address}\r\n\r\n".encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.headers, answer.read().decode()


def test_the_page_is_there_for_who_has_the_token(page):
    status, headers, text = asked(page, f"/{page.token}/")
    assert status == 200
    assert "<h1>orch watch</h1>" in text
    nonce = text.partition('<script nonce="')[2].partition('"')[0]
    assert f"script-src 'nonce-{nonce}'" in headers["Content-Security-Policy"]
    assert page.url == f"http://{page.address}/{page.token}/"
    assert page.address.startswith("127.0.0.1:")


@pytest.mark.parametrize("path", ["/", "/state", "//", "/wrong/", "/wrong/state", "/%00/", "/é/"])
def test_without_the_token_there_is_nothing(page, path):
    page.show(View(title="secret"))
    status, _, text = asked(page, path)
    assert (status, text) == (404, "not found\n")


def test_below_the_token_there_is_nothing_else(page):
    assert asked(page, f"/{page.token}/../etc/passwd")[0] == 404
    assert asked(page, f"/{page.token}")[0] == 404


def test_a_strangers_name_for_this_machine_is_refused(page):
    assert asked(page, f"/{page.token}/", host="evil.example")[0] == 404


def test_a_page_waits_for_what_is_new(page):
    page.show(View(title="one"))
    first = json.loads(asked(page, f"/{page.token}/state?0")[2])
    assert (first["title"], first["number"]) == ("one", 1)
    later = threading.Timer(0.1, page.show, (View(title="two"),))
    later.start()
    second = json.loads(asked(page, f"/{page.token}/state?1")[2])
    later.join()
    assert (second["title"], second["number"]) == ("two", 2)
    page.wait_until_fetched()


@pytest.mark.parametrize("seen", ["", "x", "-1", "9" * 40, "²"])
def test_odd_numbers_are_answered_at_once(page, seen):
    page.show(View(title="one"))
    assert json.loads(asked(page, f"/{page.token}/state?{seen}")[2])["number"] == 1


def test_a_port_that_is_taken_is_told(page):
    port = int(page.address.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"--port {port}: .*accepted: a port that is free"), serving.served(port):
        pass
    with pytest.raises(ConfigError, match="--port 99999"), serving.served(99999):
        pass


@pytest.mark.skipif(not is_here(), reason="chromium-headless-shell is not installed")
def test_a_browser_shows_what_is_told_as_text_at_any_width(page):
    with browser() as chromium:
        for width in WIDTHS:
            shown = chromium.new_page(viewport={"width": width, "height": 800})
            page.show(SHOWN)
            wrong = []
            shown.on("pageerror", lambda error, to=wrong: to.append(error))
            shown.on("dialog", lambda dialog, to=wrong: (to.append(dialog.message), dialog.dismiss()))
            shown.goto(page.url)
            shown.get_by_text("2 ranks wait for rank 1 on h2").wait_for()
            assert shown.locator("h1").inner_text() == ODD
            assert shown.locator("svg polyline").get_attribute("points").count(",") == 3
            assert shown.locator("td.bad").inner_text() == "FAIL"
            assert shown.evaluate("document.documentElement.scrollWidth") <= width
            page.show(View(title="later", verdict="r1: valid", ended=True))
            shown.get_by_text("r1: valid").wait_for()
            assert wrong == []
            shown.close()
