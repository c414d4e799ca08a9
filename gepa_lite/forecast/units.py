"""From sample rollouts to what things take: a rollout, a proposal, and the cases between which the truth is expected."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gepa_lite.briefing import fitted, program_facts
from gepa_lite.core.call import Usage
from gepa_lite.core.rollout import Rollout
from gepa_lite.core.rules import estimated_tokens
from gepa_lite.forecast.course import Case, Cost
from gepa_lite.forecast.samples import Samples
from gepa_lite.lm.protocol import LM
from gepa_lite.run_spec import RunSpec
from gepa_lite.search.gate import Gate
from gepa_lite.search.reflect import CHARACTERS_PER_TOKEN, Subject, Template, lessons_of, reflection_prompt
from gepa_lite.search.search import Search

NAMES = ("low", "likely", "high")
"""The cases: what is spent for one proposal is least in ``low``, most in ``high``."""

_ACCEPT = (0.03, 0.3, 0.65)
_SHARE = (0.35, 0.7, 1.0)
_USABLE = (0.7, 0.9, 1.0)
_USABLE_LOCAL = (0.4, 0.75, 1.0)
"""A small model on this machine more often writes what is cut off, no edit, or the text it was given."""
_GROWN = {"auto": (40, 150, 450), "rewrite": (40, 150, 450), "edit": (20, 60, 160)}
"""Tokens by which the prompt of a module grows in a run."""
_SPEED = (120.0, 60.0, 25.0)
"""Output tokens in a second of a model elsewhere: assumed, since no proposal is paid for here."""
_THINKING = (1.0, 1.3, 2.5)
"""Reply tokens for each token of the new text: the words around it, and reasoning where the endpoint counts it."""


@dataclass(frozen=True, slots=True)
class Units:
    """What was measured.

    Attributes:
        cases: low, likely and high.
        unpriced: models whose price is not known.
        timed: whether the samples say how long rollouts take side by side.
        tokens_per_estimate: the task model's tokens for each token estimated from characters.
    """

    cases: tuple[Case, Case, Case]
    unpriced: tuple[str, ...]
    timed: bool
    tokens_per_estimate: float


def measure(spec: RunSpec, samples: Samples) -> Units:
    """The cases that a few scored rollouts suggest.

    Args:
        spec: the run to come.
        samples: at least one of them scored.
    """
    scored = samples.scored
    ratio = _tokens_per_estimate(scored)
    task = _spread([rollout.usage for rollout in scored])
    judge = _spread([rollout.judge_usage for rollout in scored])
    grown = _growth(spec, scored)
    reflection = _reflections(spec, scored, ratio)
    latency, rate = _pace(spec, samples)
    local = _local(spec)
    usable = _USABLE_LOCAL if all(_on_this_machine(lm) for lm, _ in spec.reflectors.values()) else _USABLE
    skips = _skips(spec, scored)
    fresh = _fresh(scored)
    cases = tuple(
        Case(
            accept=_ACCEPT[place],
            share=_SHARE[place],
            skip=skips[place],
            usable=usable[place],
            task=task[place],
            grown=grown[place],
            judge=judge[place],
            reflection=reflection[place].cost,
            fresh=fresh[place],
            rollout_seconds=latency[place],
            rate=rate[place],
            reflection_seconds=reflection[place].seconds(place, local, scored),
            shared=local,
        )
        for place in range(3)
    )
    unpriced = tuple(lm.describe().name for lm in spec.models if not spec.describe(lm).priced)
    return Units((cases[0], cases[1], cases[2]), unpriced, samples.pair_seconds > 0, ratio)


@dataclass(frozen=True, slots=True)
class _Reflection:
    """One proposal's call."""

    cost: Cost
    input_tokens: float
    output_tokens: float

    def seconds(self, place: int, local: bool, rollouts: Sequence[Rollout]) -> float:
        if not local:
            return 0.5 + self.output_tokens / _SPEED[place]
        # a small model on a processor works through a prompt about eight times as fast as it writes
        calls = [call for rollout in rollouts for call in rollout.trace.calls if call.seconds > 0]
        work = [(call.usage.input_tokens + 8 * call.usage.output_tokens) / call.seconds for call in calls]
        speed = statistics.median(work) if work else 100.0
        return (self.input_tokens + 8 * self.output_tokens) / (speed * (1.3, 1.0, 0.6)[place])


def _spread(usages: Sequence[Usage]) -> tuple[Cost, Cost, Cost]:
    """The mean, and halfway from it to the least and the dearest."""
    rows = [Cost(usage.calls, usage.tokens, usage.usd) for usage in usages]
    mean = sum(rows[1:], rows[0]).times(1 / len(rows))
    least, most = min(rows, key=lambda row: row.tokens), max(rows, key=lambda row: row.tokens)
    return (mean + least).times(0.5), mean, (mean + most).times(0.5)


def _tokens_per_estimate(rollouts: Sequence[Rollout]) -> float:
    calls = [call for rollout in rollouts for call in rollout.trace.calls if call.usage.input_tokens]
    chars = sum(len(message["content"]) for call in calls for message in call.messages)
    tokens = sum(call.usage.input_tokens for call in calls)
    return tokens * CHARACTERS_PER_TOKEN / chars if chars else 1.0


