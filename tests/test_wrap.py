"""Plain callables as programs: what they take and return, isolation of prompts, traces, budgets, shipping."""

from __future__ import annotations

import asyncio
import functools
import json
import random
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.adapters.adapt import adapt
from gepa_lite.cli.targets import load_program
from gepa_lite.errors import AuthError, ModelConnectionError
from gepa_lite.program.recorder import call_directly
from gepa_lite.store.run_store import RunStore
from tests.triage import reflector, rows
from tests.wrapped_task import ASK, PROMPTS, feedback, said, triage, triage_async, triage_by_parameter, wrapped

BUDGET = gl.Budget(rollouts=110)


def run(folder: Path, fn: Any = triage, workers: Any = 4, **options: Any) -> gl.Result[gl.Wrapped]:
    values: dict[str, Any] = {"feedback": feedback, "reflection_lm": reflector(), "budget": BUDGET, "workers": workers, **options}
    return gl.optimize(fn if isinstance(fn, gl.Wrapped) else wrapped(fn), rows(12, 1), rows(8, 2), testset=rows(6, 3), run=folder, **values)


# --- what it takes, what it returns


class Desk:
    """A desk."""

    def __init__(self, tone: str) -> None:
        self.tone = tone

    def reply(self, message: str) -> str:
        return f"{gl.prompt('p')}|{self.tone}|{message}"

    def __call__(self, message: str, *, tone: str = "flat") -> str:
        return f"{gl.prompt('p')}|{tone}|{message}"


async def coroutine(message: str) -> str:
    await asyncio.sleep(0)
    return f"{gl.prompt('p')}|{message}"


def generator(message: str) -> Iterator[str]:
    yield gl.prompt("p")
    yield f"|{message}"


async def async_generator(message: str) -> AsyncIterator[str]:
    for value in (gl.prompt("p"), f"|{message}"):
        await asyncio.sleep(0)
        yield value


def whole(example: Mapping[str, Any], prompts: Mapping[str, str]) -> str:
    return f"{prompts['p']}|{example['message']}"


def positional(message: str, /, prompts: Mapping[str, str]) -> str:
    return f"{prompts['p']}|{message}"


@pytest.mark.parametrize(
    ("fn", "options", "output"),
    [
        (lambda message: f"{gl.prompt('p')}|{message}", {}, "NEW|hi"),
        (lambda message, prompts: f"{prompts['p']}|{message}", {}, "NEW|hi"),
        (whole, {}, "NEW|hi"),
        (whole, {"inputs": ["message"]}, "NEW|hi"),
        (positional, {}, "NEW|hi"),
        (lambda **fields: f"{gl.prompt('p')}|{fields['message']}", {}, "NEW|hi"),
        (Desk("warm").reply, {}, "NEW|warm|hi"),
        (Desk("warm"), {}, "NEW|flat|hi"),
        (functools.partial(Desk("warm"), tone="cold"), {}, "NEW|cold|hi"),
        (functools.partial(coroutine), {}, "NEW|hi"),
        (coroutine, {}, "NEW|hi"),
        (generator, {"collect": "text"}, "NEW|hi"),
        (generator, {"collect": "last"}, "|hi"),
        (async_generator, {"collect": "list"}, ["NEW", "|hi"]),
        (lambda message: generator(f"{message}"), {"collect": "text"}, "NEW|hi"),
    ],
)
def test_every_kind_of_callable_runs_with_the_candidates_prompt(fn: Any, options: dict[str, Any], output: Any) -> None:
    program = gl.wrap(fn, {"p": "OLD"}, **options).with_prompts({"p": "NEW"})
    [example] = program.examples([{"message": "hi", "label": "x"}], "rows")
    assert example["label"] == "x"
    execution = program.run(example.inputs, call_directly)
    assert (execution.output, execution.error) == (output, None)


