"""Where the doctor runs things: a session that takes no step of a search, with its own bound on what it may spend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gepa_lite.briefing import program_facts
from gepa_lite.core.call import Message, Usage
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.core.rollout import Rollout, RolloutKey
from gepa_lite.engine import Engine
from gepa_lite.lm.protocol import LM, Completion, Request
from gepa_lite.program.optimizable import Execution
from gepa_lite.rollouts.rollout import RolloutRunner
from gepa_lite.run_spec import RunSpec
from gepa_lite.search.ports import ProgramFacts
from gepa_lite.search.search import Search
from gepa_lite.session import Session
from gepa_lite.store.protocol import Store


class Bench(Session):
    """Runs single rollouts, judgements and proposals of a run to come.

    Args:
        spec: the run; its budget bounds the check.
        store: where what is paid for is kept.
    """

    def __init__(self, spec: RunSpec, store: Store) -> None:
        super().__init__(spec, store)
        self.rollouts = 0
        self._paid_before = store.paid().total
        store.begin_session({"workers": spec.workers.count, "engine": spec.workers.engine})
        self._engine = Engine(spec, store, spec.budget, lambda: None, self._count)

    @property
    def search(self) -> Search:
        """The rules, cut to the reflection models' context windows."""
        return self._search

    @property
    def facts(self) -> ProgramFacts:
        """What the reflection model is told."""
        return program_facts(self.spec, self._gate)

    @property
    def seed(self) -> Candidate:
        """The prompts as they stand."""
        return Candidate(self.spec.program.prompts)

    @property
    def cost(self) -> Usage:
        """What was paid since it was opened."""
        now, before = self.store.paid().total, self._paid_before
        usd = None if now.usd is None or before.usd is None else now.usd - before.usd
        return Usage(now.calls - before.calls, now.input_tokens - before.input_tokens, now.output_tokens - before.output_tokens, usd)

    def run_seed(self, examples: Sequence[Example], sample: int = 0) -> list[Rollout]:
        """Rollouts of the prompts as they stand."""
        return self._engine.evaluate(self.seed, examples, samples=(sample,))[0]

    def run_texts(self, texts: Mapping[str, str], example: Example) -> tuple[Rollout, list[tuple[Message, ...]]]:
        """A rollout with other texts that is kept nowhere, and the messages that were really sent."""
        sent: list[tuple[Message, ...]] = []

        def pay(lm: LM, request: Request, *, role: Any, sample: int, address: tuple[int | str, ...]) -> Completion:
            sent.append(request.messages)
            return self._engine.client.call(lm, request, role=role, sample=sample, address=address)

        spec = self.spec
        candidate = self.seed.replace(dict(texts))
        runner = RolloutRunner(spec.program.with_prompts(candidate.texts), spec.judge, spec.search.objective, pay)
        self.rollouts += 1
        return runner(example, RolloutKey(candidate.id, example.id)), sent

    def output_of(self, example: Example) -> Execution:
        """The output of a rollout that was run before, in the program's own type: its calls answer from the cache."""

        def call(lm: LM, request: Request, occurrence: int) -> Completion:
            return self._engine.client.call(lm, request, role="task", sample=0, address=(occurrence,))

        return self.spec.program.run(example.inputs, call)

    def judge(self, example: Example, output: Any, execution: Execution) -> Feedback:
        """Judge an output.

        Raises:
            FeedbackError: the feedback function raised or returned no feedback.
        """

        def call(lm: LM, request: Request, occurrence: int) -> Completion:
            return self._engine.client.call(lm, request, role="judge", sample=0, address=("judge", occurrence))

        return self.spec.judge(example, output, execution.trace, call)

    def close(self) -> None:
        """Stop the workers."""
        self._engine.close()
        self._threads.close()
        self.store.end_session(self.elapsed() - self._earlier, "check")

    def _count(self, rollout: Rollout, saved: bool) -> None:
        self.rollouts += not saved
