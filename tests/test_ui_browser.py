"""The pages in a real browser: nothing in the console, nothing for axe to find, live updates, hostile texts as texts, keyboard and phone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.store.asks import Ask, read_ask
from gepa_lite.store.run_store import RunStore
from tests.test_report import good_run, hostile_run

sync_api = pytest.importorskip("playwright.sync_api")
axe_core_python = pytest.importorskip("axe_core_python")
pytest.importorskip("uvicorn")

CHROMIUM = Path("/usr/bin/chromium")
AXE = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
WAIT = 30_000
SERIOUS = ("serious", "critical")
VIEWS = ["", "/candidates", "/candidate/1", "/proposals", "/proposal/3", "/lineage", "/matrix", "/measures", "/settings"]

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium on this machine")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    good_run(folder / "good", merge="paper", fan=1)
    hostile_run(folder / "hostile")
    return folder


@contextmanager
def serving(root: Path) -> Iterator[str]:
    """The address of a server on a free port."""
    import socket

    import uvicorn

    from gepa_lite.ui.app import make_app

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(make_app(root), log_level="warning", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with serving(root) as found:
        yield found


class Watched:
    """A page whose console, errors, dialogs and requests are kept."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.noise: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.noise.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.noise.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.noise.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def faults(self) -> list[str]:
        """What axe finds serious."""
        self.page.evaluate(AXE)
        result = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{rule['id']}: {node['target']} {node.get('failureSummary', '')[:300]}"
            for rule in result["violations"]
            if rule["impact"] in SERIOUS
            for node in rule["nodes"][:5]
        ]


@pytest.fixture
def watched(browser: Any) -> Iterator[Callable[..., Watched]]:
    opened: list[Watched] = []

    def open_page(**options: Any) -> Watched:
        opened.append(Watched(browser, **options))
        return opened[-1]

    yield open_page
    for page in opened:
        page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["good", "hostile"])
def test_every_view_is_quiet_and_reachable(name: str, scheme: str, address: str, watched: Callable[..., Watched]) -> None:
    found = watched(color_scheme=scheme)
    for path in ["/", f"/compare?run={name}", *(f"/run/{name}{view}" for view in VIEWS)]:
        found.page.goto(address + path)
        assert found.faults() == [], path
    assert found.noise == []
    assert all(url.startswith((address, "data:")) for url in found.asked), "nothing comes from elsewhere"
    assert not found.page.evaluate("'owned' in window")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_file_is_quiet_and_reachable(scheme: str, root: Path, tmp_path: Path, watched: Callable[..., Watched]) -> None:
    found = watched(color_scheme=scheme, offline=True)
    for name in ("good", "hostile"):
        path = tmp_path / f"{name}.html"
        path.write_text(gl.report_html(root / name), encoding="utf-8")
        found.page.goto(path.as_uri())
        assert found.faults() == [], name
        found.page.emulate_media(media="print")
        assert found.page.locator("svg.chart:visible").count() > 3
        found.page.emulate_media(media="screen")
    assert found.noise == []
    assert all(url.startswith(("file:", "data:")) for url in found.asked)


def test_texts_are_texts_and_lines_of_a_megabyte_stay_within_the_page(address: str, watched: Callable[..., Watched]) -> None:
    found = watched(viewport={"width": 390, "height": 844})
    for view in ("", "/candidates", "/candidate/1", "/proposals", "/matrix", "/measures"):
        found.page.goto(f"{address}/run/hostile{view}")
        for item in found.page.locator("details").all():
            item.evaluate("item => { item.open = true }")
        width = found.page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, f"{view} is {width} pixels wide on a phone"
        assert found.page.locator("main script, main img[onerror]").count() == 0
    assert found.noise == []


def test_a_report_and_its_tables_stay_within_a_phone(root: Path, tmp_path: Path, watched: Callable[..., Watched]) -> None:
    found = watched(viewport={"width": 375, "height": 800}, offline=True)
    path = tmp_path / "good.html"
    path.write_text(gl.report_html(root / "good"), encoding="utf-8")
    found.page.goto(path.as_uri())
    assert found.page.get_by_role("region", name="Seed and winner").count() == 1
    assert found.page.evaluate("document.documentElement.scrollWidth") <= 375
    lines = found.page.get_by_role("columnheader", name="95 % interval").first.evaluate(
        "cell => cell.clientHeight / parseFloat(getComputedStyle(cell).lineHeight)"
    )
    assert lines < 2, "an interval is not broken within a word"


