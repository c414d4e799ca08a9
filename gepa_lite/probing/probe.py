"""``gl.probe``: which reflection model refines best, or which settings of the loop."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from gepa_lite.api import Prepared, ReflectionSpec, execute, prepare
from gepa_lite.budgeting import check_budget
from gepa_lite.core.budget import Budget
from gepa_lite.core.events import Proposed
from gepa_lite.errors import UsageError
from gepa_lite.insight.progress import Progress
from gepa_lite.insight.transitions import transitions
from gepa_lite.lm.resolve import LMSpec
from gepa_lite.probing.outcome import ProbeResult, outcome_of, turns_of
from gepa_lite.probing.rounds import JUDGED, Rounds
from gepa_lite.probing.variants import SETTINGS, Tempered, Variant, variants_of
from gepa_lite.rollouts.judge import FeedbackFunction
from gepa_lite.search.search import Search
from gepa_lite.session import Observer
from gepa_lite.store.folders import run_folder
from gepa_lite.store.run_store import RunStore

ROUNDS = 12
"""Rounds by default: enough to see that one of two refines nearly always and the other hardly ever, not enough for less."""
VALIDATION = 20
"""Validation examples used at most: they only steer which children become parents."""


def probe(
    program: Any,
    trainset: Any,
    valset: Any = None,
    *,
    models: Sequence[LMSpec] | None = None,
    settings: Mapping[str, Sequence[Any] | Mapping[str, Any]] | Literal[True] | None = None,
    feedback: FeedbackFunction | None = None,
    rounds: int = ROUNDS,
    budget: Budget | None = None,
    search: Search | None = None,
    run: str | Path | None = None,
    **options: Any,
) -> ProbeResult:
    """Try several reflection models, or several settings of the loop, on the same parents and minibatches, before a run is paid for.

    In each round every one of them rewrites the same module of the same parent after the same minibatch, and its child is judged on six other training examples, which no reflection was shown. The best child of a round joins the pool, so that later
    parents are such as a search would have. It is a run like any other: budget, ledger, cache, record and resume. With fewer training examples than the largest minibatch and six, it is judged on as many others as there are, and the result says so.

    Args:
        program: as in ``gl.optimize``.
        trainset: likewise.
        valset: likewise; at most 20 of its examples are used, to choose parents.
        models: reflection models to compare, by name or as objects.
        settings: what to try of one reflection model (``models=[it]``, or the program's own), one at a time: ``{"minibatch": [3, 6], "horizon": [0, 1, "episode"], "proposer": ["edit"], "temperature": [0.3, 1.0],
            "template": {"mine": text}}``; True tries the usual ones. A smaller minibatch is the first part of a larger one.
        feedback: as in ``gl.optimize``.
        rounds: to make.
        budget: upper bounds; without it what the rounds may take.
        search: the rules to start from.
        run: a name or folder; an existing one goes on, and a finished one is only read.
        options: ``contract``, ``prices`` and ``workers`` as in ``gl.optimize``.

    Returns:
        Rates, costs, the front of the two, and a recommendation, which says where the data can't tell.

    Raises:
        UsageError: an argument is wrong; raised before any call is paid for.
        RunError: the run can't go on; what was paid is kept.

    Example:
        >>> import gepa_lite as gl
        >>> from gepa_lite.testing import ScriptedLM
        >>> class Shout(gl.Program):
        ...     answer = gl.Module("word -> reply", "Repeat the word.")
        ...     def forward(self, word):
        ...         return self.answer(word=word)
        >>> task = ScriptedLM(lambda request: "HI" if "capital" in request.messages[0]["content"] else "hi")
        >>> good = ScriptedLM("<prompt>Repeat the word in capital letters.</prompt>", name="good")
        >>> poor = ScriptedLM("<prompt>Repeat the word, please.</prompt>", name="poor")
        >>> words = [{"word": w} for w in "red green blue white black brown pink gold".split()]
        >>> found = gl.probe(Shout(lm=task), words[:4], words[4:], models=[good, poor], rounds=1,
        ...                  feedback=lambda example, output: output.reply.isupper(), run=getfixture("tmp_path"))
        >>> found.leader, found.of("good").refined, found.of("poor").refined, found.told
        ('good', 1, 0, False)
    """
    given: dict[str, Any] = {"feedback": feedback, "budget": budget, "search": dataclasses.replace(search or Search(), fan=1)}
    reflectors = None if models is None else _named(models)
    prepared = prepare(program, trainset, valset, reflection_lm=reflectors, **given, **options)
    return run_probe(prepared, settings, rounds, run)


def _named(models: Sequence[LMSpec]) -> ReflectionSpec:
    if isinstance(models, str) or not isinstance(models, Sequence) or not models:
        raise UsageError(f"models={models!r}: a list of reflection models is needed, e.g. models=['openai/gpt-5', 'openai/gpt-4.1-mini'].")
    try:
        return dict.fromkeys(models, 1.0)
    except TypeError as error:
        raise UsageError(f"models={models!r}: names or objects that can be keys of a mapping are needed ({error}).") from error


def run_probe(
    prepared: Prepared,
    settings: Mapping[str, Sequence[Any] | Mapping[str, Any]] | Literal[True] | None,
    rounds: int,
    run: str | Path | None,
) -> ProbeResult:
    """Make or resume a probe of what ``prepare`` checked: of its reflection models, or of settings of its one."""
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise UsageError(f"rounds={rounds!r}: a whole number of at least 1 is needed.")
    if prepared.spec.test or prepared.spec.curve:
        raise UsageError("probe takes no test set and no curve: it claims no gain.")
    tried = SETTINGS if settings is True else settings or {}
    variants = variants_of({name: lm for name, (lm, _) in prepared.spec.reflectors.items()}, tried, prepared.spec.search)
    spec = _spec(prepared, variants, rounds)
    folder = run_folder(run, f"{spec.program.name}-probe")
    observers: list[Observer] = [] if os.environ.get("GEPA_LITE_PROGRESS", "1") == "0" else [Progress(spec.search.objective)]
    result = execute(dataclasses.replace(prepared, spec=spec, notices=()), folder, observers, {"optimizer": "probe"})
    with RunStore.read(folder) as store:
        proposals = [event for event in store.events() if isinstance(event, Proposed)]
    others = len(spec.train) - min(spec.search.least_minibatch, len(spec.train))
    turns = turns_of(proposals, transitions(folder), [variant.name for variant in variants])
    return outcome_of(turns, result.stopped, folder, min(JUDGED, others))


def _spec(prepared: Prepared, variants: Sequence[Variant], rounds: int) -> Any:
    """The run's spec: one proposal at a time for each variant, on a minibatch as large as the largest that is tried."""
    search = dataclasses.replace(
        prepared.spec.search,
        minibatch=max(variant.minibatch for variant in variants),
        fan=1,
        window=1,
        merge="none",
        plateau=0,
        shorten=0,
        reflection_template=None,
        require=None,
    )
    spec = dataclasses.replace(
        prepared.spec,
        validation=prepared.spec.validation[:VALIDATION],
        reflectors={variant.name: (Tempered(variant.lm, variant.temperature), 1.0) for variant in variants},
        search=search,
        procedure=Rounds(variants, rounds),
        drop_reflectors=True,
    )
    if prepared.default_budget:
        size, checked = min(search.least_minibatch, len(spec.train)), len(spec.validation) + len(spec.pins)
        most = search.repeats * (checked + rounds * (4 * size + (1 + len(variants)) * JUDGED + checked))
        spec = spec.with_budget(Budget(rollouts=most, usd=spec.budget.usd))
    check_budget(spec)
    return spec
