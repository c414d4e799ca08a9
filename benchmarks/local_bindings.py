"""Two Python bindings of llama.cpp on this machine: seconds to install, and short answers per second that share an instruction.

xllamacpp (ours) and llama-cpp-python (the peer) are installed into virtual environments of their own and run the same requests, in turns. Each is used as
its documentation says: xllamacpp's server batches and takes requests from many threads; llama-cpp-python's ``Llama`` is not safe to use from
several threads, so a lock lets in one at a time. The last rows run ``LocalLM``, which is xllamacpp with the prefix shared between slots.

Arguments of its own: ``--envs DIR`` keeps the environments, and their install times, for the next run; ``--model NAME``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.report import Options, Report, Row
from gepa_lite.lm.local import open_local
from gepa_lite.lm.local.fetch import ensure_model
from gepa_lite.lm.local.options import usable_threads
from gepa_lite.lm.protocol import Params, Request

_OURS = "xllamacpp==2026.10.11549"
_PEER = "llama-cpp-python==0.3.36"
_SLOTS = 4
_CONTEXT = 2048
_WORKERS = (1, 16)

_SYSTEM = (
    "You sort messages that reach the support desk of a software company. Decide how urgent each one is, and answer with exactly one word: low, medium "
    "or high. A message that reports lost data, a break-in, or an outage for many users is high. A feature that does not work as documented, where "
    "the sender has found a way around it, is medium. Questions about invoices, wishes for new features, and praise are low. If the sender says that "
    "the contract will be cancelled, go up by one level, unless the message is high already. Where two problems are reported in one message, judge "
    "the worse one. A message in another language is judged by the same rules. A message that holds only a link or an attachment is medium. The hour "
    "and the weekday do not matter: an outage on a Sunday is high, and a question on a Sunday is low. Do not explain the answer, do not add a full "
    "stop, and do not repeat the message."
)
_THINGS = ("orders", "invoices", "photos", "reports", "logins", "exports", "searches", "uploads")

_WORKER = """
import json, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
job = json.loads(sys.stdin.readline())
if job["binding"].startswith("xllamacpp"):
    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path = job["model"]
    params.n_parallel, params.n_ctx, params.cache_ram_mib = job["slots"], job["slots"] * job["context"], 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = job["threads"]
    params.verbosity, params.ui, params.fit_params = -1, False, False
    server = xllamacpp.Server(params)
    def ask(messages):
        server.handle_chat_completions({"messages": messages, "max_tokens": 8, "temperature": 0})
else:
    import llama_cpp
    model = llama_cpp.Llama(job["model"], n_ctx=job["context"], n_threads=job["threads"], n_threads_batch=job["threads"], verbose=False)
    lock = threading.Lock()
    def ask(messages):
        with lock:
            model.create_chat_completion(messages, max_tokens=8, temperature=0)
ask([{"role": "user", "content": "hello"}])
print(json.dumps("loaded"), flush=True)
for line in sys.stdin:
    batch = json.loads(line)
    with ThreadPoolExecutor(batch["workers"]) as threads:
        started = time.perf_counter()
        list(threads.map(ask, batch["requests"]))
        print(json.dumps(time.perf_counter() - started), flush=True)