def _growth(spec: RunSpec, rollouts: Sequence[Rollout]) -> tuple[Cost, Cost, Cost]:
    """What longer prompts add to a rollout, in input tokens of each call of a module that may be rewritten."""
    calls = [call for rollout in rollouts for call in rollout.trace.calls if call.messages and call.module in spec.program.parts]
    models = spec.program.models
    grown = []
    for added in _GROWN[spec.search.proposer]:
        total = Cost()
        for call in calls:
            lm = models.get(call.module) or next(iter(models.values()))
            price = spec.describe(lm).usd_per_input_token
            total = total + Cost(0, added, None if price is None else added * price)
        grown.append(total.times(1 / len(rollouts)))
    return grown[0], grown[1], grown[2]


def _reflections(spec: RunSpec, rollouts: Sequence[Rollout], ratio: float) -> list[_Reflection]:
    """One proposal, from a reflection prompt that is really rendered, with the samples as its cases."""
    search = fitted(spec.search, [lm for lm, _ in spec.reflectors.values()])
    shown = _prompt_tokens(spec, search, rollouts) * ratio
    texts = list(spec.program.prompts.values())
    before = sum(map(estimated_tokens, texts)) / len(texts)
    price_in, price_out = _reflection_prices(spec)
    rows = []
    for place in range(3):
        grown = _GROWN[search.proposer][place]
        written = grown if search.proposer == "edit" else before + grown
        out = min(float(search.reflection_tokens), 20 + written * _THINKING[place])
        into = (shown + grown / 2) * (0.85, 1.0, 1.2)[place]
        usd = None if price_in is None or price_out is None else into * price_in + out * price_out
        # a text that breaks its contract is asked for once more
        again = (1.0, 1.05, 1.3)[place]
        rows.append(_Reflection(Cost(1, into + out, usd).times(again), into, out * again))
    return rows


def _prompt_tokens(spec: RunSpec, search: Search, rollouts: Sequence[Rollout]) -> float:
    """Estimated tokens of a reflection prompt over one minibatch: those of one case and of all samples give the line."""
    facts = program_facts(spec, Gate(spec.contracts))
    template = Template("reflect.j2", search.reflection_template)
    if search.proposer == "edit":
        template = Template("edit.j2", None, {"max_words": search.edit_words, "rejected": []})
    horizon = search.horizon if isinstance(search.horizon, int) else 0 if search.horizon == "adaptive" else None
    sizes = []
    for module, text in spec.program.prompts.items():
        lessons = lessons_of(module, rollouts, horizon, search.seed, (0, 0))
        if not lessons:
            continue
        subject = Subject(module, facts.signatures[module], text, facts.purpose)
        one, all_ = (
            reflection_prompt(template, subject, part, search.reflection_limits).shown["tokens"] for part in (lessons[:1], lessons)
        )
        each = (all_ - one) / (len(lessons) - 1) if len(lessons) > 1 else one / 3
        cases = min(search.least_minibatch, len(spec.train), search.reflection_limits.examples)
        sizes.append(min(float(search.reflection_limits.tokens), one + each * (cases - 1)))
    return statistics.fmean(sizes) if sizes else 0.0


def _reflection_prices(spec: RunSpec) -> tuple[float | None, float | None]:
    """Prices of a token of the reflection models, by their weights."""
    total = sum(weight for _, weight in spec.reflectors.values())
    into, out = 0.0, 0.0
    for lm, weight in spec.reflectors.values():
        info = spec.describe(lm)
        if info.usd_per_input_token is None or info.usd_per_output_token is None:
            return None, None
        into += info.usd_per_input_token * weight / total
        out += info.usd_per_output_token * weight / total
    return into, out


def _local(spec: RunSpec) -> bool:
    """Whether all models run on this machine: then rollouts side by side share its cores."""
    return all(_on_this_machine(lm) for lm in spec.models)


def _on_this_machine(lm: LM) -> bool:
    return lm.describe().name.startswith("local/")


def _pace(spec: RunSpec, samples: Samples) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of one rollout, and rollouts a second with all workers busy; low is the fastest."""
    seconds = sorted(max(rollout.seconds, 1e-4) for rollout in samples.scored)
    latency = seconds[0], statistics.median(seconds), seconds[-1] if len(seconds) < 3 else seconds[1] * 1.3
    slots = min([spec.workers.count, *(size for lm in spec.models if (size := lm.describe().max_in_flight))])
    if _local(spec):
        # slots of one machine do not add up; what the samples did side by side is a lower bound
        together = samples.pair / samples.pair_seconds if samples.pair_seconds else 1 / latency[1]
        gain = 1.0 if slots <= max(1, samples.pair) else 1.5
        return latency, (together * gain * 1.5, together * gain, together * 0.8)
    return latency, (slots / latency[0], 0.8 * slots / latency[1], 0.5 * slots / latency[2])


def _skips(spec: RunSpec, rollouts: Sequence[Rollout]) -> tuple[float, float, float]:
    """The chance of a perfect minibatch: from the samples' share of perfect scores, as few as they are; most skips make proposals dearest."""
    if not spec.search.skip_perfect:
        return 0.0, 0.0, 0.0
    best = spec.search.objective.best
    perfect = sum(rollout.value is not None and rollout.value >= best - 1e-12 for rollout in rollouts)
    size = min(spec.search.least_minibatch, len(spec.train))
    known = len(rollouts)
    low, likely, high = perfect / (known + 3), (perfect + 0.5) / (known + 1), min(0.98, (perfect + 1) / (known + 1))
    return low**size, likely**size, high**size


def _fresh(rollouts: Sequence[Rollout]) -> tuple[float, float, float]:
    """Share of a child's calls that are new: those before the rewritten module have the parent's replies."""
    modules = max(len(rollout.trace.modules) for rollout in rollouts)
    mean = (modules + 1) / (2 * modules) if modules else 1.0
    return mean * 0.7, mean, 1.0
