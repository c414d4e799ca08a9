"""Simulated landscapes: tasks with a known truth, for measuring a search without a model.

A landscape is a population of messages. Each message is of a *case*, and each case needs one rule, or two rules of two modules; some cases are common, most are
rare. A simulated task model answers by the rules that stand in the prompts: with chance ``base`` where it has none, with chance ``ceiling`` where it has all.
A simulated reflection model reads reviews and finds, misses, garbles or loses rules, learns examples by heart, or takes a shortcut that fits one desk's
messages and misleads on all others. Whatever a prompt says, its expected score on the population is a finite sum, so held-out scores are exact.

Nothing here draws from a shared generator: the same texts, example and draw give the same answer in every process.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.ids import content_hash
from gepa_lite.core.seeds import stream
from gepa_lite.errors import UsageError
from gepa_lite.testing.landscape_reflector import Reflector, rewrite
from gepa_lite.testing.landscape_words import DESKS, MODULES, TASKS, Vocabulary, sentences_of

_RULES_AT_MOST = 144
_LEAST_COMPLIANCE = 0.4


@dataclass(frozen=True, slots=True)
class LandscapeSpec:
    """What a landscape is like. All shares and chances lie in [0, 1].

    Attributes:
        name: how it is called.
        modules: 1 to 6.
        rules: rules per module.
        tail: exponent of the cases' frequencies; 0 makes all equally common, 1 is Zipf's law.
        pairs: share of cases that need a second rule, of another module.
        interplay: how far a pair must be complete: 0 pays for each rule alone, 1 only for both.
        base: mean chance of a right answer without the rule.
        ceiling: chance of a right answer with every rule.
        wobble: chance that an answer is drawn anew for this prompt and sample; otherwise the example alone decides what chance suffices, as with a model
            that never wavers.
        label_noise: share of examples whose label is wrong: their score is turned round.
        graded: scores are continuous, not 0 or 1.
        vague: share of examples whose review says that the answer is wrong and not why.
        blames: whether a review has words of its own for each module at fault; without, every module hears the same words, and no rule of a search knows whom they concern.
        desks: 0, or 2 to 4 niches of the messages. The first holds every second case, the others share the rest.
        traps: how many of the desks, from the first on, tempt the reflection model to a shortcut.
        shortcut: how well a shortcut serves each message of its own desk, of what the rule would.
        mislead: share of its skill that a module loses on messages of other desks by a shortcut.
        harm: share of its skill that a module loses on a rule's messages by the garbled form; the next rule's messages lose half as much.
        slack: sentences beyond the first and the rules that a prompt holds without loss.
        dilution: compliance lost with each further sentence.
        train: training examples.
        validation: validation examples.
        reflector: the reflection model's habits.
    """

    name: str
    modules: int = 1
    rules: int = 8
    tail: float = 0.7
    pairs: float = 0.0
    interplay: float = 0.3
    base: float = 0.3
    ceiling: float = 0.95
    wobble: float = 0.1
    label_noise: float = 0.0
    graded: bool = False
    vague: float = 0.1
    blames: bool = True
    desks: int = 0
    traps: int = 1
    shortcut: float = 0.8
    mislead: float = 0.9
    harm: float = 0.7
    slack: int = 3
    dilution: float = 0.03
    train: int = 60
    validation: int = 40
    reflector: Reflector = field(default_factory=Reflector)

    def __post_init__(self) -> None:
        for name in ("pairs", "interplay", "base", "ceiling", "wobble", "label_noise", "vague", "shortcut", "mislead", "harm", "dilution"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"LandscapeSpec({name}={getattr(self, name)!r}): a number from 0 to 1 is needed.")
        if not 1 <= self.modules <= len(MODULES):
            raise UsageError(f"LandscapeSpec(modules={self.modules!r}): a whole number from 1 to {len(MODULES)} is needed.")
        if self.rules < 2 or self.modules * self.rules > _RULES_AT_MOST:
            raise UsageError(f"LandscapeSpec(rules={self.rules!r}): at least 2, and at most {_RULES_AT_MOST} over all modules, are needed.")
        if self.desks not in (0, 2, 3, 4):
            raise UsageError(f"LandscapeSpec(desks={self.desks!r}): 0, 2, 3 or 4 is needed.")
        if not 0 <= self.traps <= max(1, self.desks):
            raise UsageError(f"LandscapeSpec(traps={self.traps!r}): a whole number from 0 to the number of desks is needed.")
        if self.label_noise > 0.5:
            raise UsageError(f"LandscapeSpec(label_noise={self.label_noise!r}): above 0.5 the wrong answer is the right one.")
        if self.pairs and self.modules == 1:
            raise UsageError("LandscapeSpec(pairs=...): a pair takes rules of two modules, and there is one.")


class Case(NamedTuple):
    """A kind of message: its share of the population, the rules it needs as (module, rule), its desk (-1 for none) and its guessing chance."""

    share: float
    needs: tuple[tuple[int, int], ...]
    desk: int
    base: float


class Reading(NamedTuple):
    """What one module's text holds: rules, garbled rules, desks of shortcuts, messages known by heart, and how well it is followed."""

    rules: frozenset[int]
    garbled: frozenset[int]
    shortcuts: frozenset[int]
    memories: frozenset[int]
    compliance: float


