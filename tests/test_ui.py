"""The live pages without a browser: every view, what they refuse, and how they follow a run."""

from __future__ import annotations

import html
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from benchmarks.ui_recording import Size, write_large_run
from gepa_lite.cli.app import app
from gepa_lite.core.budget import Budget
from gepa_lite.core.events import Merged, RunStarted, StepEnded, Stopped
from gepa_lite.insight.trail import Trail
from gepa_lite.report.safe_text import clean
from gepa_lite.ship.blame import blame_of
from gepa_lite.store.asks import Ask, read_ask
from gepa_lite.store.browse import Browse
from gepa_lite.store.purge import purge
from gepa_lite.store.run_store import RunStore
from tests.test_report import Page, good_run, hostile_run

testclient = pytest.importorskip("starlette.testclient")
from gepa_lite.ui import library as library_module  # noqa: E402  # after the skip: the web server is an extra
from gepa_lite.ui.app import make_app  # noqa: E402
from gepa_lite.ui.blame import blame_in  # noqa: E402
from gepa_lite.ui.guard import COOKIE  # noqa: E402

VIEWS = ["", "/candidates", "/candidate/0", "/candidate/1", "/proposals", "/lineage", "/matrix", "/measures", "/settings", "/report.html"]
HERE = "http://localhost"


def client(root: Path, token: str | None = None, **options: Any) -> Any:
    return testclient.TestClient(make_app(root, token), base_url=HERE, follow_redirects=False, **options)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    good_run(folder / "good", merge="paper", fan=1)
    hostile_run(folder / "hostile")
    (folder / "not-a-run").mkdir()
    (folder / "broken").mkdir()
    (folder / "broken" / "run.db").write_bytes(b"not a database, but a file of some length")
    return folder


@pytest.fixture
def pages(root: Path) -> Iterator[Any]:
    with client(root) as found:
        yield found


def check(text: str) -> None:
    """Well formed, one script of our own, nothing inline, nothing from elsewhere."""
    page = Page(text)
    assert page.open == []
    scripts = [attributes for element, attributes in page.elements if element == "script"]
    assert [script.get("src") for script in scripts] == ["/static/ui.js"]
    for element, attributes in page.elements:
        assert element not in ("iframe", "object", "embed", "base", "style"), element
        for name, value in attributes.items():
            assert not name.startswith("on"), (element, name)
            assert name != "style"
            if name in ("src", "href", "action"):
                assert value is not None
                assert value.startswith(("/", "#", "?", "data:image/png;base64,", "data:,")) or value == "", value
                assert not value.startswith("//")


# every view


@pytest.mark.parametrize("name", ["good", "hostile"])
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_whole_and_harmless(name: str, view: str, pages: Any) -> None:
    answer = pages.get(f"/run/{name}{view}")
    assert answer.status_code == 200, answer.text
    if view == "/report.html":
        assert "attachment" in answer.headers["content-disposition"]
    else:
        check(answer.text)
        assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "<script>alert" not in answer.text
    assert "\u202e" not in answer.text
    assert "\x1b" not in answer.text


def test_the_list_shows_states_and_what_is_broken(pages: Any) -> None:
    text = pages.get("/").text
    check(text)
    rows = {row[1]: row for row in re.findall(r'<tr>(.*?href="/run/([^"]+)".*?</tr>)', text, re.S)}
    assert set(rows) == {"good", "hostile", "broken"}
    assert "finished" in rows["good"][0]
    assert "damaged" in rows["broken"][0]


def test_the_list_filters(pages: Any) -> None:
    assert re.findall(r'href="/run/([^"]+)"', pages.get("/?q=OO").text) == ["good"]
    assert re.findall(r'href="/run/([^"]+)"', pages.get("/?state=error").text) == ["broken"]
    assert re.findall(r'href="/run/([^"]+)"', pages.get("/?q=<script>").text) == []


def test_each_proposal_and_rollout_has_a_page(root: Path, pages: Any) -> None:
    with Browse(root / "good") as browse:
        trail = Trail()
        trail.follow(browse.events())
        example = browse.newest_rollouts(1)[0].key.example_id
    for attempt in trail.attempts:
        answer = pages.get(f"/run/good/proposal/{attempt.seq}")
        assert answer.status_code == 200
        check(answer.text)
        assert attempt.reason in clean(answer.text)
    assert trail.started is not None
    answer = pages.get(f"/run/good/rollout?candidate=0&example={trail.started.validation_ids[0]}")
    check(answer.text)
    assert "Feedback" in answer.text
    assert "was not run" in pages.get("/run/good/rollout?candidate=1&example=nothing").text
    assert example


