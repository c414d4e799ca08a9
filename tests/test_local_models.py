"""Local models without a model: the catalogue, fetching from real servers and a real pip, the slots, the requests."""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gepa_lite.errors import BadRequestError, ContextWindowError, ServerError, UsageError
from gepa_lite.lm.local import FetchError, LocalLM, catalogue, fetch, open_local, packages
from gepa_lite.lm.local.catalogue import HubFile, ModelSpec, PackageFile, PackageParts
from gepa_lite.lm.local.lm import choices_grammar, read_error, request_body, shared_prefix
from gepa_lite.lm.local.options import LocalOptions
from gepa_lite.lm.local.slots import SlotPool
from gepa_lite.lm.protocol import LM, Params, Request
from gepa_lite.lm.resolve import ReadyCheck, open_lm

BODY = bytes(range(256)) * 5000
SHA = hashlib.sha256(BODY).hexdigest()
USER = ({"role": "user", "content": "hello"},)


class Hub(BaseHTTPRequestHandler):
    """One file, with ranges, that can be told to break off."""

    body = BODY
    break_after: int | None = None
    ranges: list[str | None]

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        type(self).ranges.append(asked)
        if "/resolve/main/model.gguf" not in self.path:
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if asked and start >= len(self.body):
            self.send_error(416)
            return
        rest = self.body[start:]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: self.break_after])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    handler = type("OneHub", (Hub,), {"ranges": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield handler
    server.shutdown()
    server.server_close()


def declare(monkeypatch: pytest.MonkeyPatch, *sources: catalogue.Source) -> ModelSpec:
    spec = ModelSpec("tiny", "Tiny", "MIT", "tiny.gguf", len(BODY), SHA, sources, 2048)
    monkeypatch.setitem(catalogue.MODELS, "tiny", spec)
    return spec


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEPA_LITE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def wheel(folder: Path, package: str, member: str, data: bytes) -> None:
    folder.mkdir(exist_ok=True)
    stem = f"{package.replace('-', '_')}-1.0"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
        archive.writestr(member, data)
        archive.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\nRequires-Dist: not-there\n")
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip takes as its only index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def parts(count: int = 3) -> PackageParts:
    return PackageParts(tuple(PackageFile(f"tiny-part{number}", "1.0", f"tiny/{number}.bin") for number in range(count)))


def publish(folder: Path, data: bytes = BODY, count: int = 3) -> None:
    step = -(-len(data) // count)
    for number in range(count):
        wheel(folder, f"tiny-part{number}", f"tiny/{number}.bin", data[number * step : (number + 1) * step])


HUB = HubFile("owner/repo", "model.gguf")


def test_the_catalogue_names_what_a_file_must_be() -> None:
    for name, spec in catalogue.MODELS.items():
        assert (spec.name, spec.licence, len(spec.sha256)) == (name, "Apache-2.0", 64)
        assert {type(source) for source in spec.sources} == {HubFile, PackageParts}
    assert len(catalogue.MODELS["qwen2.5-coder-1.5b"].sources[1].parts) == 22  # type: ignore[union-attr]
    with pytest.raises(UsageError, match=r"Did you mean local/qwen2\.5-coder-1\.5b"):
        catalogue.find_model("qwen2.5-coder")


def test_a_file_comes_from_the_hub_once(hub: type[Hub], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, HUB)
    assert not fetch.status("tiny").present
    path = fetch.ensure_model("tiny")
    assert path == cache / "tiny.gguf"
    assert path.read_bytes() == BODY
    assert fetch.ensure_model("tiny") == path
    assert len(hub.ranges) == 1
    assert fetch.status("tiny") == fetch.ModelStatus(catalogue.MODELS["tiny"], path, True, 0)
    assert fetch.remove("tiny") == len(BODY)
    assert not fetch.status("tiny").present
    assert fetch.remove("tiny") == 0


def test_a_broken_download_goes_on_where_it_stopped(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, HUB)
    hub.break_after = 700_000
    with pytest.raises(FetchError, match="what has come is kept"):
        fetch.ensure_model("tiny")
    kept = fetch.status("tiny").partial_bytes
    assert 0 < kept <= 700_000
    hub.break_after = None
    assert fetch.ensure_model("tiny").read_bytes() == BODY
    assert hub.ranges == [None, f"bytes={kept}-"]


def test_a_wrong_file_is_refused_and_leaves_nothing(hub: type[Hub], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, HUB)
    hub.body = BODY[:-1] + b"x"
    with pytest.raises(FetchError, match=f"has SHA-256 {hashlib.sha256(hub.body).hexdigest()}, expected {SHA}"):
        fetch.ensure_model("tiny")
    assert not fetch.status("tiny").present
    assert fetch.status("tiny").partial_bytes == 0
    hub.body = BODY[:-5]
    with pytest.raises(FetchError, match=f"has {len(BODY) - 5} bytes, expected {len(BODY)}"):
        fetch.ensure_model("tiny")
    hub.body = BODY
    assert fetch.ensure_model("tiny").exists()


def test_where_the_hub_is_out_of_reach_packages_serve(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, HUB, parts())
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    publish(index)
    assert fetch.ensure_model("tiny").read_bytes() == BODY
    assert fetch.status("tiny").partial_bytes == 0


def test_a_break_between_packages_keeps_those_that_came(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, parts())
    publish(index)
    last = index / "tiny_part2-1.0-py3-none-any.whl"
    data = last.read_bytes()
    last.unlink()
    with pytest.raises(FetchError, match=r"could not download tiny-part2==1\.0"):
        fetch.ensure_model("tiny")
    for gone in index.glob("*.whl"):
        gone.unlink()
    last.write_bytes(data)
    assert fetch.ensure_model("tiny").read_bytes() == BODY


def test_without_pip_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, HUB, parts())
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        FetchError, match=r"hub \(owner/repo\): it can't be reached from here; .*pip isn't installed.*set GEPA_LITE_MODEL_TINY"
    ):
        fetch.ensure_model("tiny")


def test_a_file_of_the_users_own_is_checked_and_used_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch)
    mine = tmp_path / "mine.gguf"
    monkeypatch.setenv("GEPA_LITE_MODEL_TINY", str(mine))
    with pytest.raises(UsageError, match="there is no file"):
        fetch.ensure_model("tiny")
    mine.write_bytes(b"x" * len(BODY))
    with pytest.raises(FetchError, match=f"expected {SHA}"):
        fetch.ensure_model("tiny")
    mine.write_bytes(BODY)
    assert fetch.ensure_model("tiny") == mine
    assert fetch.status("tiny").path == mine
    fetch.remove("tiny")
    assert mine.exists()