"""


def run(options: Options) -> Report:
    """Install, then ask in turns: every repeat of a figure uses an instruction that no one has seen yet."""
    parser = argparse.ArgumentParser(prog="local-bindings")
    parser.add_argument("--envs", type=Path)
    parser.add_argument("--model", default="smollm2-135m" if options.quick else "qwen2.5-coder-1.5b")
    own = parser.parse_args(options.rest)
    with tempfile.TemporaryDirectory() as scratch:
        root = own.envs or Path(scratch)
        installed = {binding: _install(binding, root) for binding in (_OURS, _PEER)}
        count = 16 if options.quick else 32
        rows, seconds = _compare(own.model, root, count, options.seeds)
    rows.insert(0, _row("install: seconds", installed[_OURS], installed[_PEER], "<= 60", installed[_OURS] <= 60, lower=True))
    return Report(
        "local-bindings",
        rows,
        n=count,
        seeds=options.seeds,
        model=f"local/{own.model}",
        extra={"seconds": seconds, "bindings": [_OURS, _PEER]},
    )


def _compare(model: str, root: Path, count: int, seeds: tuple[int, ...]) -> tuple[list[Row], dict[str, list[float]]]:
    path = str(ensure_model(model, progress=sys.stderr.isatty()))
    seconds: dict[str, list[float]] = {}
    rows = []
    with (
        _Worker(_OURS, path, root) as ours,
        _Worker(_PEER, path, root) as peer,
        closing(open_local(model, slots=_SLOTS, context=_CONTEXT)) as lm,
    ):
        lm.complete(Request(({"role": "user", "content": "hello"},), Params(max_tokens=8, temperature=0.0)))
        for workers in _WORKERS:
            for seed in seeds:
                for name, ask in ((_OURS, ours.seconds), (_PEER, peer.seconds), ("LocalLM", lambda r, w: _ask_lm(lm, r, w))):
                    taken = ask(_requests(count, f"{seed}-{workers}"), workers)
                    seconds.setdefault(f"{name}, {workers}", []).append(taken)
    for workers in _WORKERS:
        rate = {name: count / statistics.median(seconds[f"{name}, {workers}"]) for name in (_OURS, _PEER, "LocalLM")}
        rows.append(_row(f"short answers a second, {workers} in flight", rate[_OURS], rate[_PEER]))
        goal = rate["LocalLM"] >= rate[_PEER] if workers > 1 else None
        rows.append(
            _row(
                f"LocalLM: short answers a second, {workers} in flight",
                rate["LocalLM"],
                rate[_PEER],
                ">= peer" if workers > 1 else None,
                goal,
            )
        )
    return rows, seconds


def _row(measure: str, ours: float, peer: float | None, goal: str | None = None, met: bool | None = None, *, lower: bool = False) -> Row:
    ratio = None if not peer or not ours else (peer / ours if lower else ours / peer)
    return Row(measure, round(ours, 3), None if peer is None else round(peer, 3), None if ratio is None else round(ratio, 2), goal, met)


def _requests(count: int, version: str) -> list[list[dict[str, str]]]:
    """``count`` chats with one instruction; ``version`` at its start makes it new to every cache."""
    return [
        [
            {"role": "system", "content": f"Version {version}. {_SYSTEM}"},
            {
                "role": "user",
                "content": f"Hello team, since {i % 12 + 1} o'clock our {_THINGS[i % 8]} page shows error {i * 31 % 97} for {i * 13 % 90 + 5} of our users, "
                f"and the {_THINGS[(i * 3 + 1) % 8]} that we saved yesterday are gone. Could somebody look at it? Regards, customer {i}",
            },
        ]
        for i in range(count)
    ]


def _ask_lm(lm: Any, requests: list[list[dict[str, str]]], workers: int) -> float:
    with ThreadPoolExecutor(workers) as threads:
        started = time.perf_counter()
        list(threads.map(lambda messages: lm.complete(Request(tuple(messages), Params(max_tokens=8, temperature=0.0))), requests))
        return time.perf_counter() - started


def _python(binding: str, root: Path) -> Path:
    return root / binding.partition("==")[0] / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def _install(binding: str, root: Path) -> float:
    """Seconds that pip took, now or, where the environment was kept, then."""
    folder = root / binding.partition("==")[0]
    record = folder / "install_seconds"
    if not record.exists():
        venv.create(folder, with_pip=True, clear=True)
        started = time.perf_counter()
        # jinja2 and numpy come along with the peer and cost the same everywhere; no cache, so that every run builds or downloads
        subprocess.run(
            [_python(binding, root), "-m", "pip", "install", "--quiet", "--no-cache-dir", binding], check=True, stdout=sys.stderr
        )
        record.write_text(str(time.perf_counter() - started), encoding="utf-8")
    return float(record.read_text(encoding="utf-8"))


class _Worker:
    """One binding in its own environment, with the model loaded."""

    def __init__(self, binding: str, model: str, root: Path) -> None:
        self._process = subprocess.Popen(
            [_python(binding, root), "-c", _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._send({"binding": binding, "model": model, "slots": _SLOTS, "context": _CONTEXT, "threads": usable_threads()})

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def seconds(self, requests: list[list[dict[str, str]]], workers: int) -> float:
        """How long all these requests took."""
        return float(self._send({"requests": requests, "workers": workers}))

    def _send(self, message: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a binding's process ended with status {self._process.wait()}")
        return json.loads(line)
