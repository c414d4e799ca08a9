"""An agent with tools in the shape of LangGraph's quick start is optimized through the proxy, without a change to its code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.adapters.recording.proxy import Proxy
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import OpenAIServer
from tests.chat_script import agent
from tests.triage import reflector, rows
from tests.wrapped_task import feedback

pytest.importorskip("langgraph")
openai: Any = pytest.importorskip("openai")

from tests import langgraph_tutorial as tutorial  # noqa: E402, it needs langgraph

PROMPT = {"agent": "Decide how urgent it is. Look the sender up first."}


def optimized(fn: Any, proxy: Proxy, folder: Path, workers: int) -> gl.Result[gl.Wrapped]:
    return gl.optimize(
        gl.wrap(fn, PROMPT, record=proxy),
        rows(12, 1),
        rows(8, 4),
        feedback=feedback,
        run=folder,
        reflection_lm=reflector(),
        budget=gl.Budget(rollouts=60),
        workers=workers,
    )


def check(result: gl.Result[gl.Wrapped], folder: Path, asked: int) -> None:
    assert result.validation.after > result.validation.before
    with RunStore.read(folder) as store:
        kept = list(store.rollouts())
    assert sum(rollout.usage.calls for rollout in kept) == asked
    for rollout in kept:
        looks, answers = rollout.trace.of("agent")
        assert json.loads(looks.reply)[0]["name"] == "look_up"
        assert answers.reply in ("high", "medium", "low")
        assert any("customer since" in text or "unknown" in text for text in answers.inputs.values())
        assert rollout.usage.usd > 0


def test_the_tutorials_agent_needs_no_change_but_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer(agent) as server, gl.proxy(server.base_url, api_key="k") as proxy:
        monkeypatch.setenv("OPENAI_BASE_URL", proxy.shared_url)
        monkeypatch.setenv("OPENAI_API_KEY", "anything")
        graph = tutorial.build()
        result = optimized(lambda message: tutorial.ask(graph, gl.prompt("agent"), message), proxy, tmp_path, 1)
        check(result, tmp_path, server.calls)
        assert set(server.keys) == {"k"}


def test_one_graph_for_all_rollouts_at_once_is_told_apart_by_the_hook_of_its_client(tmp_path: Path) -> None:
    with OpenAIServer(agent) as server, gl.proxy(server.base_url, api_key="k") as proxy:
        client = openai.DefaultHttpxClient(event_hooks={"request": [proxy.stamp]})
        graph = tutorial.build(base_url=proxy.shared_url, api_key="anything", http_client=client)
        result = optimized(lambda message: tutorial.ask(graph, gl.prompt("agent"), message), proxy, tmp_path, 8)
        check(result, tmp_path, server.calls)


def test_an_outage_of_its_endpoint_is_missing_and_no_score(tmp_path: Path) -> None:
    with OpenAIServer(agent, api_key="another") as server, gl.proxy(server.base_url, api_key="k") as proxy:

        def careless(message: str) -> str:
            try:
                return tutorial.ask(tutorial.build(base_url=proxy.base_url, api_key="x"), gl.prompt("agent"), message)
            except openai.OpenAIError:
                return "low"

        with pytest.raises(gl.GepaLiteError, match="is down"):
            optimized(careless, proxy, tmp_path, 2)
    with RunStore.read(tmp_path) as store:
        assert list(store.rollouts()) == []