def test_no_room_is_said_before_anything_is_fetched(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    spec = declare(monkeypatch, HUB)
    monkeypatch.setitem(catalogue.MODELS, "tiny", dataclasses.replace(spec, size=1 << 60))
    with pytest.raises(FetchError, match="GB of room"):
        fetch.ensure_model("tiny")
    assert hub.ranges == []


FETCHER = """
import sys
from gepa_lite.lm.local import catalogue, fetch
catalogue.MODELS["tiny"] = catalogue.ModelSpec("tiny", "Tiny", "MIT", "tiny.gguf", int(sys.argv[1]), sys.argv[2],
    (catalogue.HubFile("owner/repo", "model.gguf"),), 2048)
print(fetch.ensure_model("tiny").stat().st_size)
"""


def test_processes_that_fetch_at_once_fetch_once(hub: type[Hub]) -> None:
    command = [sys.executable, "-c", FETCHER, str(len(BODY)), SHA]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=60)[0].strip() for process in running] == [str(len(BODY))] * 3
    assert len(hub.ranges) == 1


def test_the_progress_bar_leaves_stdout_alone(hub: type[Hub], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    declare(monkeypatch, HUB)
    fetch.ensure_model("tiny", progress=True)
    assert capsys.readouterr().out == ""


def test_slots_go_to_whoever_can_reuse_them() -> None:
    pool = SlotPool(2, 100)
    first = pool.acquire("A", "A one")
    assert (first.restore, first.save) == (None, "1.kv")
    assert pool.ready(first, 10) == []
    second = pool.acquire("A", "A two")
    assert (second.slot != first.slot, second.restore, second.save) == (True, "1.kv", None)
    pool.release(first)
    pool.release(second)
    again = pool.acquire("A", "A two more")
    assert (again.slot, again.restore, again.save) == (second.slot, None, None)
    plain = pool.acquire(None, "no prefix")
    assert (plain.slot, plain.restore, plain.save) == (first.slot, None, None)


def test_requests_wait_for_the_one_that_works_their_prefix_through() -> None:
    pool = SlotPool(4, 100)
    leader = pool.acquire("A", "A one")
    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(pool.acquire, "A", f"A {number}") for number in range(3)]
        other = pool.acquire("B", "B one")
        assert other.save is not None
        pool.release(other)
        time.sleep(0.05)
        assert not any(future.done() for future in waiting)
        pool.ready(leader, 10)
        assert {future.result(5).restore for future in waiting} == {leader.save}


