"""The measures: the published definitions by hand-worked vectors, a run's course against its state, and advice that speaks only where counts carry it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from gepa_lite.cli.app import app
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.rollout import Failure, Rollout, RolloutKey
from gepa_lite.insight.advice import RolloutFacts, advise
from gepa_lite.insight.distance import TextSpace, cosine_distances, functional_distances, hashed_ngrams
from gepa_lite.insight.generations import TextCourse
from gepa_lite.insight.measures import measures_of, read_trail
from gepa_lite.insight.steps import Attempt, Node
from gepa_lite.insight.trail import Trail
from gepa_lite.insight.trajectory import (
    breakthrough_rate,
    classical_mds,
    kernel_width,
    normalised,
    novelty,
    refinement_rate,
    share_interval,
    similarity_entropy,
    spatial_entropy,
    surges,
)
from gepa_lite.store.browse import Browse
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import ScriptedLM
from tests import triage


def line(*points: float) -> np.ndarray:
    places = np.array(points)
    return np.abs(places[:, None] - places)


# the vectors of the study's formulas, worked by hand

FAR, NEAR = line(0, 0, 0, 100), line(0, 1, 3)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (spatial_entropy(FAR, 1.0), 1.313834),
        (similarity_entropy(FAR, 1.0), 0.562335),
        (spatial_entropy(FAR, 1.0, np.array([1.0, 0, 0, 1])), math.log(4)),
        (spatial_entropy(FAR, 1.0, np.array([1.0, 1, 1, 0])), math.log(3)),
        (spatial_entropy(NEAR, 1.0), 1.083429),
        (spatial_entropy(NEAR, 1.0, np.array([1, 0.5, 0])), 0.808425),
        (similarity_entropy(NEAR, 1.0), 0.707749),
        (spatial_entropy(NEAR, 2.0), 1.093286),
    ],
)
def test_entropies_by_the_published_formula(found: float, expected: float) -> None:
    assert found == pytest.approx(expected, abs=1e-6)


def test_entropy_measures_evenness_and_the_other_one_spread() -> None:
    collapsed, scattered = line(1, 1, 1, 1), 1000 * line(1, 2, 3, 4)
    assert spatial_entropy(collapsed, 1.0) == pytest.approx(math.log(4)) == spatial_entropy(scattered, 1.0)
    assert similarity_entropy(collapsed, 1.0) == 0.0
    assert similarity_entropy(scattered, 1.0) == pytest.approx(math.log(4))


def test_entropies_of_the_edges() -> None:
    assert spatial_entropy(line(1), 1.0) == 0.0 == similarity_entropy(line(1), 1.0)
    assert math.isnan(spatial_entropy(NEAR, 1.0, np.zeros(3)))
    for seed in range(20):
        draw = np.random.default_rng(seed)
        points = draw.normal(size=8)
        assert 0 <= spatial_entropy(line(*points), 0.5) <= math.log(8) + 1e-12
        assert 0 <= similarity_entropy(line(*points), 0.5) <= math.log(8) + 1e-12


def test_the_kernel_is_as_wide_as_the_median_pair() -> None:
    assert kernel_width(NEAR) == 2.0
    assert kernel_width(line(4, 4)) == 1.0


def test_breakthroughs_are_strict() -> None:
    assert breakthrough_rate(1.0, [1, 2, 2, 3]) == 0.5
    assert breakthrough_rate(1.0, [None, 0.5]) == 0.0
    assert math.isnan(breakthrough_rate(1.0, []))


def test_refinement_against_the_prompted_parents() -> None:
    offspring = [(0.5, (0.4, 0.8)), (0.9, (0.4, 0.8)), (0.4, (0.4,))]
    assert refinement_rate(offspring) == refinement_rate(offspring, "all") == pytest.approx(1 / 3)
    assert refinement_rate(offspring, "any") == pytest.approx(2 / 3)
    assert refinement_rate([(0.65, (0.4, 0.8))], "mean") == 1.0
    assert math.isnan(refinement_rate([]))


def test_novelty_is_the_distance_to_the_nearest_before() -> None:
    vectors = hashed_ngrams(["Say yes.", "Say no.", "Say yes."])
    apart = cosine_distances(vectors, vectors)
    assert math.isnan(novelty(apart[0, :0]))
    assert novelty(apart[2, :2]) == 0.0, "an exact repeat is not new"
    assert novelty(apart[1, :1]) > 0.1
    assert normalised([math.nan, 1.0, 3.0])[1:] == pytest.approx([0.0, 1.0])


def test_text_vectors_take_any_text() -> None:
    texts = ["", "ab", "a\ud800b", "שלום עולם", "x" * 1_000_000, "A  B\nc", "a b c"]
    vectors = hashed_ngrams(texts)
    assert np.isfinite(vectors).all()
    assert np.allclose(np.linalg.norm(vectors[2:], axis=1), 1.0, atol=1e-5)
    assert cosine_distances(vectors, vectors)[5, 6] == 0.0, "case and runs of spaces don't count"


def test_a_candidates_distance_is_the_mean_over_its_modules() -> None:
    space = TextSpace(("a", "b"))
    first, second = {"a": "Answer in one word.", "b": "Cite the rule."}, {"a": "Answer in one word.", "b": "Quote nothing."}
    whole = space.points([first, second])
    alone = hashed_ngrams([first["b"], second["b"]])
    assert cosine_distances(whole, whole)[0, 1] == pytest.approx(0.5 * cosine_distances(alone, alone)[0, 1], abs=1e-6)
    with pytest.raises(gl.UsageError, match="one of 'ngrams', 'minilm'"):
        TextSpace(("a",), "words")
    with pytest.raises(gl.UsageError, match=r"shape \(2,\)"):
        TextSpace(("a",), lambda texts: np.zeros(len(texts))).points([{"a": "x"}, {"a": "y"}])


def test_functional_distance_leaves_missing_cells_out() -> None:
    values = np.array([[1.0, 0.0, np.nan], [1.0, 1.0, 1.0], [np.nan, np.nan, 0.0]])
    found = functional_distances(values)
    assert found[0, 1] == 0.5
    assert found[1, 2] == 1.0
    assert math.isnan(found[0, 2])


def test_the_map_keeps_distances_in_the_plane() -> None:
    points = np.random.default_rng(0).normal(size=(12, 2))
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    flat = classical_mds(apart)
    assert np.allclose(np.linalg.norm(flat[:, None] - flat, axis=2), apart)


def test_a_surge_is_a_jump_of_evenness_with_spread() -> None:
    calm = [0.95, 0.951, 0.949, 0.95, 0.951]
    assert surges([*calm, 0.99], [0.2, 0.2, 0.21, 0.2, 0.2, 0.4]) == [5]
    assert surges([*calm, 0.952], [0.2] * 5 + [0.4]) == []
    assert surges([*calm, 0.999], [0.2, 0.2, 0.21, 0.2, 0.2, 0.01]) == [], "a collapse evens the density too"
    assert surges(calm[:2], [0.1, 0.2]) == []


# the course of a run, against its state

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"fan": 1, "selector": "pareto", "modules": "round_robin", "validation": "full", "merge": "none"},
    "merge": {"merge": "paper", "fan": 1},
    "window": {"window": 3, "fan": 1},
    "shorten": {"shorten": 60},
    "all": {"modules": "all", "fan": 2},
    "edit": {"proposer": "edit"},
}


def run(folder: Path, **search: Any) -> gl.Result[Any]:
    return gl.optimize(
        triage.program(),
        triage.rows(40, 1),
        triage.rows(40, 2),
        testset=triage.rows(40, 3),
        curveset=triage.rows(10, 4),
        reflection_lm=triage.reflector(),
        budget=gl.Budget(proposals=24),
        search=gl.Search(**search),
        run=folder,
    )


@pytest.mark.parametrize("name", OPTIONS)
def test_the_trail_tells_what_the_state_tells(name: str, tmp_path: Path) -> None:
    result = run(tmp_path / "r", **OPTIONS[name])
    state = result.state
    with Browse(tmp_path / "r") as browse:
        trail = read_trail(browse)
        assert browse.last_seq == trail.seq
    pool = [(m.candidate.texts, m.parents, m.step, m.mean, m.spent) for m in state.pool]
    assert [(n.texts, n.parents, n.step, n.mean, n.rollouts) for n in trail.nodes] == pool
    assert tuple(trail.leads) == state.leads
    assert trail.best is not None
    assert trail.winner is not None
    assert (trail.best.index, trail.winner.index) == (state.best.index, result.winner_index)
    assert np.array_equal(trail.table, state.table.array, equal_nan=True)
    assert trail.spent_rollouts == state.spend.rollouts
    assert {role: (t.calls, t.input_tokens, t.output_tokens) for role, t in trail.roles.items() if t.calls} == {
        role: (u.calls, u.input_tokens, u.output_tokens) for role, u in result.costs.roles.items()
    }
    proposals = [attempt for attempt in trail.attempts if attempt.kind != "merge"]
    assert [(p.step, (p.parent,), p.status, p.code, p.texts) for p in state.proposals] == [
        (a.step, a.parents, a.status, a.code, a.texts) for a in proposals
    ]
    for attempt in trail.attempts:
        if attempt.child is not None:
            child = trail.nodes[attempt.child]
            assert attempt.texts.items() <= dict(child.texts).items()
            assert attempt.parents == child.parents
    assert (trail.stopped, trail.tested) == (state.stopped, state.tested)


def test_a_trail_that_follows_a_run_equals_one_that_reads_it_afterwards(tmp_path: Path) -> None:
    run(tmp_path / "r")
    with RunStore.read(tmp_path / "r") as store:
        events = store.events()
    live, at_once = Trail(), Trail()
    with RunStore.create(tmp_path / "copy") as store, Browse(tmp_path / "copy") as browse:
        for event in events:
            store.commit([event])
            assert live.follow(browse.events(live.seq))
        assert not live.follow(browse.events(live.seq))
        at_once.follow(browse.events())
    assert live.attempts == at_once.attempts
    assert [dataclasses.asdict(n) for n in live.nodes] == [dataclasses.asdict(n) for n in at_once.nodes]
    space = TextSpace(live.modules)
    assert measures_of(TextCourse(live, space)).to_data() == measures_of(TextCourse(at_once, space)).to_data()


def test_an_unknown_event_asks_for_an_upgrade(tmp_path: Path) -> None:
    from gepa_lite.store.browse import EventRow

    with pytest.raises(gl.GepaLiteError, match="pip install -U"):
        Trail().follow([EventRow(1, "dreamt", 1, "{}", "2026-01-01T00:00:00+00:00")])
    with pytest.raises(gl.GepaLiteError, match="pip install -U"):
        Trail().follow([EventRow(1, "step_ended", 99, '{"step": 0}', "2026-01-01T00:00:00+00:00")])


# the measures of a run


def test_measures_of_a_run(tmp_path: Path) -> None:
    result = run(tmp_path / "r")
    found = gl.measures(result)
    state = result.state
    valid = [p for p in state.proposals if p.status in ("accepted", "rejected") and p.after]
    assert (found.all.proposals, found.all.valid) == (len(state.proposals), len(valid))
    assert found.all.refined == sum(p.gain > 0 for p in valid)
    assert found.all.rate == pytest.approx(found.all.refined / found.all.valid)
    assert found.all.low < found.all.rate < found.all.high
    assert set(found.modules) == {"gist", "route"}
    assert set(found.models) == {"reflector"}
    means = [member.mean for member in result.candidates]
    above = [
        place for place, mean in enumerate(means) if place and mean is not None and mean > max(m for m in means[:place] if m is not None)
    ]
    assert above
    with Browse(tmp_path / "r") as browse:
        # two proposals of one step may be joined in one child
        brought = sum(attempt.child in above for attempt in read_trail(browse).attempts)
    assert found.all.breakthroughs == found.models["reflector"].breakthroughs == brought >= len(above)
    assert found.all.novelty == pytest.approx(found.mean_novelty)
    assert sum(found.reasons.values()) == len(state.proposals) + len(state.merges)
    assert sum(found.rollouts.values()) == state.spend.rollouts
    assert result.test is not None
    assert found.gap == pytest.approx(result.validation.after - result.test.after)
    assert found.optimism == pytest.approx(result.validation.gain - result.test.gain)
    assert 0 < found.functional_distance < 1
    assert 0 < found.all.distance < 1
    assert sum(g.proposals for g in found.generations) == found.all.valid
    assert [g.best for g in found.generations][-1] == pytest.approx(max(m.mean for m in result.candidates if m.mean is not None))
    finer = gl.measures(tmp_path / "r", generation=1)
    leads = {state.pool[index].step for index in state.leads[1:]}
    assert {g.steps[0] for g in finer.generations if g.breakthrough} <= leads
    assert 0 < finer.breakthrough_rate < 1
    json.dumps(found.to_data(), allow_nan=False)


def test_each_models_breakthroughs_are_counted_over_its_own_generations() -> None:
    trail = Trail()
    # the seed; "a" leads twice in a row; "b" never passes it; a merge raises the bar that the last child of "a" stays under
    means = [0.3, 0.4, 0.5, 0.45, 0.7, 0.6]
    makers = ["", "a", "a", "b", "", "a"]
    for index, (mean, model) in enumerate(zip(means, makers, strict=True)):
        kind, parents = ("rewrite" if model else "merge"), (0,) if index else ()
        if index:
            attempt = Attempt(
                2 * index, 0.0, index, kind, parents, ("m",), "accepted", "improved", "", model, {"m": str(index)}, 0.0, 1.0, 3, (), index
            )
            trail.attempts.append(attempt)
        trail.nodes.append(Node(index, 2 * index + 1, 0.0, index - 1, parents, {"m": str(index)}, ("m",), mean, 0, 0.0, 1))
        trail.rows.append(np.array([mean]))
    course = TextCourse(trail, TextSpace(["m"]), size=1)
    rates = {model: course.rates([a for a in trail.attempts if a.model == model]) for model in "ab"}
    assert (rates["a"].generations, rates["a"].breakthroughs, rates["a"].breakthrough_rate) == (3, 2, pytest.approx(2 / 3))
    assert (rates["a"].breakthrough_low, rates["a"].breakthrough_high) == share_interval(2, 3)
    assert (rates["b"].generations, rates["b"].breakthrough_rate, rates["b"].breakthrough_low) == (1, 0.0, 0.0)
    wider = TextCourse(trail, TextSpace(["m"]), size=2)
    assert wider.rates([a for a in trail.attempts if a.model == "a"]).breakthrough_rate == 0.5
    assert wider.rates([]).generations == 0
    assert math.isnan(wider.rates([]).breakthrough_rate)


def test_a_mixed_run_splits_its_breakthroughs_by_model(tmp_path: Path) -> None:
    numbers = itertools.count()
    result = gl.optimize(
        triage.program(),
        triage.rows(24, 1),
        triage.rows(16, 2),
        reflection_lm={
            ScriptedLM(triage.reflect, name="able"): 0.6,
            ScriptedLM(lambda request: f"<prompt>Do it {next(numbers)}.</prompt>", name="mute"): 0.4,
        },
        budget=gl.Budget(proposals=24),
        run=tmp_path / "r",
    )
    found = gl.measures(result)
    able, mute = found.models["able"], found.models["mute"]
    assert able.breakthrough_rate > 0 == mute.breakthrough_rate
    assert mute.generations > 0
    assert found.breakthrough_rate == found.all.breakthrough_rate == sum(g.breakthrough for g in found.generations) / len(found.generations)
    lines = CliRunner().invoke(app, ["measures", str(tmp_path / "r")]).stdout.splitlines()
    assert any(line.startswith(f"  by able: {able.breakthrough_rate:.2f} (95 % interval {able.breakthrough_low:.2f} to") for line in lines)
    assert f"{mute.breakthrough_rate:.2f} [{mute.breakthrough_low:.2f}, {mute.breakthrough_high:.2f}]</td>" in gl.report_html(result)


def test_any_embedding_may_be_given(tmp_path: Path) -> None:
    run(tmp_path / "r")
    found = gl.measures(tmp_path / "r", embedding=lambda texts: np.array([[len(t), 1.0] for t in texts]))
    assert found.embedding == "<lambda>"
    assert found.all.distance >= 0


def test_measures_refuse_what_they_cant_read(tmp_path: Path) -> None:
    with pytest.raises(gl.UsageError, match="There is no run"):
        gl.measures(tmp_path / "nothing")
    with pytest.raises(gl.UsageError, match="generation=0"):
        gl.measures(tmp_path, generation=0)
    result = run(tmp_path / "r")
    with pytest.raises(gl.UsageError, match="no run on disk"):
        gl.measures(dataclasses.replace(result, run=None))


def test_the_command_prints_and_gives_json(tmp_path: Path) -> None:
    run(tmp_path / "r")
    shown = CliRunner().invoke(app, ["measures", str(tmp_path / "r")])
    assert shown.exit_code == 0, shown.output
    assert "breakthrough rate" in shown.stdout
    data = json.loads(CliRunner().invoke(app, ["measures", str(tmp_path / "r"), "--json"]).stdout)
    assert data["all"]["proposals"] == gl.measures(tmp_path / "r").all.proposals
    assert data["embedding"] == "ngrams"


# advice


def advised(folder: Path, reflection: Any, feedback: Any = None, **search: Any) -> dict[str, Any]:
    gl.optimize(
        triage.program(),
        triage.rows(40, 1),
        triage.rows(20, 2),
        feedback=feedback,
        reflection_lm=reflection,
        budget=gl.Budget(proposals=40),
        search=gl.Search(**{"fan": 1, **search}),
        run=folder,
    )
    with Browse(folder) as browse:
        trail = read_trail(browse)
        facts = RolloutFacts.of(browse.some_rollouts(200), 1.0)
        found = advise(trail, measures_of(TextCourse(trail, TextSpace(trail.modules)), 0.9), facts)
    return {item.code: item for item in found}


def test_cut_off_replies_advise_a_larger_limit(tmp_path: Path) -> None:
    found = advised(tmp_path / "r", ScriptedLM("<prompt>Decide"), proposer="rewrite")
    assert found["cut_off"].evidence == "10 of 10 replies were cut off"
    assert "reflection_tokens" in str(found["cut_off"])


def test_a_reflector_that_never_helps_is_named(tmp_path: Path) -> None:
    numbers = iter(range(1000))
    found = advised(tmp_path / "r", ScriptedLM(lambda request: f"<prompt>Say it in {next(numbers)} words.</prompt>"))
    assert found["weak_refiner"].evidence.startswith("0 of ")


def test_models_are_compared_by_the_validation_set_and_not_by_their_minibatches(tmp_path: Path) -> None:
    result = run(tmp_path / "r")
    measures = gl.measures(result)
    by_heart = dataclasses.replace(measures.all, valid=40, refined=30, rate=0.75, low=0.6, high=0.86, validated=28, validated_better=1)
    steady = dataclasses.replace(by_heart, refined=14, rate=0.35, low=0.2, high=0.5, validated=14, validated_better=13)
    with Browse(tmp_path / "r") as browse:
        trail = read_trail(browse)
    told = advise(trail, dataclasses.replace(measures, models={"by heart": by_heart, "steady": steady}), RolloutFacts())
    (advice,) = [item for item in told if item.code == "better_model"]
    assert advice.text.startswith("give steady more weight")
    assert "steady: 13 of 40 proposals" in advice.evidence
    few = {
        name: dataclasses.replace(rates, valid=6, validated_better=better)
        for (name, rates, better) in (("a", steady, 2), ("b", by_heart, 1))
    }
    told = advise(trail, dataclasses.replace(measures, models=few), RolloutFacts())
    assert [item.code for item in told if "model" in item.code] == ["models_alike"]


def test_feedback_without_words_is_named(tmp_path: Path) -> None:
    found = advised(tmp_path / "r", triage.reflector(), lambda example, output: output.urgency == example["urgency"])
    assert "without words" in found["mute_feedback"].evidence


def test_a_good_run_gets_no_alarm(tmp_path: Path) -> None:
    assert not [item for item in advised(tmp_path / "r", triage.reflector()).values() if item.alarm]


def test_facts_count_failures_apart_from_silence() -> None:
    key = RolloutKey("c", "e")
    failed = Rollout(key, 0.0, Feedback(0.0, "no reply"), failure=Failure("parse", "candidate", "no reply"))
    facts = RolloutFacts.of([failed, Rollout(key, 0.0, Feedback(0.0)), Rollout(key, 1.0, Feedback(1.0))], 1.0)
    assert (facts.looked_at, facts.imperfect, facts.unexplained, facts.failures) == (3, 2, 1, (("parse", 1),))


def test_sets_that_differ_for_the_seed_too_are_no_overfitting(tmp_path: Path) -> None:
    run(tmp_path / "r")
    with Browse(tmp_path / "r") as browse:
        trail = read_trail(browse)
    measures = measures_of(TextCourse(trail, TextSpace(trail.modules)))
    for optimism, told in ((0.25, True), (0.0, False), (None, False)):
        found = advise(trail, dataclasses.replace(measures, gap=0.25, optimism=optimism), RolloutFacts())
        assert ("overfitting" in {item.code for item in found}) is told