def test_outside_a_run_the_callable_gives_what_it_always_gave() -> None:
    new = {"p": "NEW"}
    assert gl.wrap(whole, {"p": "OLD"})({"message": "hi"}) == "OLD|hi"
    assert gl.wrap(Desk("warm"), {"p": "OLD"}).with_prompts(new)("hi", tone="dry") == "NEW|dry|hi"
    assert asyncio.run(gl.wrap(coroutine, {"p": "OLD"}).with_prompts(new)("hi")) == "NEW|hi"
    assert list(gl.wrap(generator, {"p": "OLD"}, collect="text").with_prompts(new)("hi")) == ["NEW", "|hi"]

    async def steps() -> list[str]:
        return [value async for value in gl.wrap(async_generator, {"p": "OLD"}, collect="text").with_prompts(new)("hi")]

    assert asyncio.run(steps()) == ["NEW", "|hi"]


def test_a_generator_leaves_the_callers_context_alone_between_its_values() -> None:
    steps = gl.wrap(generator, {"p": "OLD"}, collect="text").with_prompts({"p": "NEW"})("hi")
    assert next(steps) == "NEW"
    assert gl.prompt("q", "mine") == "mine"
    with pytest.raises(gl.UsageError, match="does not know which rollout"):
        gl.prompt("p", "default")
    assert next(steps) == "|hi"
    steps.close()
    assert gl.prompt("p", "default") == "default"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gl.wrap(Desk, {"p": "x"}), "the class Desk; make an instance"),
        (lambda: gl.wrap(3, {"p": "x"}), "of type int; a callable is needed"),  # type: ignore[arg-type]
        (lambda: gl.wrap(whole, {}), "at least one prompt"),
        (lambda: gl.wrap(whole, {"p": 3}), r"prompts\['p'\] is of type int"),  # type: ignore[dict-item]
        (lambda: gl.wrap(generator, {"p": "x"}), "generator yields: say what its output is"),
        (lambda: gl.wrap(async_generator, {"p": "x"}), "yields: say what its output is"),
        (lambda: gl.wrap(generator, {"p": "x"}, collect="all"), "collect='all'"),  # type: ignore[arg-type]
        (lambda: gl.wrap(lambda *args: 1, {"p": "x"}), r"takes \*args"),
        (lambda: gl.wrap(lambda: 1, {"p": "x"}), "takes no input"),
        (lambda: gl.wrap(lambda example, other: 1, {"p": "x"}), "'other' beside it"),
        (lambda: gl.wrap(whole, {"p": "x"}, record="wire"), "record='wire'"),
        (lambda: gl.wrap(lambda row: 1, {"p": "x"}).examples([{"message": "hi"}], "rows"), "a parameter of the name 'example'"),
        (lambda: gl.wrap(whole, {"p": "x"}).with_prompts({"q": "x"}), "no module 'q'"),
        (lambda: adapt(whole), r"a gl.wrap\(fn, prompts=...\) is needed"),
    ],
)
def test_what_can_not_be_wrapped_is_refused_in_words(make: Any, words: str) -> None:
    with pytest.raises(gl.UsageError, match=words):
        make()


# --- gl.prompt


def test_an_unknown_name_is_an_error_with_near_matches() -> None:
    with pytest.raises(gl.UsageError, match="Did you mean 'route'"):
        gl.wrap(lambda message: gl.prompt("rout"), PROMPTS)("x")
    with pytest.raises(gl.UsageError, match="GEPA_LITE_PROMPTS"):
        gl.prompt("route")
    with pytest.raises(KeyError, match="Did you mean 'route'"):
        gl.wrap(lambda message, prompts: prompts["rout"], PROMPTS)("x")


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12))
def test_no_rollout_ever_reads_anothers_prompt(seed: int, many: int) -> None:
    """Threads that run rollouts, each with tasks, a thread pool and ``to_thread`` inside, see their own text and no other."""
    draw = random.Random(seed)
    program = gl.wrap(_read_everywhere, {"p": "seed"})
    barrier = threading.Barrier(many)
    marks = [f"text {draw.random()}" for _ in range(many)]

    def rollout(mark: str) -> list[str]:
        barrier.wait()
        return program.with_prompts({"p": mark}).run({"mark": mark}, call_directly).output  # type: ignore[no-any-return]

    with ThreadPoolExecutor(many) as pool:
        for mark, seen in zip(marks, pool.map(rollout, marks), strict=True):
            assert seen == [mark] * 8