def test_the_docs_pictures_are_taken(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pil = pytest.importorskip("PIL.Image")
    from benchmarks import screenshots
    from benchmarks.report import Options

    monkeypatch.setattr(screenshots, "IMAGES", tmp_path)
    with ThreadPoolExecutor(1) as alone:
        # Playwright takes one browser a thread
        report = alone.submit(screenshots.run, Options(quick=True, rest=(str(root), "good"))).result()
    assert report.n == 4
    sizes = {file.name: pil.open(file).size for file in tmp_path.iterdir()}
    assert sizes["report-desk-dark.png"] == sizes["report-desk-light.png"] == (1650, 1290)
    shades = {
        scheme: pil.open(tmp_path / f"report-phone-{scheme}.png").convert("L").resize((1, 1)).getpixel((0, 0))
        for scheme in ("light", "dark")
    }
    assert shades["dark"] < 80 < 180 < shades["light"]


def test_no_word_of_a_table_is_broken_on_a_phone(address: str, root: Path, tmp_path: Path, watched: Callable[..., Watched]) -> None:
    found = watched(viewport={"width": 375, "height": 800})
    file = tmp_path / "good.html"
    file.write_text(gl.report_html(root / "good"), encoding="utf-8")
    for path in (f"{address}/", f"{address}/run/good", *(f"{address}/run/good{view}" for view in VIEWS), file.as_uri()):
        found.page.goto(path)
        narrow = found.page.evaluate(
            """[...document.querySelectorAll("th, td, span.mark")].filter(cell => {
                const words = cell.innerText.split(/\\s+/).map(word => word.length);
                return cell.offsetParent && cell.clientWidth < 5 * Math.min(16, Math.max(...words));
            }).map(cell => cell.innerText)"""
        )
        assert narrow == [], path
        assert found.page.evaluate("document.documentElement.scrollWidth") <= 375, path


def test_everything_can_be_reached_by_keyboard(address: str, watched: Callable[..., Watched]) -> None:
    found = watched()
    found.page.goto(f"{address}/run/good")
    found.page.keyboard.press("Tab")
    assert found.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    found.page.keyboard.press("Enter")
    assert found.page.evaluate("document.activeElement.id") == "main"
    seen = set()
    for _ in range(80):
        found.page.keyboard.press("Tab")
        seen.add(found.page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))
    assert any("radio" in item for item in seen)
    assert any("/proposal/" in item for item in seen)
    found.page.locator("input[type=radio]").first.focus()
    found.page.keyboard.press("ArrowRight")
    assert found.page.locator(".tab:visible").count() == 1
    assert found.page.locator(".tab").nth(1).is_visible()


def test_the_list_filters_and_compares(address: str, watched: Callable[..., Watched]) -> None:
    found = watched()
    found.page.goto(address)
    for box in found.page.locator("input[type=checkbox]").all():
        box.check()
    found.page.get_by_role("button", name="Compare the ticked ones").click()
    assert found.page.locator("h1").inner_text() == "Side by side"
    assert found.page.locator("svg.chart path.s2").count() == 1
    found.page.goto(address)
    found.page.get_by_label("Name holds").fill("hos")
    found.page.get_by_role("button", name="Filter").click()
    assert found.page.locator("tbody tr").count() == 1


def test_pages_follow_a_run_while_it_goes_on(tmp_path: Path, watched: Callable[..., Watched]) -> None:
    good_run(tmp_path / "source")
    with RunStore.read(tmp_path / "source") as source:
        events = source.events()
    with RunStore.create(tmp_path / "runs" / "live") as store:
        store.begin_session({"workers": 1})
        store.commit(events[:1])
        with serving(tmp_path / "runs") as address:
            found = watched()
            page = found.page
            page.goto(f"{address}/run/live")
            assert "validating the seed" in page.locator("#verdict").inner_text()
            page.locator("summary", has_text="Stop it").click()
            store.commit(events[1:-2])
            sync_api.expect(page.locator("#latest tbody tr").nth(3)).to_be_attached(timeout=WAIT)
            sync_api.expect(page.locator("#progress circle").nth(3)).to_be_attached(timeout=WAIT)
            assert page.locator("details", has_text="Stop it").get_attribute("open") is not None, "what a visitor opened stays open"
            page.get_by_role("button", name="Finish now").click()
            assert "Asked to finish" in page.locator(".said").inner_text()
            assert read_ask(tmp_path / "runs" / "live") == Ask("finish")
            store.commit(events[-2:])
            store.end_session(1.0, "asked")
            store.close()
            sync_api.expect(page.locator("#state")).to_contain_text("finished", timeout=WAIT)
            sync_api.expect(page.locator("#verdict")).to_contain_text("Verdict: improved", timeout=WAIT)
            assert page.locator(".said").count() == 0, "what was asked of it is no news now"
            assert page.locator("summary", has_text="Stop it").count() == 0
            assert found.noise == []


def test_a_page_of_a_run_that_is_not_started_becomes_the_runs_own_and_says_when_it_is_over(
    tmp_path: Path, watched: Callable[..., Watched]
) -> None:
    good_run(tmp_path / "source")
    with RunStore.read(tmp_path / "source") as source:
        events = source.events()
    with RunStore.create(tmp_path / "runs" / "r") as store, serving(tmp_path / "runs") as address:
        found = watched()
        page = found.page
        page.goto(f"{address}/run/r")
        sync_api.expect(page.locator("#message")).to_contain_text("made but not started")
        assert found.faults() == []
        store.begin_session({"workers": 1})
        store.commit(events[:4])
        sync_api.expect(page.locator("#latest tbody tr").first).to_be_attached(timeout=WAIT)
        sync_api.expect(page.locator("#live")).to_have_text("Live")
        store.commit(events[4:])
        store.end_session(1.0, "done")
        store.close()
        sync_api.expect(page.locator("#state")).to_contain_text("finished", timeout=WAIT)
        sync_api.expect(page.locator("#live")).to_have_text("")
        assert found.noise == []


def test_a_server_that_is_gone_is_told(root: Path, watched: Callable[..., Watched]) -> None:
    found = watched()
    with serving(root) as address:
        found.page.goto(address)
        sync_api.expect(found.page.locator("#live")).to_have_text("Live", timeout=WAIT)
    sync_api.expect(found.page.locator("#live")).to_contain_text("trying again", timeout=WAIT)