def test_whole_rollouts_are_shown_whole(root: Path, pages: Any) -> None:
    with Browse(root / "hostile") as browse:
        long = next(r for r in browse.some_rollouts(10_000) if r.feedback is not None and len(r.feedback.text) > 1_000_000)
        trail = Trail()
        trail.follow(browse.events())
    from gepa_lite.core.candidate import Candidate

    index = next(n.index for n in trail.nodes if Candidate(n.texts).id == long.key.candidate_id)
    text = pages.get(f"/run/hostile/rollout?candidate={index}&example={long.key.example_id}").text
    assert "x" * 1_000_000 in text


def test_runs_stand_side_by_side(pages: Any) -> None:
    text = pages.get("/compare?run=good&run=hostile&run=good").text
    check(text)
    assert text.count('<th scope="col"><a href="/run/') == 2
    assert "search.fan" not in text.split("Settings that differ")[1] or "search.merge" in text
    check(pages.get("/compare").text)
    assert pages.get("/compare?run=nothing").status_code == 404


def test_pages_are_paged(tmp_path: Path) -> None:
    write_large_run(tmp_path / "large", Size(130, 6_500), seed=0)
    with client(tmp_path) as found:
        first = found.get("/run/large/candidates?order=old").text
        last = found.get("/run/large/candidates?order=old&page=3").text
        assert "page 1 of 3" in first
        assert re.findall(r'/candidate/(\d+)"', last)[-1] == "129"
        assert "order=old" in re.findall(r'rel="prev" href="([^"]+)"', last)[0]
        assert "page 3 of 3" in found.get("/run/large/candidates?page=999").text
        assert "page 1 of 3" in found.get("/run/large/candidates?page=-1").text
        assert "page 8 of 8" in found.get("/run/large/proposals?page=999999999999").text
        rejected = found.get("/run/large/proposals?status=rejected&module=gist").text
        assert "accepted" not in re.sub(r"(?s)<select.*?</select>", "", rejected)
        more = re.findall(r'rel="next" href="([^"]+)"', found.get("/run/large/candidate/0").text)
        assert more
        assert found.get(more[0].replace("&amp;", "&")).status_code == 200


def test_blame_of_the_pages_is_the_results_own(root: Path) -> None:
    from gepa_lite.search.state import replay

    with RunStore.read(root / "good") as store:
        state = replay(store.events())
    with Browse(root / "good") as browse:
        trail = Trail()
        trail.follow(browse.events())
    seed = state.pool[0].candidate.texts
    for member in state.pool:
        mine = [(b.module, b.sentence, b.member, b.validation_gain, b.together) for b in blame_in(trail, member.index)]
        texts = member.candidate.texts
        theirs = [
            (b.module, b.sentence, b.member, b.validation_gain, b.together)
            for b in blame_of(state, member.index)
            if texts[b.module] != seed[b.module]
        ]
        assert mine == theirs


# following a run


def test_pages_follow_a_run_by_reading(tmp_path: Path) -> None:
    good_run(tmp_path / "done")
    with RunStore.read(tmp_path / "done") as store:
        events = store.events()
    live = tmp_path / "runs"
    with RunStore.create(live / "r") as store, client(live) as pages:
        store.begin_session({"workers": 1})
        store.commit(events[:1])
        assert "validating the seed" in pages.get("/run/r").text
        marks = [pages.get("/run/r/now").json()["mark"]]
        for event in events[1:]:
            store.commit([event])
            marks.append(pages.get("/run/r/now").json()["mark"])
            assert pages.get("/run/r").status_code == 200
        assert len(set(marks)) == len(marks), "each event is news"
        assert pages.get("/run/r/now").json()["mark"] == marks[-1]
        assert "running" in pages.get("/").text
    with client(live) as pages:
        assert "Verdict: improved" in pages.get("/run/r").text


def test_a_long_log_is_read_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "_LONG", 5)
    good_run(tmp_path / "r")
    found = library_module.Library(tmp_path)
    with found.closing():
        gate = threading.Event()
        found._reader.submit(gate.wait)
        try:
            with pytest.raises(library_module.StillReadingError):
                found.shelf("r")
            assert [entry.status for entry in found.entries()] == ["reading"]
        finally:
            gate.set()
        found._reader.submit(lambda: None).result(timeout=60)
        assert found.shelf("r").trail.tested is not None
        assert [entry.status for entry in found.entries()] == ["finished"]