class Landscape:
    """One landscape, drawn by a seed. Its methods are pure; it pickles as spec and seed.

    Attributes:
        spec: what it is like.
        seed: of the draw; other seeds give other rules, cases and examples of the same kind.
        name: the spec's.
        modules: names, in order.
        cases: the population; shares sum to 1.
        seed_texts: the prompts to start from: a task sentence, and no rule.
        full_texts: the prompts that hold every rule and nothing else.
        train: training examples: ``message`` is the input, ``case`` and ``number`` are labels.
        validation: validation examples.

    Example:
        >>> from gepa_lite.testing import landscape
        >>> land = landscape("one-easy", seed=3)
        >>> land.held_out(land.seed_texts) < 0.4 < 0.9 < land.held_out(land.full_texts) == land.attainable
        True
        >>> wrong = next(example for example in land.train if not land.score(land.seed_texts, example))
        >>> review = land.judge(land.seed_texts, wrong).for_module("read")
        >>> text = land.reflect("read", land.seed_texts["read"], [review], draw=1)
    """

    def __init__(self, spec: LandscapeSpec, seed: int = 0) -> None:
        self.spec, self.seed, self.name = spec, seed, spec.name
        self.modules = MODULES[: spec.modules]
        self._words = Vocabulary(seed, spec.modules, spec.rules)
        self.cases = _cases(spec, seed)
        self.seed_texts: Mapping[str, str] = dict(zip(self.modules, TASKS, strict=False))
        self.full_texts: Mapping[str, str] = {
            name: " ".join([TASKS[module], *(self._words.rule(module, rule) for rule in range(spec.rules))])
            for module, name in enumerate(self.modules)
        }
        self.train = self.examples(spec.train, "train")
        self.validation = self.examples(spec.validation, "validation", first=spec.train + 1)
        # a search looks at each text many times: once for each example, and again in each child
        self._read = lru_cache(maxsize=10_000)(self._read_text)

    def __reduce__(self) -> tuple[type[Landscape], tuple[LandscapeSpec, int]]:
        return Landscape, (self.spec, self.seed)

    @property
    def attainable(self) -> float:
        """The best held-out score that any texts have: that of all rules and nothing else."""
        return self.held_out(self.full_texts)

    def examples(self, count: int, purpose: str, first: int = 1) -> tuple[Example, ...]:
        """Examples drawn from the population, numbered from ``first``; ``purpose`` names the draw."""
        dice = stream(self.seed, "examples", purpose)
        cases = dice.choices(range(len(self.cases)), [case.share for case in self.cases], k=count)
        return tuple(self._example(case, number) for number, case in enumerate(cases, first))

    def score(self, texts: Mapping[str, str], example: Example, draw: int = 0) -> float:
        """The score of one rollout, in [0, 1]: the same for the same texts, example and draw."""
        return self.scorer(texts, draw)(example)

    def scorer(self, texts: Mapping[str, str], draw: int = 0) -> Scorer:
        """The task model under one candidate, for many examples."""
        return Scorer(self, texts, draw)

    def words(self, texts: Mapping[str, str], example: Example, draw: int = 0) -> str:
        """The review of one rollout, over all modules."""
        return self.judge(texts, example, draw).text

    def judge(self, texts: Mapping[str, str], example: Example, draw: int = 0) -> Feedback:
        """The score and the review of one rollout; modules at fault have words of their own, and ``Feedback.for_module`` gives what a module hears."""
        return self.scorer(texts, draw).judge(example)

    def reflect(self, module: str, text: str, lessons: Sequence[str], draw: int | str = 0) -> str:
        """The reflection model: a new text for a module from its text and reviews of it.

        Args:
            module: its name.
            text: its text now.
            lessons: reviews, as ``judge`` words them for this module.
            draw: names the random draw: the same one gives the same answer.
        """
        dice = stream(self.seed, "reflect", module, draw)
        return rewrite(self.spec.reflector, self._words, self.modules.index(module), text, lessons, dice)

    def held_out(self, texts: Mapping[str, str]) -> float:
        """The expected score on the population: exact, over all cases. What was learnt by heart counts for nothing."""
        readings = self.readings(texts)
        expected = sum(case.share * self.chance(readings, case) for case in self.cases)
        return expected + (1 - 2 * expected) * self.spec.label_noise

    def readings(self, texts: Mapping[str, str]) -> tuple[Reading, ...]:
        """What each module's text holds."""
        return tuple(self._read(module, texts[name]) for module, name in enumerate(self.modules))

    def chance(self, readings: Sequence[Reading], case: Case) -> float:
        """The expected score of a case's messages, before label noise."""
        spec, skills, guess = self.spec, [], case.base
        for module, rule in case.needs:
            reading = readings[module]
            kept = self._kept(reading, rule, case.desk)
            skill = 1.0 if rule in reading.rules else spec.shortcut if case.desk in reading.shortcuts else 0.0
            skills.append(skill * kept * reading.compliance)
            guess *= kept
        both = skills[0]
        for skill in skills[1:]:
            both *= skill
        done = spec.interplay * both + (1 - spec.interplay) * sum(skills) / len(skills)
        return guess + (spec.ceiling - guess) * done

    def review(self, readings: Sequence[Reading], example: Example, score: float) -> Feedback:
        """The words on one rollout, with words of their own for the modules at fault."""
        number, case = example.labels["number"], self.cases[example.labels["case"]]
        if score == 1:
            return Feedback(score, f"Message {number} is right.")
        opening = self._words.wrong(number)
        if 0 <= case.desk < self.spec.traps:
            opening += " " + self._words.desk(case.desk)
        if self.spec.vague and uniform(self.seed, "vague", example.id) < self.spec.vague:
            return Feedback(score, opening)
        faults = {module: self._faults(readings[module], module, rule, case.desk) for module, rule in case.needs}
        if not any(faults.values()) and not self.spec.graded:
            # every rule stands there, and the answer is wrong all the same: the review still names what was not done
            faults = {module: [self._words.broken(module, rule)] for module, rule in case.needs}
        blamed = faults if self.spec.blames else {}
        words = {self.modules[module]: " ".join([opening, *found]) for module, found in blamed.items() if found}
        return Feedback(score, " ".join([opening, *itertools.chain(*faults.values())]), words)

    def _kept(self, reading: Reading, rule: int, desk: int) -> float:
        """The share of a module's skill, and of its luck, that misleading sentences leave."""
        spec, kept = self.spec, 1.0
        if reading.shortcuts:
            kept *= (1 - spec.mislead) ** len(reading.shortcuts - {desk})
        if reading.garbled:
            kept *= 1 - spec.harm * (rule in reading.garbled)
            kept *= 1 - spec.harm / 2 * ((rule - 1) % spec.rules in reading.garbled)
        return kept

    def _faults(self, reading: Reading, module: int, rule: int, desk: int) -> list[str]:
        """What a review says of one module that is at fault; empty where it is not."""
        words = self._words
        faults = [words.blunted(other) for other in sorted(reading.shortcuts - {desk})]
        faults += [words.misled(module, other) for other in (rule, (rule - 1) % self.spec.rules) if other in reading.garbled]
        if rule not in reading.rules:
            faults.append(words.broken(module, rule))
        return faults

    def _read_text(self, module: int, text: str) -> Reading:
        spec = self.spec
        found: dict[str, set[int]] = {"rule": set(), "garbled": set(), "blunt": set(), "memory": set()}
        for mark in self._words.marks([text], module):
            if mark.kind in found:
                found[mark.kind].add(mark.index)
        excess = max(0, len(sentences_of(text)) - (1 + spec.rules + spec.slack))
        compliance = max(_LEAST_COMPLIANCE, 1 - spec.dilution * excess)
        shortcuts = found["blunt"] if spec.desks else set()
        return Reading(frozenset(found["rule"]), frozenset(found["garbled"]), frozenset(shortcuts), frozenset(found["memory"]), compliance)

    def _example(self, index: int, number: int) -> Example:
        case = self.cases[index]
        topics = " and the ".join(self._words.topics[need] for need in case.needs)
        where = f" at the {DESKS[case.desk]} desk" if case.desk >= 0 else ""
        inputs, labels = {"message": f"Message {number}{where}, on the {topics}."}, {"case": index, "number": number}
        return Example(content_hash([self.name, self.seed, inputs]), inputs, labels)


