"""What the measures of a run advise, in plain words, each with its evidence. A rule speaks only where the counts carry it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gepa_lite.core.rollout import Rollout
from gepa_lite.insight.measures import Measures
from gepa_lite.insight.trail import Trail
from gepa_lite.insight.trajectory import share_interval
from gepa_lite.search.winner import prompt_tokens

if TYPE_CHECKING:
    from gepa_lite.store.browse import Browse

SAMPLE = 200
"""Rollouts that are looked at, spread evenly over the run."""
_LEAST = 5
"""Proposals before a rule speaks."""
_LONG_SECONDS = 120.0
"""A shorter run is not worth speeding up."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to do, or to know.

    Attributes:
        code: a short stable word.
        evidence: what was counted, in words.
        text: what to do.
        alarm: True where the search is going wrong now.
    """

    code: str
    evidence: str
    text: str
    alarm: bool = False

    def __str__(self) -> str:
        return f"{self.evidence}: {self.text}"


@dataclass(frozen=True, slots=True)
class RolloutFacts:
    """What a sample of rollouts shows.

    Attributes:
        looked_at: rollouts in the sample.
        imperfect: with a score below the best possible.
        unexplained: imperfect ones whose feedback has no words at all, for no module.
        failures: by kind, of the program or its replies.
        cut_off: whose module calls were cut off at the token limit.
    """

    looked_at: int = 0
    imperfect: int = 0
    unexplained: int = 0
    failures: tuple[tuple[str, int], ...] = ()
    cut_off: int = 0

    @classmethod
    def of(cls, rollouts: Sequence[Rollout], best: float) -> RolloutFacts:
        """The facts of some rollouts; ``best`` is the best possible value."""
        imperfect = [rollout for rollout in rollouts if rollout.value is not None and rollout.value < best]
        unexplained = sum(
            rollout.failure is None and rollout.feedback is not None and not rollout.feedback.text and not rollout.feedback.modules
            for rollout in imperfect
        )
        failures = Counter(rollout.failure.kind for rollout in rollouts if rollout.failure is not None)
        cut_off = sum(any(call.finish_reason == "length" for call in rollout.trace.calls) for rollout in rollouts)
        return cls(len(rollouts), len(imperfect), unexplained, tuple(failures.most_common()), cut_off)


def facts_of(trail: Trail, browse: Browse) -> RolloutFacts:
    """The facts of a sample of a run's rollouts."""
    return RolloutFacts.of(browse.some_rollouts(SAMPLE), trail.objective.best)


def advise(trail: Trail, measures: Measures, facts: RolloutFacts) -> list[Advice]:
    """What to do about a run, alarms first.

    Args:
        trail: its course.
        measures: of it.
        facts: of a sample of its rollouts.
    """
    found = [advice for rule in _RULES for advice in rule(trail, measures, facts)]
    return sorted(found, key=lambda advice: not advice.alarm)


def _scattering(trail: Trail, measures: Measures, facts: RolloutFacts) -> Iterator[Advice]:
    surging = [place for place in measures.generations if place.surge]
    if not surging:
        return
    last = surging[-1]
    evidence = f"spatial entropy rose to {last.evenness:.2f} of its most in generation {last.index} (steps {last.steps[0]} to {last.steps[1]}), and the spread to {last.spread:.2f}"
    text = "the search has begun to scatter rather than to refine. Search(selector='best') or 'top_k_pareto' keeps it at its best candidates; Search(proposer='edit') takes smaller steps"
    yield Advice("scattering", evidence, text, alarm=last.index >= len(measures.generations) - 3)


