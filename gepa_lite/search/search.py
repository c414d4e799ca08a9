"""The rules of a search: one frozen record, each default with its reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from gepa_lite.core.feedback import Objective
from gepa_lite.core.ids import content_hash, jsonable, text_hash
from gepa_lite.errors import UsageError
from gepa_lite.guard.options import Guard
from gepa_lite.search.accept import ACCEPTANCE, Acceptance
from gepa_lite.search.checks import CHECKS, check_fields, check_names, check_settings
from gepa_lite.search.fans import Fan
from gepa_lite.search.minibatch import Schedule, size_at
from gepa_lite.search.reflect import ReflectionLimits, template_problem
from gepa_lite.search.select import SELECTORS, Selector
from gepa_lite.search.stop_rules import StopRule


@dataclass(frozen=True, slots=True)
class Search:
    """How to search. Every field changes the run's course and is part of its fingerprint; a resume with other rules is refused.

    The defaults are those of the table in ``docs/choosing-settings.md``; ``Search.paper()`` is the paper's loop.

    Attributes:
        seed: of every random draw. Two runs of one seed and the same model answers are equal, event for event.
        minibatch: training examples per proposal; 3 is the paper's. A schedule ``((0, 3), (40, 6))`` gives the size from a proposal on.
        sampling: ``"epoch"`` (the paper's): every example once or twice an epoch; ``"hard"``: examples that candidates failed on more often.
        fan: proposals from one parent at a time, on distinct minibatches, for modules in rotation; the best accepted text of each module joins one child, which alone is
            validated. 1 is the paper's loop. ``"auto"`` is 4, and 8 from the third step on where the program has several prompts.
        window: steps in flight. 1 is the paper's loop; more fill idle models and lower the score, since a step then can't see the outcome of the ones before.
        overlap: a step's proposals are made while the child of the step before is validated, and that child is their parent, whichever candidate the selector drew; False, the paper's, waits for its
            scores and draws among all. Holds for a window of 1 without ``patience``: otherwise steps overlap anyway.
        patience: seconds that a step which could be committed next keeps those behind it waiting; then the event ``Deferred`` lets them go on, and it is committed later. A resume reads the event;
            where a step is deferred is a matter of timing, so None, the default, waits.
        repeats: rollouts of an example whose mean is its value; for programs whose answers vary.
        selector: how the parent is chosen: ``"pareto"`` (the paper's), ``"likely"``, ``"best"``, ``"epsilon_greedy"``, ``"top_k_pareto"``, ``"beam"``, ``"elite"``, or an object of
            ``gepa_lite.search.select`` with other settings.
        frontier: what candidates compete for: validation examples (the paper's), objectives, both, or every pair of the two.
        modules: which module of the parent is rewritten: ``"round_robin"`` (the paper's), ``"all"`` at once, or by ``"blame"``.
        accept: ``"strict"`` (the paper's): the child must be better than its parent on the same minibatch; ``"non_strict"``: at least as good; ``"paired"``: better beyond chance; or an object of
            ``gepa_lite.search.accept``.
        validation: ``"full"`` (the paper's) or ``"staged"``: in blocks, ended early where the candidate's chance to lead or to win an example alone falls below ``validation_bound``.
        validation_block: examples in the first block; each further one is twice as large as the one before.
        validation_bound: the chance below which a staged validation ends.
        merge: whether lineages that improved different modules are joined: ``"none"``, ``"paper"`` (after each accepted proposal, a pair drawn from the front) or ``"complementary"`` (the pair that wins
            on the most different examples). ``True`` and ``False`` stand for ``"complementary"`` and ``"none"``.
        merge_attempts: merges tried at most, accepted or not. 5 is the paper's number of accepted ones.
        merge_give_up: failed merges in a row after which merging ends.
        skip_perfect: a minibatch on which the parent has the best possible score is skipped: there is nothing to learn from it.
        reuse: a candidate's rollout on a training example is paid once and used again; False samples anew each time, for programs whose answers vary.
        horizon: calls around the module's own that the reflection sees: 0 is that call alone, ``"episode"`` the whole rollout, ``"adaptive"`` more of it the longer nothing is accepted.
        proposer: ``"rewrite"`` (whole text, the paper's), ``"edit"`` (a few bounded changes, with a memory of rejected ones), or ``"auto"``: rewrites, until half of at least four gave
            no usable text, as with small models, and edits from then on.
        edit_words: words that the edits of one proposal may take out and put in.
        mixing: how one of several reflection models is chosen: by ``"weights"``, or by a ``"bandit"`` over accepted proposals per cost.
        plateau: proposals without an accepted one after which another reflection model, and the other proposer, get a turn; 0 is never.
        stop: further stop rules; the search ends at the first that holds.
        objective: direction and range of the scores.
        reflection_template: a Jinja2 text in place of ours; gets ``module``, ``signature``, ``prompt``, ``purpose`` and ``lessons``.
        reflection_limits: how much the reflection prompt may show.
        reflection_tokens: upper bound of the reflection model's reply; a reply cut off there is rejected.
        reflection_temperature: 1.0, so that two reflections on one prompt differ; None leaves it to the endpoint.
        max_prompt_tokens: the longest prompt accepted for a module, in estimated tokens.
        guard: the leak guard: ``"reject"``: a proposed prompt that copies examples, personal data, secrets or our own instructions is asked for once more and then rejected; ``"warn"``: it goes on, and
            the result lists what was found; ``"off"``; or a ``gl.Guard`` with further options.
        objectives: what candidates compete for beside the feedback's own objectives: ``("prompt_tokens",)`` keeps short prompts on the front. Needs another ``frontier`` than ``"example"``.
        prefer: which candidate is handed back: ``"score"``, the highest validation mean; ``"short"``, of those within one standard error of it the one with the fewest prompt tokens.
        shorten: rollouts, reserved from the start, for leaving out one sentence of the winner at a time; those that cost nothing on the validation set are dropped. The seed's own sentences stay.
        pins: examples (rows, or ids of validation examples) on which no candidate may score less than the seed: one that does is vetoed before its validation.
        require: ``"improved"``: ``result.program`` is the seed unless the sealed test set shows a gain; None: unless the winner's test score is not above the seed's.
        milestones: candidates scored on the curve's examples once the search has ended, seed and winner included.
        start: prompts to go on from: the path of a bundle, a registry's folder, a run, an exported Markdown folder or prompt files; what ``gl.load_prompts`` or ``gl.prompts_from`` read; or texts by
            module path. They are a start beside the program's own prompts, which the test set compares with all the same; modules, and signatures where they are known, must be the program's.
        store_messages: False keeps messages, replies, inputs, outputs and words of the feedback out of the run's file; ``docs/privacy.md`` says what still works.
        coverage: least share, 0 to 1, of validation examples that the seed needs a score on. What stays missing above it, tried twice (a refused input, an example that always times out),
            is set aside for this run, by an event, and said; below it the run ends with an error. 1 sets nothing aside.
    """

    seed: int = 0
    minibatch: Schedule = 3
    sampling: Literal["epoch", "hard"] = "epoch"
    fan: Fan = "auto"
    window: int = 1
    overlap: bool = True
    patience: float | None = None
    repeats: int = 1
    selector: str | Selector = "top_k_pareto"
    frontier: Literal["example", "objective", "hybrid", "product"] = "example"
    modules: Literal["round_robin", "all", "blame"] = "blame"
    accept: str | Acceptance = "strict"
    validation: Literal["full", "staged"] = "staged"
    validation_block: int = 10
    validation_bound: float = 0.05
    merge: bool | Literal["none", "paper", "complementary"] = "complementary"
    merge_attempts: int = 5
    merge_give_up: int = 3
    skip_perfect: bool = True
    reuse: bool = True
    horizon: int | Literal["adaptive", "episode"] = 0
    proposer: Literal["auto", "rewrite", "edit"] = "auto"
    edit_words: int = 120
    mixing: Literal["weights", "bandit"] = "weights"
    plateau: int = 0
    stop: tuple[StopRule, ...] = ()
    objective: Objective = field(default_factory=Objective)
    reflection_template: str | None = None
    reflection_limits: ReflectionLimits = field(default_factory=ReflectionLimits)
    reflection_tokens: int = 4_096
    reflection_temperature: float | None = 1.0
    max_prompt_tokens: int = 2_000
    guard: Literal["reject", "warn", "off"] | Guard = "reject"
    objectives: tuple[str, ...] = ()
    prefer: Literal["score", "short"] = "score"
    shorten: int = 0
    pins: tuple[Any, ...] = ()
    require: Literal["improved"] | None = None
    milestones: int = 5
    start: Any = None
    store_messages: bool = True
    coverage: float = 0.9

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Refuse an unknown rule by name, before Python's own error would."""
        check_names(cls, options)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        # frozen: shorthands, and lists as TOML and JSON give them, are spelled out once, here
        if isinstance(self.merge, bool):
            object.__setattr__(self, "merge", "complementary" if self.merge else "none")
        if not isinstance(self.stop, (tuple, list)):
            object.__setattr__(self, "stop", (self.stop,))
        if isinstance(self.minibatch, list):
            object.__setattr__(self, "minibatch", tuple(tuple(part) if isinstance(part, list) else part for part in self.minibatch))
        for name in ("stop", "objectives", "pins"):
            value = getattr(self, name)
            if isinstance(value, Iterable) and not isinstance(value, (str, Mapping)):
                object.__setattr__(self, name, tuple(value))
        check_fields(self, CHECKS)
        for name, rule in (("selector", self.selector), ("accept", self.accept), *(("stop", rule) for rule in self.stop)):
            check_settings(name, rule)
        if self.objectives and self.frontier == "example":
            raise UsageError(f"Search(objectives={self.objectives!r}) has no effect on frontier='example': add frontier='hybrid'.")
        if self.reflection_template is not None:
            self._check_template(self.reflection_template)

    def _check_template(self, text: str) -> None:
        if problem := template_problem(text):
            raise UsageError(
                f"Search(reflection_template=...): {problem}. It may use module, signature, prompt, purpose, form and lessons."
            )
        if self.proposer == "edit" and not self.plateau:
            raise UsageError("Search(reflection_template=...) has no effect on proposer='edit': take one of them out.")

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """The paper's loop, decision for decision: one proposal at a time, Pareto selection, round robin, full validation, no merge; with the given changes.

        Raises:
            UsageError: an unknown rule.
        """
        check_names(cls, changes)
        paper: dict[str, Any] = {
            "fan": 1,
            "overlap": False,
            "selector": "pareto",
            "modules": "round_robin",
            "validation": "full",
            "merge": "none",
            "proposer": "rewrite",
        }
        return cls(**{**paper, **changes})

    @property
    def overlaps(self) -> bool:
        """Whether proposals are made beside the validation before them."""
        return self.overlap and self.window == 1 and self.patience is None

    @property
    def least_minibatch(self) -> int:
        """The smallest size that the schedule has."""
        return self.minibatch if isinstance(self.minibatch, int) else min(size for _, size in self.minibatch)

    def minibatch_sizes(self, proposals: int) -> list[int]:
        """The size of each of the first proposals."""
        return [size_at(self.minibatch, index)[0] for index in range(proposals)]

    @property
    def parent_selector(self) -> Selector:
        """The selector itself."""
        return SELECTORS[self.selector] if isinstance(self.selector, str) else self.selector

    @property
    def leak_guard(self) -> Guard:
        """The leak guard's options."""
        return Guard(mode=self.guard) if isinstance(self.guard, str) else self.guard

    @property
    def acceptance(self) -> Acceptance:
        """The acceptance rule itself."""
        return ACCEPTANCE[self.accept] if isinstance(self.accept, str) else self.accept

    def fingerprint(self) -> Mapping[str, Any]:
        """The rules as JSON types; a template is represented by its hash. The texts to start from are kept beside them (``RunStarted.starts``)."""
        rules: dict[str, Any] = jsonable(
            {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if item.name not in ("pins", "start")}
        )
        for name, rule in (("selector", self.parent_selector), ("accept", self.acceptance)):
            rules[name] = _named(rule)
        rules["guard"] = self.leak_guard.fingerprint()
        rules["stop"] = [_named(rule) for rule in self.stop]
        # hashes, since these rules ship with the prompts and the examples may be private
        rules["pins"] = [pin if isinstance(pin, str) else content_hash(pin) for pin in self.pins]
        if self.store_messages:
            # it changes nothing of the course, so runs from before it was there can be resumed
            del rules["store_messages"]
        if self.reflection_template is not None:
            rules["reflection_template"] = text_hash(self.reflection_template)
        return rules


def _named(rule: object) -> dict[str, Any]:
    return {"rule": type(rule).__name__, "settings": jsonable(rule)}