class Scorer:
    """The task model under one candidate: reads its texts once, then answers example by example."""

    def __init__(self, land: Landscape, texts: Mapping[str, str], draw: int) -> None:
        self._land = land
        self._readings = land.readings(texts)
        self._memories = frozenset[int]().union(*(reading.memories for reading in self._readings))
        self._address = "\x1f".join((str(draw), *(texts[name] for name in land.modules)))
        self._address = hashlib.blake2b(self._address.encode(), digest_size=16).hexdigest()
        self._chances: dict[int, float] = {}

    def __call__(self, example: Example) -> float:
        """The score of an example."""
        land, spec = self._land, self._land.spec
        chance = self._chance(example)
        luck = _own_luck(land.seed, example.id)
        if spec.wobble and uniform(land.seed, "wobble", self._address, example.id) < spec.wobble:
            luck = uniform(land.seed, "answer", self._address, example.id)
        # both forms have the chance as their mean over luck
        score = chance + (2 * luck - 1) * min(chance, 1 - chance) / 2 if spec.graded else float(luck < chance)
        if spec.label_noise and uniform(land.seed, "label", example.id) < spec.label_noise:
            return 1 - score
        return score

    def judge(self, example: Example) -> Feedback:
        """The score and the review."""
        return self._land.review(self._readings, example, self(example))

    def _chance(self, example: Example) -> float:
        index = example.labels["case"]
        if index not in self._chances:
            self._chances[index] = self._land.chance(self._readings, self._land.cases[index])
        if self._memories and example.labels["number"] in self._memories:
            return max(self._land.spec.ceiling, self._chances[index])
        return self._chances[index]