def _replies(trail: Trail, measures: Measures, facts: RolloutFacts) -> Iterator[Advice]:
    total = measures.all.proposals
    counts = Counter(attempt.code for attempt in trail.attempts if attempt.kind != "merge" and attempt.status in ("rejected", "void"))
    words = {
        "cut_off": ("replies were cut off", "raise the reflection model's token limit: Search(reflection_tokens=)"),
        "empty": ("replies were empty", "the reflection model answers with nothing or with reasoning alone: take another, or raise Search(reflection_tokens=)"),
        "no_block": ("replies held no prompt", "the reflection model does not keep to the form asked for: take a stronger one"),
        "several_blocks": ("replies held several prompts", "the reflection model does not keep to the form asked for: take a stronger one"),
        "bad_edit": ("edits could not be applied", "take a stronger reflection model, or Search(proposer='rewrite')"),
        "too_long_edit": ("edits were too long", "raise Search(edit_words=), or take Search(proposer='rewrite')"),
        "unchanged": ("replies gave the parent's prompt back", "the feedback may say too little to act on, or the reflection model is too weak"),
        "known": ("proposals were candidates that the pool has already", "the reflection model repeats itself: raise Search(reflection_temperature=), or mix models: reflection_lm={'a': 0.7, 'b': 0.3}"),
        "reflection_failed": ("reflections failed", "the reflection model's endpoint is unreliable; what was lost is tried again on a resume"),
        "missing": ("proposals lost a rollout to an outage", "the task model's endpoint is unreliable; take fewer workers, or resume when it has passed"),
        "leak": ("proposals copied examples or private data", "say in the feedback what is wrong without quoting the answer"),
    }  # fmt: skip
    for code, (what, text) in words.items():
        if total >= _LEAST and counts[code] >= max(3, 0.2 * total):
            yield Advice(code, f"{counts[code]} of {total} {what}", text)
    if total >= _LEAST and counts["contract"] >= max(3, 0.2 * total):
        rules = Counter(rule for attempt in trail.attempts for rule in attempt.rules if rule.startswith("contract:"))
        most = f", most often {rules.most_common(1)[0][0]}" if rules else ""
        evidence = f"{counts['contract']} of {total} proposals broke the contract{most}"
        yield Advice("contract", evidence, "loosen the contract, or say in the module's first prompt what must stay")


def _skipped(trail: Trail, measures: Measures, facts: RolloutFacts) -> Iterator[Advice]:
    total = measures.all.proposals
    count = measures.reasons.get("skipped: perfect", 0)
    if total >= _LEAST and count >= max(3, 0.4 * total):
        text = "the training examples teach little: add harder ones, take a larger Search(minibatch=), or Search(sampling='hard')"
        yield Advice("perfect", f"{count} of {total} minibatches had nothing to learn from, all perfect", text)
    still = measures.reasons.get("skipped: unmoved", 0)
    if still >= max(1, 0.4 * total):
        text = "rollouts of one example must score differently now and then: a larger group, a higher temperature, an easier prompt that states the form of the answer, or feedback that gives part marks"
        yield Advice("unmoved", f"{still} of {total} stretches of training changed no weight", text)


def _refinement(trail: Trail, measures: Measures, facts: RolloutFacts) -> Iterator[Advice]:
    rates = measures.all
    if rates.valid >= 10 and rates.high < 0.25:
        evidence = (
            f"{rates.refined} of {rates.valid} proposals were better than their parent (95 % interval {rates.low:.0%} to {rates.high:.0%})"
        )
        yield Advice(
            "weak_refiner", evidence, "take a stronger reflection model, or feedback that says what was wrong and what would be right"
        )
    lucky = rates.validated - rates.validated_better
    if rates.validated >= 6 and lucky >= 0.7 * rates.validated:
        evidence = f"{lucky} of {rates.validated} children that were better on their minibatch were no better on the validation set"
        yield Advice("lucky_minibatches", evidence, "the minibatch is too small to tell: Search(minibatch=6), or Search(accept='paired')")


def _modules(trail: Trail, measures: Measures, facts: RolloutFacts) -> Iterator[Advice]:
    if len(measures.modules) < 2 or not measures.all.refined:
        return
    for path, rates in measures.modules.items():
        if rates.valid >= 10 and not rates.refined:
            evidence = f"none of {rates.valid} rewrites of {path!r} was better, while other modules improved"
            yield Advice("idle_module", evidence, f"freeze it, or give it words of its own: Feedback(modules={{{path!r}: ...}})")