def test_a_run_that_was_made_anew_is_read_anew(tmp_path: Path) -> None:
    good_run(tmp_path / "runs" / "r")
    good_run(tmp_path / "other", merge="none")
    with client(tmp_path / "runs") as pages:
        before = pages.get("/run/r/settings").text
        shutil.rmtree(tmp_path / "runs" / "r")
        assert pages.get("/run/r/settings").status_code == 404
        shutil.copytree(tmp_path / "other", tmp_path / "runs" / "r")
        assert pages.get("/run/r/settings").text != before


# asking


def waiting_run(folder: Path) -> RunStore:
    """A run that a process (this one) holds, with a budget of rollouts."""
    good_run(folder.parent / "source")
    with RunStore.read(folder.parent / "source") as source:
        events = source.events()
    store = RunStore.create(folder)
    store.commit(events[:2])
    return store


def test_a_run_that_goes_on_can_be_asked(tmp_path: Path) -> None:
    with waiting_run(tmp_path / "r"), client(tmp_path) as pages:
        text = pages.get("/run/r").text
        assert 'name="proposals" value="24"' in text
        origin = {"origin": HERE}
        for form, wanted in (
            ({"stop": "pause"}, Ask("pause")),
            ({"stop": "finish"}, Ask("finish")),
            ({"proposals": "40"}, Ask(budget=Budget(proposals=40))),
        ):
            answer = pages.post("/run/r/ask", data=form, headers=origin)
            assert answer.status_code == 303, answer.text
            assert read_ask(tmp_path / "r") == wanted
            assert 'role="status"' in pages.get(answer.headers["location"]).text
        (tmp_path / "r" / "run.asks").unlink()
        for form, words in (
            ({"proposals": "3"}, "can be raised, not lowered"),
            ({"proposals": "much"}, "a number is needed"),
            ({"proposals": "inf"}, "can be raised"),
            ({"x": "y" * 5_000}, "too long"),
        ):
            answer = pages.post("/run/r/ask", data=form, headers=origin)
            assert answer.status_code == 400
            assert words in answer.text
        assert pages.post("/run/r/ask", data={"stop": "pause"}, headers={"origin": "http://evil.example"}).status_code == 403
        assert pages.post("/run/r/ask", data={"stop": "pause"}).status_code == 403
        assert pages.get("/run/r/ask").status_code == 405
        assert read_ask(tmp_path / "r") == Ask()


def test_nobody_can_be_asked_where_nobody_works(root: Path, pages: Any) -> None:
    answer = pages.post("/run/good/ask", data={"stop": "finish"}, headers={"origin": HERE})
    assert answer.status_code == 400
    assert "nobody" in answer.text
    assert "Stop it or give it" not in pages.get("/run/good").text
    assert not (root / "good" / "run.asks").exists()


# what is refused


@pytest.mark.parametrize(
    "path",
    ["/run/%2e%2e", "/run/..%2f..%2fetc%2fpasswd", "/run/good%00", "/run//etc", "/static/../app.py", "/static/%2e%2e/app.py", "/run/not-a-run", "/run/good/candidate/99999", "/run/good/candidate/x", "/run/good/candidate/-1", "/run/good/proposal/999999", "/run/good/nothing", "/run/good/rollout?candidate=9999"],
)  # fmt: skip
def test_what_is_not_there_is_not_there(path: str, pages: Any) -> None:
    answer = pages.get(path)
    assert answer.status_code == 404, (path, answer.status_code)
    assert "root:" not in answer.text


def test_a_broken_run_is_told(pages: Any) -> None:
    answer = pages.get("/run/broken")
    assert answer.status_code == 500
    assert "damaged" in answer.text
    assert "Traceback" not in answer.text


ALL_VIEWS = ["", "/candidates", "/candidate/0", "/rollout?candidate=0&example=x", "/proposals", "/proposal/3", "/lineage", "/matrix", "/measures", "/settings"]  # fmt: skip


def made(folder: Path, events: list[Any]) -> None:
    """A run with these events that nobody works on."""
    with RunStore.create(folder) as store:
        if events:
            store.commit(events)


def damaged(source: Path, folder: Path, sql: str) -> None:
    shutil.copytree(source, folder)
    with closing(sqlite3.connect(folder / "run.db")) as connection:
        connection.execute(sql)
        connection.commit()


