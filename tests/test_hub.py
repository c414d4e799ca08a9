"""The paper's data sets from a hub: a real local HTTP server in its place, whose licences have to be accepted by name."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from benchmarks import data, hub, paper_splits
from benchmarks.report import Options
from gepa_lite.errors import UsageError

pytest.importorskip("huggingface_hub")
SHA = "a" * 40


def parquet(rows: list[dict[str, Any]]) -> bytes:
    pyarrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    sink = io.BytesIO()
    files.write_table(pyarrow.Table.from_pylist(rows), sink)
    return sink.getvalue()


def hotpot_row(number: int) -> dict[str, Any]:
    return {
        "id": str(number),
        "question": f"Which one, number {number}?",
        "answer": "moss",
        "type": "bridge",
        "level": "hard",
        "supporting_facts": {"title": ["Fern", "Fern", "Moss"], "sent_id": [0, 1, 0]},
        "context": {"title": ["Fern", "Moss"], "sentences": [["a", "b"], ["c"]]},
    }


def hover_row(number: int) -> dict[str, Any]:
    facts = [{"key": key, "value": 0} for key in ("Fern", "Moss", "Ivy", "Oak")[: 2 + number % 3]]
    return {"claim": f"It is {number}.", "hpqa_id": str(number), "num_hops": 3, "supporting_facts": facts, "label": 1}


def pupa_file() -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["user_query", "target_response", "pii_units", "redacted_query"])
    writer.writeheader()
    writer.writerows(
        {"user_query": f"made up {n}", "target_response": "r", "pii_units": "A||B||A", "redacted_query": "x"} for n in range(443)
    )
    return text.getvalue().encode()


FILES: dict[str, tuple[Any, dict[str, bytes]]] = {
    "hotpotqa/hotpot_qa": (
        "cc-by-sa-4.0",
        {
            "fullwiki/train-00000-of-00002.parquet": parquet([hotpot_row(n) for n in range(900)]),
            "fullwiki/train-00001-of-00002.parquet": parquet([hotpot_row(n) for n in range(900, 1000)]),
            "fullwiki/validation-00000-of-00001.parquet": b"not asked for",
        },
    ),
    "vincentkoc/hover-parquet": (None, {"data/train-00000-of-00001.parquet": parquet([hover_row(n) for n in range(2400)])}),
    "Columbia-NLP/PUPA": ("mit", {"PUPA_New.csv": pupa_file(), "PUPA_TNB.csv": b"not asked for"}),
    "AI-MO/aimo-validation-aime": (
        "apache-2.0",
        {"data/train-00000-of-00001.parquet": parquet([{"problem": f"p{n}", "answer": n, "solution": "s"} for n in range(90)])},
    ),
    "MathArena/aime_2025": (
        ["cc-by-nc-sa-4.0"],
        {"data/train-00000-of-00001.parquet": parquet([{"problem": f"q{n}", "answer": n} for n in range(30)])},
    ),
    "livebench/math": (
        None,
        {
            "data/test-00000-of-00001.parquet": parquet(
                [{"turns": [f"q{n}"], "ground_truth": "1", "task": "AMPS_Hard", "subtask": "amps_hard_gcd"} for n in range(368)]
            )
        },
    ),
}


class Hub(BaseHTTPRequestHandler):
    """What the client asks of a hub: the card of a data set, and its files."""

    fetched: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.split("?")[0].strip("/")
        body, headers = b"", {}
        if path.startswith("api/datasets/"):
            repo = "/".join(path.split("/")[2:4])
            if repo in FILES:
                licence, files = FILES[repo]
                card = {} if licence is None else {"license": licence}
                body = json.dumps({"id": repo, "sha": SHA, "siblings": [{"rfilename": name} for name in files], "cardData": card}).encode()
        else:
            owner, name, _, _, *rest = path.removeprefix("datasets/").split("/")
            body = FILES[f"{owner}/{name}"][1]["/".join(rest)]
            headers = {"ETag": f'"{hashlib.sha1(body).hexdigest()}"', "X-Repo-Commit": SHA}
            if with_body:
                self.fetched.append("/".join(rest))
        self.send_response(200 if body else 404)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Hub.fetched.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("name", "accepted", "sizes"),
    [
        ("hotpotqa", "cc-by-sa-4.0", (150, 300, 300)),
        ("hover", hub.UNSTATED, (150, 300, 300)),
        ("pupa", "mit", (111, 111, 221)),
        ("aime", ("apache-2.0", "cc-by-nc-sa-4.0"), (45, 45, 150)),
        ("livebench_math", hub.UNSTATED, (121, 121, 126)),
    ],
)
def test_each_set_comes_in_the_papers_split_once_its_licence_is_accepted(
    name: str, accepted: Any, sizes: tuple[int, ...], server: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="accept it by name: accept_licence="):
        hub.load_paper_set(name, endpoint=server, cache=tmp_path)
    assert Hub.fetched == []
    found = hub.load_paper_set(name, accept_licence=accepted, endpoint=server, cache=tmp_path)
    assert tuple(len(found[part]) for part in ("train", "val", "test")) == sizes
    fetched = len(Hub.fetched)
    assert fetched > 0
    assert hub.load_paper_set(name, accept_licence=accepted, endpoint=server, cache=tmp_path) == found
    assert len(Hub.fetched) == fetched  # the client keeps what it has


def test_rows_are_in_the_form_of_our_programs_and_feedback(server: str, tmp_path: Path) -> None:
    hotpot = hub.load_paper_set("hotpotqa", accept_licence="cc-by-sa-4.0", endpoint=server, cache=tmp_path)
    assert hotpot["test"][0]["gold_titles"] == ["Fern", "Moss"]
    assert {int(row["id"]) for row in hotpot["test"]} <= set(range(400))
    assert {int(row["id"]) for row in hotpot["train"]} <= set(range(800, 1000))
    pupa = hub.load_paper_set("pupa", accept_licence="mit", endpoint=server, cache=tmp_path)
    assert pupa["train"][0]["pii_units"] == ["A", "B"]
    hover = hub.load_paper_set("hover", accept_licence=hub.UNSTATED, endpoint=server, cache=tmp_path)
    assert all(len(row["gold_titles"]) == 3 for rows in hover.values() for row in rows)
    aime = hub.load_paper_set("aime", accept_licence=["apache-2.0", "cc-by-nc-sa-4.0"], endpoint=server, cache=tmp_path)
    assert aime["test"][0][0] == {"problem": "q0", "answer": "0", "solution": ""}


def test_another_licence_than_the_accepted_one_is_named(server: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"MathArena/aime_2025 is under 'cc-by-nc-sa-4.0'"):
        hub.load_paper_set("aime", accept_licence="apache-2.0", endpoint=server, cache=tmp_path)
    assert hub.stated_licences("hover", server) == {"vincentkoc/hover-parquet": "unstated"}


def test_what_is_not_there_is_said(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"IFBench's training file is not on the hub"):
        hub.load_paper_set("ifbench")
    with pytest.raises(UsageError, match="the hub can't be reached"):
        hub.stated_licences("pupa", "http://127.0.0.1:9")
    gone = hub.Home("nobody/nothing", "*", "mit", dict)
    monkeypatch.setitem(hub.PAPER_SETS, "gone", hub.PaperSet((gone,), paper_splits.pupa))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the hub has no data set nobody/nothing"):
        hub.stated_licences("gone", server)
    moved = hub.Home("Columbia-NLP/PUPA", "*.jsonl", "mit", dict)
    monkeypatch.setitem(hub.PAPER_SETS, "moved", hub.PaperSet((moved,), paper_splits.pupa))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no file fits"):
        hub.load_paper_set("moved", accept_licence="mit", endpoint=server)


def test_the_command_shows_homes_then_licences_then_writes_the_splits(server: str, tmp_path: Path) -> None:
    assert data.run(Options()).n == 6
    shown = data.run(Options(rest=("pupa", "--endpoint", server)))
    assert [(row.measure, row.ours) for row in shown.rows] == [("Columbia-NLP/PUPA: licence", "mit")]
    kept = ("--cache", str(tmp_path / "cache"), "--folder", str(tmp_path / "out"))
    done = data.run(Options(rest=("livebench_math", "--endpoint", server, "--accept-licence", "unstated", *kept)))
    assert done.n == 368
    assert len((tmp_path / "out" / "val.jsonl").read_text().splitlines()) == 121