def uniform(seed: int, *address: str) -> float:
    """A number in [0, 1) that its address fixes: ``core.seeds.stream`` without the generator, which would cost five times as much."""
    key = "\x1f".join((str(seed), *address)).encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") / 2**64


@lru_cache(maxsize=100_000)
def _own_luck(seed: int, example_id: str) -> float:
    return uniform(seed, "luck", example_id)


def _cases(spec: LandscapeSpec, seed: int) -> tuple[Case, ...]:
    """One case for each rule, in random order of frequency."""
    dice = stream(seed, "cases")
    needs = [(module, rule) for module in range(spec.modules) for rule in range(spec.rules)]
    dice.shuffle(needs)
    weights = [(rank + 1) ** -spec.tail for rank in range(len(needs))]
    paired = set(dice.sample(range(len(needs)), round(spec.pairs * len(needs))))
    cases = []
    for rank, need in enumerate(needs):
        other = [second for second in needs if second[0] != need[0]]
        all_needs = (need, dice.choice(other)) if rank in paired else (need,)
        desk = -1 if not spec.desks else 0 if rank % 2 == 0 else 1 + rank // 2 % (spec.desks - 1)
        base = spec.base * dice.uniform(0.5, 1.5)
        cases.append(Case(weights[rank] / sum(weights), all_needs, desk, min(base, spec.ceiling)))
    return tuple(cases)