async def _read_everywhere(mark: str) -> list[str]:
    async def read() -> str:
        await asyncio.sleep(0)
        return gl.prompt("p")

    several = await asyncio.gather(read(), read(), asyncio.create_task(read()))
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(2) as pool:
        carried = [pool.submit(gl.carry(gl.prompt), "p").result(), *pool.map(gl.carry(gl.prompt), ["p"])]
        several += [await asyncio.to_thread(gl.prompt, "p"), await loop.run_in_executor(pool, gl.carry(gl.prompt), "p")]
    return [*several, *carried, gl.prompt("p")]


def test_a_thread_without_its_context_ends_the_run_even_where_the_error_is_swallowed(tmp_path: Path) -> None:
    def careless(message: str) -> str:
        with ThreadPoolExecutor(1) as pool:
            try:
                return pool.submit(gl.prompt, "route", "some default").result()
            except gl.UsageError:
                return "low"

    with pytest.raises(gl.UsageError, match=r"gl\.carry"):
        run(tmp_path, careless)


def test_shipped_prompts_go_before_the_defaults_and_after_chosen_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(tmp_path / "run")
    assert result.prompts["route"] != PROMPTS["route"]
    path = str(result.save(tmp_path / "triage.prompts.json"))
    fresh = gl.wrap(lambda message: gl.prompt("route"), PROMPTS)
    assert fresh("x") == gl.prompt("route", PROMPTS["route"]) == PROMPTS["route"]
    monkeypatch.setenv("GEPA_LITE_PROMPTS", path)
    assert fresh("x") == gl.prompt("route") == gl.prompt("route", "default") == result.prompts["route"]
    assert fresh.with_prompts({"route": "chosen"})("x") == "chosen"
    gl.use_prompts({"route": "by hand"})
    try:
        assert fresh("x") == gl.prompt("route") == "by hand"
        # a run starts from what the code says, whatever is shipped
        assert fresh.run({"message": "x"}, call_directly).output == PROMPTS["route"]
        gl.use_prompts(path)
        assert gl.prompt("route") == result.prompts["route"]
    finally:
        gl.use_prompts(None)
    with pytest.raises(gl.UsageError, match="use_prompts"):
        gl.use_prompts(3)  # type: ignore[arg-type]


# --- runs


@pytest.mark.parametrize(
    "fn", [triage, triage_by_parameter, triage_async, functools.partial(triage)], ids=["deep", "given", "async", "partial"]
)
def test_a_function_is_optimized_as_it_stands(tmp_path: Path, fn: Any) -> None:
    result = run(tmp_path, fn)
    assert result.validation.after > result.validation.before
    message = next(row for row in rows(6, 3) if f"rule {row['kind']}" in result.prompts["route"])
    given = message if fn is triage_by_parameter else message["message"]
    answered = result.program(given)
    assert (asyncio.run(answered) if fn is triage_async else answered) == message["urgency"]
    [trace] = {rollout.trace.modules for rollout in _rollouts(tmp_path)}
    assert trace == ("gist", "route")
    assert result.costs.logical.task.calls == len(_rollouts(tmp_path)) * 2
    # a module whose text stayed as it was is not asked again for the same message
    assert result.costs.paid.calls < result.costs.logical.total.calls


def _rollouts(folder: Path) -> list[Any]:
    with RunStore.read(folder) as store:
        return list(store.rollouts())


def test_threads_processes_and_a_resume_give_one_log(tmp_path: Path) -> None:
    first = run(tmp_path / "threads", workers=8)
    run(tmp_path / "one", workers=1)
    run(tmp_path / "processes", workers="processes:2")
    logs = []
    for name in ("threads", "one", "processes"):
        with RunStore.read(tmp_path / name) as store:
            logs.append(store.events())
    assert logs[0] == logs[1] == logs[2]
    again = run(tmp_path / "threads", workers=8)
    assert again.costs.paid == first.costs.paid
    assert again.prompts == first.prompts