def _models(trail: Trail, measures: Measures, facts: RolloutFacts) -> Iterator[Advice]:
    tried = [(name, rates) for name, rates in measures.models.items() if rates.valid >= _LEAST]
    if len(tried) < 2:
        return
    # by the validation set: what helps on a minibatch says little of the end (docs/trajectory-study.md)
    spans = {name: share_interval(rates.validated_better, rates.valid) for name, rates in tried}
    (best, most), *_, (worst, least) = sorted(tried, key=lambda item: -item[1].validated_better / item[1].valid)
    words = " and ".join(
        f"{name}: {rates.validated_better} of {rates.valid} proposals became candidates that are better on the validation set ({spans[name][0]:.0%} to {spans[name][1]:.0%})"
        for name, rates in ((best, most), (worst, least))
    )
    if spans[best][0] > spans[worst][1]:
        yield Advice("better_model", words, f"give {best} more weight; the intervals don't overlap")
    else:
        yield Advice("models_alike", words, "the intervals overlap: these counts can't tell which refines better")


def _stuck(trail: Trail, measures: Measures, facts: RolloutFacts) -> Iterator[Advice]:
    best = trail.best
    if best is None or trail.stopped is not None:
        return
    since = sum(attempt.seq > best.seq for attempt in trail.attempts)
    if since >= 20 and since >= len(trail.attempts) / 2:
        evidence = f"no better candidate in the last {since} of {len(trail.attempts)} proposals"
        yield Advice(
            "stuck", evidence, "stop it, or go on with another reflection model: a stop rule for it is NoImprovement(20)", alarm=True
        )


def _feedback(trail: Trail, measures: Measures, facts: RolloutFacts) -> Iterator[Advice]:
    if facts.imperfect >= _LEAST and facts.unexplained >= 0.5 * facts.imperfect:
        evidence = f"{facts.unexplained} of {facts.imperfect} imperfect rollouts have feedback without words"
        yield Advice(
            "mute_feedback", evidence, "return gl.Feedback(score, text): what was wrong is all that the reflection model learns from"
        )
    for kind, count in facts.failures:
        if count >= max(3, 0.1 * facts.looked_at):
            evidence = f"{count} of {facts.looked_at} rollouts failed ({kind})"
            yield Advice("failing_program", evidence, "they score the worst possible; see their traces for why")
    if facts.cut_off >= max(3, 0.1 * facts.looked_at):
        evidence = f"{facts.cut_off} of {facts.looked_at} rollouts had a reply cut off at the task model's token limit"
        yield Advice("task_cut_off", evidence, "raise the module's max_tokens")


def _money(trail: Trail, measures: Measures, facts: RolloutFacts) -> Iterator[Advice]:
    rollouts = sum(measures.rollouts.values())
    spent = measures.rollouts.get("validation", 0) + measures.rollouts.get("seed", 0)
    width = len(trail.started.validation_ids) if trail.started else 0
    if rollouts >= 200 and width > 100 and spent > 0.85 * rollouts:
        evidence = f"{spent:,} of {rollouts:,} rollouts went to validation on {width} examples"
        yield Advice("large_validation", evidence, "a validation set of 50 to 100 chooses nearly as well and pays for more proposals")
    long = trail.last - trail.begun > _LONG_SECONDS and measures.all.proposals >= _LEAST
    if long and measures.utilization is not None and measures.utilization < 0.3:
        evidence = f"the workers spent {measures.utilization:.0%} of their time in model calls"
        yield Advice("idle_workers", evidence, "a larger Search(fan=) keeps them busy; fewer workers cost nothing here")


def _honesty(trail: Trail, measures: Measures, facts: RolloutFacts) -> Iterator[Advice]:
    low, high = trail.objective.range
    # the seed's gap is how the two sets differ, which nobody chose
    if measures.optimism is not None and measures.optimism > 0.1 * (high - low):
        evidence = f"the winner gains {measures.optimism:.3f} more over the seed on the validation set than on the test set"
        yield Advice("overfitting", evidence, "the validation set chose what fits it: take a larger one, or fewer candidates")
    winner = trail.winner
    if winner is not None and winner.parents:
        before, after = (prompt_tokens(texts, trail.calls) for texts in (trail.nodes[0].texts, winner.texts))
        if after > 500 and after > 4 * max(1.0, before):
            evidence = f"the winner's prompts take about {after:,.0f} tokens a run, the seed's {before:,.0f}"
            yield Advice("long_prompts", evidence, "Search(prefer='short') or Search(shorten=40) makes them shorter")


_Rule = Callable[[Trail, Measures, RolloutFacts], Iterator[Advice]]
_RULES: Sequence[_Rule] = (_scattering, _replies, _skipped, _refinement, _modules, _models, _stuck, _feedback, _money, _honesty)