def told(text: str) -> str:
    found = re.search(r"(?s)<main.*</main>", text)
    assert found is not None
    return html.unescape(re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", found[0])))


def test_a_run_that_was_made_but_not_started_says_so_on_every_page_and_is_followed(root: Path, tmp_path: Path) -> None:
    with RunStore.read(root / "good") as store:
        events = store.events()
    made(tmp_path / "r", [])
    with client(tmp_path) as pages:
        for view in ALL_VIEWS:
            answer = pages.get(f"/run/r{view}")
            assert answer.status_code == 200, view
            check(answer.text)
            assert "made but not started" in told(answer.text)
        answer = pages.get("/run/r/report.html")
        assert answer.status_code == 404
        assert "never started" in told(answer.text)
        assert "unstarted" in pages.get("/").text
        assert re.findall(r'href="/run/([^"]+)"', pages.get("/?state=unstarted").text) == ["r"]
        check(pages.get("/compare?run=r").text)
        before = pages.get("/run/r/now").json()["mark"]
        assert f'data-now="/run/r/now" data-mark="{before}"' in pages.get("/run/r").text
        with RunStore.open(tmp_path / "r") as store:
            store.commit(events[:2])
            assert pages.get("/run/r/now").json()["mark"] != before
            assert "the run goes on" in pages.get("/run/r").text


def test_a_run_without_a_validated_seed_has_every_page(root: Path, tmp_path: Path) -> None:
    with RunStore.read(root / "good") as store:
        events = store.events()
    made(tmp_path / "broken-off", events[:1])
    made(tmp_path / "ended", [events[0], Stopped("budget", "all 10 rollouts of the budget are spent")])
    with client(tmp_path) as pages:
        for name in ("broken-off", "ended"):
            for view in ALL_VIEWS:
                answer = pages.get(f"/run/{name}{view}")
                assert answer.status_code == (404 if ("candidate" in view and view != "/candidates") or "/proposal/" in view else 200), view
                check(answer.text)
            answer = pages.get(f"/run/{name}/report.html")
            assert answer.status_code == 404
            assert "no result yet" in told(answer.text)
        assert "interrupted while the seed was validated, 0 of 40" in told(pages.get("/run/broken-off").text)
        assert "all 10 rollouts of the budget are spent" in told(pages.get("/run/ended").text)
        shown = CliRunner().invoke(app, ["show", str(tmp_path / "ended")]).stdout
        assert "ended while the seed was validated, 0 of 40 rollouts: all 10 rollouts of the budget are spent" in " ".join(shown.split())
        assert re.findall(r'href="/run/([^"]+)"', pages.get("/?state=finished").text) == ["ended"]
        assert re.findall(r'href="/run/([^"]+)"', pages.get("/?state=stopped").text) == ["broken-off"]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("UPDATE events SET body = '{}' WHERE seq = 6", "damaged"),
        ("UPDATE events SET body = '[]' WHERE seq = 6", "damaged"),
        ("UPDATE events SET body = 'x' WHERE seq = 6", "damaged"),
        ("UPDATE events SET kind = 'teleported' WHERE seq = 6", "Upgrade"),
        ("UPDATE events SET version = 99 WHERE seq = 1", "Upgrade"),
        ("UPDATE events SET body = json_remove(body, '$.settings.search') WHERE seq = 1", "another release"),
        ("PRAGMA user_version = 99", "Upgrade"),
    ],
)
def test_a_run_that_cannot_be_read_says_why_and_harms_no_other(sql: str, words: str, root: Path, tmp_path: Path) -> None:
    damaged(root / "good", tmp_path / "bad", sql)
    shutil.copytree(root / "good", tmp_path / "good")
    (tmp_path / "folder" / "run.db").mkdir(parents=True)
    with client(tmp_path) as pages:
        for view in ALL_VIEWS:
            answer = pages.get(f"/run/bad{view}")
            assert answer.status_code == 500
            check(answer.text)
            assert words in told(answer.text), view
        listed = pages.get("/").text
        assert set(re.findall(r'href="/run/([^"]+)"', listed)) == {"good", "bad"}
        assert words in told(listed)
        assert pages.get("/now").status_code == 200
        assert pages.get("/run/good").status_code == 200
        assert pages.get("/run/folder").status_code == 404
        assert pages.post("/run/bad/ask", data={"stop": "pause"}, headers={"origin": HERE}).status_code == 400
    read = CliRunner().invoke(app, ["measures", str(tmp_path / "bad")])
    assert read.exit_code != 0
    assert isinstance(read.exception, SystemExit), "words, no traceback"


