"""The invariants of docs/invariants.md under options drawn at random, a reflection model that answers anything, outages, and scores below zero."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.core.events import Event
from gepa_lite.core.rollout import Rollout
from gepa_lite.errors import ModelConnectionError, RunError, UsageError
from gepa_lite.search.state import RunState, replay
from gepa_lite.session import Session
from gepa_lite.store.memory import MemoryStore
from gepa_lite.testing import ScriptedLM
from tests.test_windows import Watch, boundaries
from tests.triage import RULES, Triage, reflect, rows

RANGE = (-2.0, 3.0)
REPLIES = (
    "I would rather not.",
    "",
    "<prompt></prompt>",
    "<prompt>one</prompt> or <prompt>two</prompt>",
    "<prompt>{braces} {{jinja}} {% if %} \\1 $x é 🙂 rule refund. urgent</prompt>",
    "<prompt>rule leak. urgent rule praise.</prompt>",
    "<prompt>" + "urgent rule typo. " * 400 + "</prompt>",
    "```\nurgent rule invoice.\n```",
    "<edit><find>Decide</find><replace>Decide with rule question.</replace></edit>",
)


class Scored(Watch):
    """Counts those that were run and got a score: one that is missing is tried again."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0

    def on_rollout(self, rollout: Rollout, saved: bool) -> None:
        self.tries += not saved
        if not rollout.missing:
            super().on_rollout(rollout, saved)


def draw_of(*parts: str) -> int:
    """A number that depends on the texts alone."""
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:4], "big")


class Hostile(Triage):
    """Each module is right where the last two rules of its own prompt say it, so that lineages part; wrong answers get any value of a range that has zero inside."""

    def forward(self, message: str) -> gl.Outputs:
        gist = self.gist(message=message).gist
        return gl.Outputs(gist=gist, urgency=self.route(message=message, gist=gist).urgency)

    def feedback(self, example: gl.Example, output: gl.Outputs, trace: gl.Trace) -> gl.Feedback:
        kind = example["kind"]
        right = {"gist": kind in output.gist, "route": output.urgency == example["urgency"]}
        luck = draw_of(example["message"], output.urgency, output.gist) % 4 / 2
        score = RANGE[1] if all(right.values()) else RANGE[0] + 1.5 * sum(right.values()) + luck
        return gl.Feedback(score, "", modules={module: "right" if good else f"RULE:{kind}" for module, good in right.items()})


def run(
    options: Mapping[str, Any], seed: int, budget: int, workers: int, before: Sequence[Event] = (), watch: Watch | None = None
) -> tuple[list[Event], RunState]:
    """One session in memory; the log, also of a run that can't go on, and the state that it gives."""

    def says(request: gl.Request) -> str:
        text = request.messages[0]["content"]
        choice = draw_of(str(seed), text) % (3 * len(REPLIES))
        if choice < len(REPLIES):
            return REPLIES[choice]
        return reflect(request) if "<current>" in text else REPLIES[0]

    def task(request: gl.Request) -> Any:
        # an outage that never ends: missing, never a zero; one example in nine of the training set
        user = request.messages[-1]["content"]
        message = re.search(r"number \d+ of 1\b", user)
        if message and draw_of(str(seed), message[0]) % 9 == 0:
            return ModelConnectionError("no answer")
        system = request.messages[0]["content"]
        kind = next(kind for kind in RULES if f" {kind} " in user)
        known = kind in re.findall(r"rule (\w+)", system)[-2:]
        if "urgent" not in system:
            return f"a {kind}" if known else "something"
        return RULES[kind] if known else ("low", "medium")[len(user) % 2]

    prepared = api.prepare(
        Hostile(lm=ScriptedLM(task, name="task")),
        rows(18, 1),
        rows(12, 2),
        reflection_lm=ScriptedLM(says, name="reflector"),
        workers=workers,
        search=gl.Search.paper(seed=seed, objective=gl.Objective(range=RANGE), **options),
        budget=gl.Budget(rollouts=budget),
    )
    store = MemoryStore()
    store.commit(list(before))
    try:
        Session(prepared.spec, store, [watch] if watch else []).run()
    except RunError:
        assert store.events(), "what was paid before it is kept"
    events = store.events()
    return events, replay(events)


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "fan": st.sampled_from((1, 2, 5)),
        "window": st.sampled_from((1, 3)),
        "selector": st.sampled_from(("pareto", "best", "epsilon_greedy", "top_k_pareto", "beam", "elite", "likely")),
        "frontier": st.sampled_from(("example", "hybrid", "product")),
        "merge": st.sampled_from(("none", "paper", "complementary")),
        "modules": st.sampled_from(("round_robin", "all", "blame")),
        "accept": st.sampled_from(("strict", "non_strict", "paired")),
        "minibatch": st.sampled_from((1, 3, 7, ((0, 2), (4, 5)))),
        "sampling": st.sampled_from(("epoch", "hard")),
        "reuse": st.booleans(),
        "repeats": st.sampled_from((1, 2)),
        "validation": st.sampled_from(("full", "staged")),
        "proposer": st.sampled_from(("rewrite", "edit")),
        "horizon": st.sampled_from((0, 2, "episode", "adaptive")),
        "plateau": st.sampled_from((2, 4)),
        "skip_perfect": st.booleans(),
        "prefer": st.just("short"),
        "guard": st.sampled_from(("off", "warn")),
    },
)


@settings(max_examples=30, phases=(Phase.explicit, Phase.generate))
@given(OPTIONS, st.integers(0, 10**6), st.integers(30, 300), st.data())
def test_invariants_hold_whatever_the_options_and_the_replies(options: dict[str, Any], seed: int, budget: int, data: st.DataObject) -> None:
    watch = Scored()
    try:
        events, state = run(options, seed, budget, 4, watch=watch)
    except UsageError:
        # the budget can't pay for one step
        assert not watch.tries, "it is refused before anything is run"
        return
    assert state.spend.rollouts <= budget, "3: the budget holds"
    assert set(watch.ran.values()) <= {1}, "5: no rollout is run twice"
    assert len(watch.ran) <= state.spend.rollouts <= watch.tries or state.stopped is None, "5: what was run is charged, and nothing else"
    ids = [member.candidate.id for member in state.pool]
    assert max(Counter(ids).values(), default=1) == 1, "4: no candidate comes twice"
    for merge in state.merges:
        for module, source in merge.sources.items():
            assert source in merge.parents
            text = merge.texts.get(module, state.pool[merge.parents[0]].candidate.texts[module])
            assert text == state.pool[source].candidate.texts[module], "merge texts come from parents"
    assert run(options, seed, budget, 1)[0] == events, "1: the log does not depend on workers"
    cuts = boundaries(events)
    if cuts:
        cut = data.draw(st.sampled_from(cuts))
        assert run(options, seed, budget, 4, before=events[:cut])[0] == events, f"7: stopped after {cut} events"


@settings(max_examples=20, phases=(Phase.explicit, Phase.generate))
@given(OPTIONS, st.integers(0, 10**6))
def test_fronts_never_fall_and_every_score_is_one_that_was_judged(options: dict[str, Any], seed: int) -> None:
    events, _ = run(options, seed, 260, 4)
    state, best = RunState(), None
    for event in events:
        state = state.apply(event)
        if not state.seed_validated:
            continue
        table = state.table.array
        known = table[table == table]
        assert ((known >= RANGE[0]) & (known <= RANGE[1])).all(), "nothing is filled in with a zero, or worse"
        now = [column[column == column].max() for column in table.T]
        assert best is None or all(a >= b for a, b in zip(now, best, strict=True)), "4: fronts never fall"
        best = now