def test_a_leader_that_fails_hands_the_lead_on() -> None:
    pool = SlotPool(2, 100)
    leader = pool.acquire("A", "A one")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.acquire, "A", "A two")
        pool.release(leader)
        next_lease = waiting.result(5)
        assert (next_lease.restore, next_lease.save) == (None, "2.kv")


def test_snapshots_keep_to_their_bytes_and_lost_ones_are_forgotten() -> None:
    pool = SlotPool(1, 25)
    dropped = []
    for prefix in "ABC":
        lease = pool.acquire(prefix, prefix)
        dropped += pool.ready(lease, 10)
        pool.release(lease)
    assert dropped == ["1.kv"]
    lease = pool.acquire("B", "B")
    assert lease.restore == "2.kv"
    pool.release(lease, lost=True)
    pool.release(pool.acquire("C", "C"))
    assert pool.acquire("B", "B").save is not None


def test_a_request_in_the_servers_form() -> None:
    schema = {"type": "object"}
    params = Params(max_tokens=5, temperature=0.0, stop=("x",), seed=3, extra={"min_p": 0.1})
    assert request_body(Request(USER, params, json_schema=schema)) == {
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 5,
        "temperature": 0.0,
        "seed": 3,
        "stop": ["x"],
        "response_format": {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}},
        "min_p": 0.1,
    }
    assert request_body(Request(USER, Params(max_tokens=5), choices=("a", "b"))) == {
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 5,
        "grammar": 'root ::= "a" | "b"',
    }
    assert choices_grammar(("a\\b\n",)) == r'root ::= "a\\b\n"'


def test_what_counts_as_a_shared_prefix() -> None:
    assert shared_prefix(()) is None
    assert shared_prefix(USER) is None
    assert shared_prefix(({"role": "system", "content": "short"}, *USER)) is None
    assert shared_prefix(({"role": "system", "content": "long " * 99}, *USER)) == "long " * 99


def test_the_servers_errors_are_typed() -> None:
    too_long = {"error": {"code": 400, "type": "exceed_context_size_error", "message": "m", "n_prompt_tokens": 9, "n_ctx": 4}}
    error = read_error(400, too_long, "local/x")
    assert isinstance(error, ContextWindowError)
    assert error.fault == "candidate"
    assert "the prompt has 9 tokens, but the context holds 4" in str(error)
    assert isinstance(read_error(400, {"error": {"message": "bad schema"}}, "x"), BadRequestError)
    assert isinstance(read_error(500, "boom", "x"), ServerError)


def test_open_local_shares_and_describes_for_nothing(cache: Path) -> None:
    lm = open_local("smollm2-135m", slots=3)
    assert lm is open_local(" smollm2-135m ", slots=3)
    assert lm is not open_local("smollm2-135m", slots=2)
    assert lm is pickle.loads(pickle.dumps(lm))
    assert isinstance(lm, LM)
    assert isinstance(lm, ReadyCheck)
    info = lm.describe()
    assert (info.name, info.endpoint, info.context_window, info.max_in_flight) == ("local/smollm2-135m", "", 8192, 3)
    assert (info.priced, info.structured) == (True, "json_schema")
    assert open_lm("local/smollm2-135m").describe().name == info.name
    lm.close()
    assert not cache.exists()


def test_a_path_opens_and_a_missing_one_does_not(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no model file"):
        open_local(str(tmp_path / "none.gguf"))
    path = tmp_path / "my.gguf"
    path.write_bytes(b"GGUF")
    lm = open_lm(f"local/{path}")
    assert isinstance(lm, LocalLM)
    assert lm.describe().name == f"local/{path}"
    path.unlink()
    with pytest.raises(UsageError, match="no model file"):
        lm.check_ready()


@pytest.mark.parametrize("wrong", [{"slots": 0}, {"context": 5}, {"threads": True}, {"batch": 1.5}, {"timeout": 0}])
def test_options_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(wrong))} of a local model"):
        LocalOptions(**wrong)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    lm = open_local("smollm2-135m")
    for call in (lm.check_ready, lambda: lm.complete(Request(USER))):
        with pytest.raises(UsageError, match=r"pip install 'gepa-lite\[local\]'"):
            call()


def test_importing_loads_nothing_heavy() -> None:
    code = (
        "import sys, gepa_lite.lm.local; print([name for name in ('xllamacpp', 'huggingface_hub', 'httpx', 'rich') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_child_that_can_not_load_says_so(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"not a model")
    lm = open_local(str(path))
    from gepa_lite.errors import ModelError

    with pytest.raises(ModelError, match="could not load the model"):
        lm.complete(Request(USER))