def test_a_bundle_goes_round_and_refuses_other_placeholders(tmp_path: Path) -> None:
    result = run(tmp_path / "run")
    path = result.save(tmp_path / "x.prompts.json")
    assert json.loads(path.read_text())["modules"]["route"]["signature"] == "triage(message)"
    assert wrapped().load(path).prompts == gl.apply_prompts(wrapped(), path).prompts == result.prompts
    with pytest.raises(gl.UsageError, match="signature of 'route' has changed"):
        gl.wrap(triage, {**PROMPTS, "route": "Decide about {message}."}).load(path)


def test_a_changed_function_is_another_run(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(gl.UsageError, match="other settings"):
        run(tmp_path, triage_async)


def test_calls_that_are_not_seen_leave_dollars_unknown_and_rollouts_bounded(tmp_path: Path) -> None:
    unseen: list[str] = []

    def hidden(message: str) -> str:
        """Asks a model in a way that no run can see."""
        unseen.append(message)
        for name in ("gist", "route"):
            reply = ASK.lm.complete(gl.Request(tuple(said(gl.prompt(name), message)))).text
        return reply

    program = gl.wrap(hidden, PROMPTS)
    result = run(tmp_path, program, search=gl.Search(fan=4))
    assert result.validation.after > result.validation.before
    assert len(unseen) == len(_rollouts(tmp_path)) <= 110
    assert result.costs.roles["task"].usd is None
    assert "unknown" in str(result)
    assert any("not seen" in notice for notice in program.notices)
    call = next(rollout for rollout in _rollouts(tmp_path)).trace.of("route")[0]
    assert set(call.inputs) == {"message"}
    assert set(call.outputs) == {"output"}
    with pytest.raises(gl.UsageError, match="hidden makes model calls that the run can't see"):
        run(tmp_path / "other", program, budget=gl.Budget(usd=1.0, rollouts=100))


def test_the_reflection_model_must_be_named_where_the_function_names_none(tmp_path: Path) -> None:
    with pytest.raises(gl.UsageError, match="no reflection_lm: which models triage asks"):
        run(tmp_path, gl.wrap(triage, PROMPTS), reflection_lm=None)
    with pytest.raises(gl.UsageError, match="no feedback"):
        run(tmp_path, feedback=None)
    prepared = api.prepare(wrapped(), rows(4, 1), rows(4, 2), feedback=feedback)
    assert list(prepared.spec.reflectors) == ["task"]


# --- failures


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (lambda: ConnectionResetError("gone"), ModelConnectionError),
        (lambda: _openai_error(401), AuthError),
        (lambda: _httpx_error("refused"), ModelConnectionError),
        (lambda: KeyError("x"), KeyError),
    ],
    ids=["socket", "key", "httpx", "own"],
)
def test_an_outage_of_a_call_that_is_not_seen_is_no_score(error: Any, kind: type[Exception]) -> None:
    def fails(message: str) -> str:
        gl.prompt("route")
        raise RuntimeError("wrapped by the user's code") from error()

    execution = gl.wrap(fails, PROMPTS).run({"message": "x"}, call_directly)
    assert isinstance(execution.error, kind if kind is not KeyError else RuntimeError)


def _openai_error(status: int) -> Exception:
    openai: Any = pytest.importorskip("openai")
    response = openai._base_client.httpx2.Response(status, request=openai._base_client.httpx2.Request("POST", "http://127.0.0.1/"))
    return openai.AuthenticationError("no key", response=response, body=None)  # type: ignore[no-any-return]


def _httpx_error(words: str) -> Exception:
    httpx: Any = pytest.importorskip("httpx")
    return httpx.ConnectError(words)  # type: ignore[no-any-return]


def test_the_command_line_takes_a_wrapped_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_pipeline.py").write_text("import gepa_lite as gl\npipeline = gl.wrap(lambda message: message, {'p': 'x'})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_program("my_pipeline:pipeline", None).prompts == {"p": "x"}
    with pytest.raises(gl.UsageError, match="asks its own models"):
        load_program("my_pipeline:pipeline", "openai/gpt-4.1")
