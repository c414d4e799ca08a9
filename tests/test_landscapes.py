"""The simulated landscapes: what they promise to those who measure a search on them."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import pickle
import random
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
import gepa_lite.search.reflect
from gepa_lite.core.candidate import Candidate
from gepa_lite.testing import (
    HELD_BACK,
    LANDSCAPE_TEMPLATE,
    LANDSCAPES,
    TUNING,
    Landscape,
    LandscapeRun,
    LandscapeSpec,
    Reflector,
    landscape,
    run_landscape,
)
from gepa_lite.testing.landscape_search import LandscapePorts
from gepa_lite.testing.landscape_words import FILLERS, Vocabulary, sentences_of

EVERY = pytest.mark.parametrize("name", sorted(LANDSCAPES))


def random_texts(land: Landscape, seed: int) -> dict[str, str]:
    """Prompts in which each kind of sentence stands by chance."""
    dice, spec = random.Random(seed), land.spec
    words = Vocabulary(land.seed, spec.modules, spec.rules)
    texts = {}
    for module, name in enumerate(land.modules):
        pool = [words.rule(module, rule) for rule in range(spec.rules)] * 2
        pool += [words.garbled(module, rule) for rule in range(spec.rules)] + list(FILLERS[:6])
        pool += [words.blunt(desk) for desk in range(spec.traps)] * 3 if spec.desks else []
        pool += [words.memory(number) for number in range(1, 4)]
        texts[name] = " ".join([land.seed_texts[name], *(sentence for sentence in dict.fromkeys(pool) if dice.random() < 0.3)])
    return texts


def test_the_catalogue_is_split_in_two() -> None:
    assert len(LANDSCAPES) >= 8
    assert sorted([*TUNING, *HELD_BACK]) == sorted(LANDSCAPES)
    assert not set(TUNING) & set(HELD_BACK)
    with pytest.raises(gl.UsageError, match="no landscape 'flat'"):
        landscape("flat")


@EVERY
def test_the_same_seed_is_the_same_landscape(name: str) -> None:
    one, two = landscape(name, 5), pickle.loads(pickle.dumps(landscape(name, 5)))
    assert (one.cases, one.train, one.validation, one.full_texts) == (two.cases, two.train, two.validation, two.full_texts)
    texts = random_texts(one, 1)
    assert [one.judge(texts, item, 2) for item in one.train] == [two.judge(texts, item, 2) for item in two.train]
    assert landscape(name, 6).full_texts != one.full_texts
    ids = [item.id for item in (*one.train, *one.validation)]
    assert len(set(ids)) == len(ids) == one.spec.train + one.spec.validation


@EVERY
@pytest.mark.parametrize("seed", [0, 1])
def test_the_closed_form_is_the_mean_over_the_population(name: str, seed: int) -> None:
    land = landscape(name, seed)
    people = land.examples(20_000, "population", first=1_000)
    for texts in (land.seed_texts, land.full_texts, random_texts(land, seed)):
        scorer = land.scorer(texts)
        scores = [scorer(example) for example in people]
        error = statistics.stdev(scores) / math.sqrt(len(scores))
        assert abs(statistics.fmean(scores) - land.held_out(texts)) < 4 * error + 1e-12


@EVERY
def test_nothing_beats_every_rule_and_nothing_else(name: str) -> None:
    land = landscape(name, 1)
    noise = land.spec.label_noise
    assert land.attainable == land.held_out(land.full_texts)
    assert land.attainable == pytest.approx(land.spec.ceiling * (1 - 2 * noise) + noise)
    assert land.held_out(land.seed_texts) < 0.5 * land.attainable
    for seed in range(50):
        assert land.held_out(random_texts(land, seed)) <= land.attainable
    for name_, text in land.full_texts.items():
        for sentence in sentences_of(text)[1:]:
            fewer = {**land.full_texts, name_: text.replace(" " + sentence, "")}
            assert land.held_out(fewer) < land.attainable, "each rule matters for someone"


@EVERY
def test_scores_lie_in_their_range(name: str) -> None:
    land = landscape(name, 2)
    scores = {land.score(random_texts(land, seed), example, seed) for seed in range(5) for example in land.train}
    assert all(0 <= score <= 1 for score in scores)
    assert len(scores) > 2 if land.spec.graded else scores == {0.0, 1.0}


def test_an_answer_wavers_with_sample_and_prompt_only_as_far_as_told() -> None:
    steady, wavering = (Landscape(LandscapeSpec("x", wobble=wobble, train=200)) for wobble in (0.0, 1.0))
    for land, varies in ((steady, False), (wavering, True)):
        texts = land.seed_texts
        longer = {"read": f"{texts['read']} {FILLERS[0]}"}
        for other, draw in ((texts, 1), (longer, 0)):
            differs = [land.score(texts, item) != land.score(other, item, draw) for item in land.train]
            assert any(differs) == varies
        assert [land.score(texts, item, 7) for item in land.train] == [land.score(texts, item, 7) for item in land.train]


def test_more_rules_never_hurt_where_nothing_wavers() -> None:
    land = landscape("one-easy", 3)
    texts, before = dict(land.seed_texts), [land.score(land.seed_texts, item) for item in land.train]
    for sentence in sentences_of(land.full_texts["read"])[1:]:
        texts["read"] += " " + sentence
        after = [land.score(texts, item) for item in land.train]
        assert all(a >= b for a, b in zip(after, before, strict=True))
        before = after


def test_a_message_learnt_by_heart_helps_itself_alone() -> None:
    land = Landscape(dataclasses.replace(LANDSCAPES["overfitting"], wobble=0.0))
    wrong = [item for item in land.train if not land.score(land.seed_texts, item)]
    words = Vocabulary(land.seed, 1, land.spec.rules)
    texts = {"read": f"{land.seed_texts['read']} {words.memory(wrong[0]['number'])}"}
    chances = statistics.fmean(land.score(texts, wrong[0], draw) for draw in range(20))
    assert chances == land.score(land.full_texts, wrong[0]), "right unless no prompt gets it right"
    assert land.held_out(texts) == pytest.approx(land.held_out(land.seed_texts))


def test_a_long_prompt_is_followed_less() -> None:
    land = landscape("overfitting")
    scores = []
    for count in range(8):
        scores.append(land.held_out({"read": " ".join([land.full_texts["read"], *FILLERS[:count]])}))
    slack = land.spec.slack
    assert scores[: slack + 1] == [land.attainable] * (slack + 1)
    assert all(a > b for a, b in itertools.pairwise(scores[slack:]))


def test_a_shortcut_tempts_and_then_blocks() -> None:
    land = landscape("deceptive")
    words = Vocabulary(land.seed, 1, land.spec.rules)
    tempted = {"read": f"{land.seed_texts['read']} {words.blunt(0)}"}
    assert land.held_out(tempted) > land.held_out(land.seed_texts) + 0.05, "it is better than the seed"
    blocked = {"read": f"{land.full_texts['read']} {words.blunt(0)}"}
    assert land.held_out(blocked) < land.attainable - 0.2, "and no rules make up for it"


def test_a_garbled_rule_hurts_its_own_messages_and_its_neighbours() -> None:
    land = landscape("one-easy")
    words = Vocabulary(land.seed, 1, land.spec.rules)
    before = land.readings(land.full_texts)
    after = land.readings({"read": f"{land.full_texts['read']} {words.garbled(0, 2)}"})
    lost = {case.needs[0][1]: land.chance(before, case) - land.chance(after, case) for case in land.cases}
    assert lost[2] > lost[3] > 0
    assert all(lost[rule] == 0 for rule in lost if rule not in (2, 3))


def test_reviews_name_what_the_module_lacks() -> None:
    land = Landscape(LandscapeSpec("x", modules=2, rules=4, pairs=1.0, vague=0.0, wobble=0.0))
    words = Vocabulary(land.seed, 2, 4)
    wrong = next(item for item in land.train if not land.score(land.seed_texts, item))
    needs = dict(land.cases[wrong["case"]].needs)
    judged = land.judge(land.seed_texts, wrong)
    for module, name in enumerate(land.modules):
        assert words.broken(module, needs[module]) in judged.for_module(name)
        assert words.broken(1 - module, needs[1 - module]) not in judged.for_module(name)
        assert words.broken(module, needs[module]) in land.words(land.seed_texts, wrong)
    half = {**land.seed_texts, "read": land.full_texts["read"]}
    if not land.score(half, wrong):
        assert set(land.judge(half, wrong).modules) == {"plan"}, "a module that did its part has no words of its own"
    right = next(item for item in land.train if land.score(land.full_texts, item))
    assert land.words(land.full_texts, right) == f"Message {right['number']} is right."


def test_the_reflector_keeps_to_its_habits() -> None:
    habits = Reflector(find=0.4, garble=0.2, overfit=0.1, deceive=0.1, miss=0.15, lose=0.05, repair=0.3)
    land = Landscape(LandscapeSpec("x", rules=4, desks=2, vague=0.0, wobble=0.0, reflector=habits))
    words = Vocabulary(land.seed, 1, 4)
    lesson = " ".join([words.wrong(7), words.desk(0), words.blunted(1), words.broken(0, 2)])
    before = sentences_of(f"{land.seed_texts['read']} {words.rule(0, 1)} {words.blunt(1)}")
    counts: dict[str, int] = dict.fromkeys(("rule", "garbled", "memory", "blunt", "filler", "none", "kept", "blamed"), 0)
    n = 4_000
    for draw in range(n):
        after = sentences_of(land.reflect("read", " ".join(before), [lesson], draw))
        added = [sentence for sentence in after if sentence not in before]
        assert len(added) <= 1
        mark = words.mark(added[0]) if added else None
        counts[mark.kind if mark else "filler" if added else "none"] += 1
        counts["kept"] += words.rule(0, 1) in after
        counts["blamed"] += words.blunt(1) in after
    expected = {"rule": 0.4, "garbled": 0.2, "memory": 0.1, "blunt": 0.1, "filler": 0.15, "none": 0.05, "kept": 0.95, "blamed": 0.95 * 0.7}
    for what, share in expected.items():
        assert abs(counts[what] / n - share) < 4 * math.sqrt(share * (1 - share) / n), what


def test_the_reflector_takes_up_as_many_rules_as_it_may() -> None:
    words = Vocabulary(0, 1, 6)
    lessons = [words.broken(0, rule) for rule in (1, 3, 4)]
    for most in (1, 2, 5):
        land = Landscape(LandscapeSpec("x", rules=6, reflector=Reflector(find=1, garble=0, overfit=0, miss=0, lose=0, most=most)))
        for draw in range(20):
            assert len(sentences_of(land.reflect("read", land.seed_texts["read"], lessons, draw))) == 1 + min(most, 3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"modules": 7}, "from 1 to 6"),
        ({"rules": 1}, "at least 2"),
        ({"modules": 6, "rules": 40}, "at most 144"),
        ({"pairs": 0.5}, "two modules"),
        ({"desks": 1}, "0, 2, 3 or 4"),
        ({"desks": 2, "traps": 3}, "number of desks"),
        ({"label_noise": 0.6}, r"above 0\.5"),
        ({"wobble": 1.5}, "from 0 to 1"),
    ],
)
def test_an_impossible_landscape_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(gl.UsageError, match=message):
        LandscapeSpec("x", **fields)


@pytest.mark.parametrize("fields", [{"find": 0.9}, {"lose": 1.2}, {"garble": -0.1}, {"most": 0}])
def test_an_impossible_reflector_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(gl.UsageError, match="Reflector"):
        Reflector(**fields)


@EVERY
def test_a_search_gains_on_every_landscape(name: str) -> None:
    runs = [run_landscape(landscape(name, seed), gl.Search(), gl.Budget(rollouts=600), seed=seed) for seed in range(4)]
    assert all(run.state.spend.rollouts <= 600 for run in runs)
    assert statistics.fmean(run.held_out - run.seed for run in runs) > 0.1
    assert all(run.held_out <= run.attainable for run in runs)


def test_a_run_is_the_same_each_time_and_in_every_process() -> None:
    code = (
        "from gepa_lite import Budget, Search; from gepa_lite.testing import landscape, run_landscape;"
        "run = run_landscape(landscape('mixed', 2), Search(fan=2), Budget(rollouts=400), seed=3); print(run.curve, run.winner)"
    )
    printed = set()
    for seed in ("0", "7"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[1])}
        printed.add(subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout)
    run = run_landscape(landscape("mixed", 2), gl.Search(fan=2), gl.Budget(rollouts=400), seed=3)
    assert printed == {f"{run.curve} {dict(run.winner)}\n"}
    other = run_landscape(landscape("mixed", 2), gl.Search(fan=2), gl.Budget(rollouts=400), seed=4)
    assert other.curve != run.curve


def test_the_minimal_template_gives_the_same_run() -> None:
    land = landscape("three-modules")
    ours = (Path(gepa_lite.search.reflect.__file__).parent / "templates" / "situation.j2").read_text()
    runs = [
        run_landscape(land, gl.Search(reflection_template=template), gl.Budget(rollouts=400))
        for template in (None, LANDSCAPE_TEMPLATE, ours)
    ]
    assert runs[0].curve == runs[1].curve == runs[2].curve
    with pytest.raises(ValueError, match="LANDSCAPE_TEMPLATE"):
        run_landscape(land, gl.Search(reflection_template="Improve {{ prompt }}"), gl.Budget(rollouts=400))


def test_the_curve_is_what_was_best_by_validation() -> None:
    land = landscape("noisy", 1)
    run = run_landscape(land, gl.Search(), gl.Budget(rollouts=800))
    assert run.curve[0] == (land.spec.validation, land.held_out(land.seed_texts))
    assert run.held_out == land.held_out(run.winner)
    assert [spent for spent, _ in run.curve] == sorted({spent for spent, _ in run.curve})
    assert len(run.curve) <= len(run.state.pool)


def test_reading_a_curve() -> None:
    texts = landscape("one-easy").seed_texts
    state = run_landscape(landscape("one-easy"), gl.Search(), gl.Budget(rollouts=100)).state
    run = LandscapeRun(state, texts, ((40, 0.3), (90, 0.6), (150, 0.5), (220, 0.95)), 1.0)
    assert [run.at(rollouts) for rollouts in (0, 40, 89, 90, 200, 999)] == [0.3, 0.3, 0.3, 0.6, 0.5, 0.95]
    assert [run.rollouts_to(share) for share in (0.2, 0.5, 0.9, 0.99)] == [0, 90, 220, None]


def test_rollouts_are_those_of_the_task_model() -> None:
    land = landscape("six-modules")
    ports = LandscapePorts(land, 0)
    ids = [land.train[0].id, land.validation[0].id]
    ((learning, checking),) = ports.evaluate(Candidate(land.seed_texts), ids, samples=(3,), priority=(0,))
    assert learning.trace.modules == land.modules
    assert learning.feedback == land.judge(land.seed_texts, land.train[0], 3)
    assert checking.value == land.score(land.seed_texts, land.validation[0], 3)


def test_edits_are_answered_as_edits() -> None:
    land = Landscape(LandscapeSpec("x", rules=4, reflector=Reflector(find=1, garble=0, overfit=0, miss=0, lose=0, repair=1)))
    words = Vocabulary(0, 1, 4)
    prompt = f"{land.seed_texts['read']} {words.garbled(0, 1)}"
    lesson = f"{words.wrong(3)} {words.misled(0, 1)} {words.broken(0, 1)}"
    asked = f'The prompt belongs to the step "read": x\n<current>\n{prompt}\n</current>\nReview: {lesson}\nAnswer with <edit> blocks.'
    reply = LandscapePorts(land, 0).reflect(({"role": "user", "content": asked},), model="simulated", address=(0, 0)).text
    assert reply == (f"<edit><find>{words.garbled(0, 1)}</find><replace></replace></edit>\n<edit><add>{words.rule(0, 1)}</add></edit>")


def test_an_outside_optimizer_needs_three_functions() -> None:
    """How another optimizer is run on a landscape: candidate -> scores and words; text and words -> text."""
    land = landscape("three-modules", 4)
    texts, dice = dict(land.seed_texts), random.Random(0)
    for turn in range(40):
        module = land.modules[turn % 3]
        batch = dice.sample(land.train, 3)
        before = [land.judge(texts, item) for item in batch]
        text = land.reflect(module, texts[module], [judged.for_module(module) for judged in before], turn)
        child = {**texts, module: text}
        if sum(land.score(child, item) for item in batch) > sum(judged.score for judged in before):
            texts = child
    assert land.held_out(texts) > land.held_out(land.seed_texts) + 0.1


@pytest.mark.parametrize("name", ["deceptive", "niches"])
def test_the_deceptive_ones_reward_keeping_niches(name: str) -> None:
    """Paper, table 3: greedy selection is caught where Pareto selection is not (direction only)."""
    means, budget = {}, gl.Budget(rollouts=1_500, proposals=200)
    for selector in ("best", "pareto"):
        search = gl.Search(selector=selector, fan=4, overlap=False)
        runs = [run_landscape(landscape(name, seed), search, budget, seed=seed) for seed in range(6)]
        means[selector] = statistics.fmean(run.held_out for run in runs)
    assert means["pareto"] > means["best"]


@pytest.mark.parametrize(
    "options", [{"merge": True}, {"window": 2, "fan": 2}, {"proposer": "edit"}, {"modules": "all"}, {"modules": "blame"}]
)
def test_other_rules_of_the_search_run_too(options: dict[str, Any]) -> None:
    run = run_landscape(landscape("complementary"), gl.Search(**options), gl.Budget(rollouts=500))
    assert run.state.stopped is not None
    assert run.state.stopped.code == "budget"
    assert run.held_out > run.seed


def test_proposals_can_be_bounded() -> None:
    run = run_landscape(landscape("complementary"), gl.Search.paper(), gl.Budget(proposals=15))
    assert run.state.spend.proposals == 15
    assert run.winner == run.state.best.candidate.texts


def test_the_page_runs() -> None:
    page = (Path(__file__).parents[1] / "docs" / "landscapes.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    assert all(f"`{name}`" in page for name in LANDSCAPES)


def test_a_review_that_blames_nobody_tells_every_module_the_same() -> None:
    named = Landscape(dataclasses.replace(LANDSCAPES["unblamed"], blames=True), 3)
    unnamed = landscape("unblamed", 3)
    for example in unnamed.train:
        told, hidden = named.judge(named.seed_texts, example), unnamed.judge(unnamed.seed_texts, example)
        assert (hidden.score, hidden.text, hidden.modules) == (told.score, told.text, {})
        assert {hidden.for_module(name) for name in unnamed.modules} == {told.text}
    assert any(named.judge(named.seed_texts, example).modules for example in named.train)