def test_a_purged_run_has_every_page(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "good", tmp_path / "r")
    purge(tmp_path / "r")
    with client(tmp_path) as pages:
        for view in VIEWS:
            assert pages.get(f"/run/r{view}").status_code == 200, view


def test_only_a_run_that_goes_on_is_live_and_is_asked_for_often(root: Path, tmp_path: Path) -> None:
    with waiting_run(tmp_path / "r"), client(tmp_path) as pages:
        answer = pages.get("/run/r")
        assert '<span id="live">Live</span>' in answer.text
        assert 2000 <= int(answer.headers["x-next-look"]) < 10_000
        ended = pages.get("/run/source")
        assert '<span id="live"></span>' in ended.text
        assert int(ended.headers["x-next-look"]) >= 10_000


def test_the_servers_linear_algebra_takes_one_thread(tmp_path: Path) -> None:
    code = (
        "import os, sys, uvicorn\n"
        "uvicorn.Server.run = lambda self, sockets=None: None\n"
        "from gepa_lite.ui.serve import serve\n"
        "assert 'numpy' not in sys.modules\n"
        "serve(__import__('pathlib').Path(sys.argv[1]), '127.0.0.1', 0, None, print)\n"
        "assert 'numpy' in sys.modules\n"
        "print('threads', os.environ['OPENBLAS_NUM_THREADS'])\n"
    )
    plain = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    for given, found in (({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], env={**plain, **given}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert f"threads {found}" in done.stdout


def test_foreign_names_are_not_answered(root: Path) -> None:
    with testclient.TestClient(make_app(root), base_url="http://rebound.example") as pages:
        assert pages.get("/").status_code == 421
        assert pages.get("/", headers={"host": "127.0.0.1:8411"}).status_code == 200


def test_a_token_lets_in_once_and_leaves_the_address(root: Path) -> None:
    with client(root, "a-token-of-some-length") as pages:
        assert pages.get("/").status_code == 401
        assert pages.get("/static/ui.js").status_code == 401
        assert pages.get("/?token=wrong").status_code == 401
        answer = pages.get("/?q=go&token=a-token-of-some-length")
        assert (answer.status_code, answer.headers["location"]) == (303, "/?q=go")
        cookie = answer.headers["set-cookie"]
        assert COOKIE in cookie
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert pages.get("/").status_code == 200
        assert pages.post("/run/good/ask", data={"stop": "pause"}, headers={"origin": "http://evil.example"}).status_code == 403


def test_every_answer_carries_the_policy(pages: Any) -> None:
    for path in ("/", "/nothing", "/run/good", "/static/ui.js", "/static/style.css", "/now"):
        headers = pages.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_an_address_for_others_gets_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    from gepa_lite.ui.serve import serve

    served: list[Any] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: served.append(sockets[0].getsockname()))
    said: list[str] = []
    serve(tmp_path, "127.0.0.1", 0, None, said.append)
    assert "token" not in said[-1]
    serve(tmp_path, "0.0.0.0", 0, None, said.append)
    assert re.search(r"\?token=[\w-]{30,}", said[-1])
    with pytest.raises(gl.UsageError, match="at least 16"):
        serve(tmp_path, "127.0.0.1", 0, "short", said.append)
    with pytest.raises(gl.UsageError, match="not a folder"):
        serve(tmp_path / "nothing", "127.0.0.1", 0, None, said.append)
    assert len(served) == 2


def test_a_merge_stands_beside_the_parent_that_it_is_held_to(root: Path, tmp_path: Path) -> None:
    with RunStore.read(root / "good") as source:
        events = source.events()
    place = next(number for number, event in enumerate(events) if isinstance(event, Stopped))
    step = max(event.step for event in events if isinstance(event, StepEnded)) + 1
    assert isinstance(events[0], RunStarted)
    ids = events[0].validation_ids[:3]
    rows = ((1.0, 0.0, 0.0), (0.0, 1.0, 1.0))
    merged = Merged(
        step,
        (1, 2),
        0,
        {"gist": 1, "route": 2},
        {"route": "Decide."},
        ids,
        rows,
        "rejected",
        "not_better",
        "on 3 examples",
        (1.0, 1.0, 0.0),
    )
    with RunStore.create(tmp_path / "merged") as store:
        store.commit([*events[:place], merged, StepEnded(step)])
    with client(tmp_path) as found:
        text = found.get(f"/run/merged/proposal/{place + 1}").text
    cells = re.findall(r'<td class="number">([^<]+)</td>', text.split("Its examples")[1])
    assert cells == ["0", "1", "1", "1", "1", "0"]
