"""How transition records are read out of a run's file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gepa_lite.core.candidate import Candidate
from gepa_lite.core.events import Merged, Proposed
from gepa_lite.core.ids import content_hash
from gepa_lite.core.rollout import Rollout
from gepa_lite.insight.steps import Attempt, Node
from gepa_lite.insight.trail import Trail
from gepa_lite.insight.transitions import (
    Status,
    TransitionRecord,
    failed_throughout,
    label_of,
    remarked,
    uid_of,
)
from gepa_lite.origin import ORIGIN_KEY
from gepa_lite.store.browse import Browse, ReflectionRow
from gepa_lite.store.codec import decode_event

_REFUSED = ("contract", "leak")


@dataclass(frozen=True, slots=True)
class _Compared:
    """Parent and child on the examples that they were compared on; values are higher-is-better."""

    parent: Candidate
    child: Candidate
    before: tuple[float | None, ...]
    after: tuple[float | None, ...]

    @property
    def delta(self) -> float | None:
        pairs = [(a, b) for a, b in zip(self.after, self.before, strict=False) if a is not None and b is not None]
        if not pairs or len(pairs) < len(self.before):
            return None
        return sum(a - b for a, b in pairs) / len(pairs)


class Reading:
    """Reads the records of a run.

    Args:
        browse: the run's file.
        trail: its course.
        max_tokens: beyond which an exchange is marked as too long.
    """

    def __init__(self, browse: Browse, trail: Trail, max_tokens: int) -> None:
        assert trail.started is not None
        self._browse, self._trail, self._max_tokens = browse, trail, max_tokens
        self._run_id = f"{browse.folder.name}-{content_hash(trail.started)}"
        origin = browse.meta(ORIGIN_KEY)
        named = origin.get("program") if isinstance(origin, Mapping) else None
        self._task = named.rpartition(":")[2] if isinstance(named, str) else str(trail.started.settings.get("program", ""))
        self._children: dict[int, list[Node]] = {}
        for node in trail.nodes:
            for parent in node.parents:
                self._children.setdefault(parent, []).append(node)

    def records(self) -> Iterator[TransitionRecord]:
        """In the order of the log."""
        for attempt in self._trail.attempts:
            row = self._browse.event(attempt.seq)
            if attempt.status == "skipped" or row is None:
                continue
            event = decode_event(row.kind, row.version, row.body)
            assert isinstance(event, (Proposed, Merged))
            asked = self._asked(event) if isinstance(event, Proposed) else {}
            modules = event.modules if isinstance(event, Proposed) else tuple(event.texts)
            for place, module in enumerate(modules):
                record = self._record(attempt, event, module, {key[3:]: row for key, row in asked.items() if key[2:3] == (place,)})
                yield remarked(record, self._max_tokens, self._recovered(attempt))

    def _asked(self, event: Proposed) -> dict[tuple[int, ...], ReflectionRow]:
        places = range(max(1, len(event.modules)))
        return self._browse.reflections([(event.step, event.slot, place, *more) for place in places for more in ((), (1,))])

    def _record(
        self, attempt: Attempt, event: Proposed | Merged, module: str, asked: Mapping[tuple[int, ...], ReflectionRow]
    ) -> TransitionRecord:
        parents = [self._trail.nodes[index] for index in attempt.parents]
        compared = self._compared(event, parents)
        text = event.texts.get(module, "")
        child = compared.child.id if event.texts else ""
        said, made = self._rollouts(compared.parent, event.example_ids), self._rollouts(compared.child, event.example_ids) if text else []
        last = asked.get((1,)) or asked.get(())
        reply = None if last is None else last.completion
        first = asked.get(()) if (1,) in asked else None
        step, slot = event.step, event.slot if isinstance(event, Proposed) else 0
        joined = None if attempt.child is None else self._trail.nodes[attempt.child].mean
        return TransitionRecord(
            uid=uid_of([self._run_id, f"{step}.{slot}", compared.parent.id, child, module]),
            run_id=self._run_id,
            task=self._task,
            iteration=step,
            slot=slot,
            generation=1 + max(node.generation for node in parents),
            op="mutation" if isinstance(event, Proposed) else "merge",
            proposer=attempt.kind,
            module=module,
            model=attempt.model,
            parent_ids=tuple(Candidate(node.texts).id for node in parents),
            child_id=child,
            parent_text=parents[0].texts[module],
            child_text=text,
            minibatch_ids=event.example_ids,
            scores_before=self._scores(compared.before),
            scores_after=self._scores(compared.after),
            delta=compared.delta,
            label=label_of(compared.delta),
            feedback=tuple("" if r.feedback is None else r.feedback.for_module(module) for r in said),
            val_before=self._score(parents[0].mean),
            val_after=self._score(joined),
            messages=() if last is None else tuple(last.messages),
            response="" if reply is None else reply.text,
            reasoning=(reply.reasoning or None) if reply is not None else None,
            tokens={} if reply is None else {"input": reply.usage.input_tokens, "output": reply.usage.output_tokens},
            cost=None if reply is None else reply.usage.usd,
            wall=0.0 if last is None else last.seconds,
            accepted=event.status == "accepted",
            code=event.code,
            status=_status(event, text, [_row(r) for r in made]),
            dropped="",
            artifacts={
                "parent": [_row(r) for r in said],
                "child": [_row(r) for r in made],
                **({} if first is None else {"first": _exchange(first)}),
            },
        )

    def _compared(self, event: Proposed | Merged, parents: Sequence[Node]) -> _Compared:
        parent = Candidate(parents[0].texts)
        if isinstance(event, Proposed):
            return _Compared(parent, parent.replace(event.texts), event.before, event.after)
        better = max(range(len(event.before)), key=lambda place: sum(event.before[place]), default=0)
        before = event.before[better] if event.before else ()
        return _Compared(Candidate(parents[better].texts), parent.replace(event.texts), before, event.after)

    def _rollouts(self, candidate: Candidate, example_ids: Sequence[str]) -> list[Rollout]:
        """The first sample of each example, as far as it is kept."""
        found = (self._browse.rollouts_on(candidate.id, example) for example in example_ids)
        return [rollouts[0] for rollouts in found if rollouts]

    def _recovered(self, attempt: Attempt) -> bool:
        """Whether something that came of the child scores more than the worst there is: it ran after all."""
        if attempt.child is None:
            return False
        reached, waiting = set(), [attempt.child]
        while waiting:
            index = waiting.pop()
            if index not in reached:
                reached.add(index)
                waiting += [node.index for node in self._children.get(index, ())]
        worst = self._trail.objective.worst
        return any((mean := self._trail.nodes[index].mean) is not None and mean > worst for index in reached)

    def _score(self, value: float | None) -> float | None:
        return None if value is None else self._trail.objective.score(value)

    def _scores(self, values: Sequence[float | None]) -> tuple[float | None, ...]:
        return tuple(self._score(value) for value in values)


def _status(event: Proposed | Merged, text: str, made: Sequence[Mapping[str, Any]]) -> Status:
    if event.status == "void":
        return "infra"
    if not text:
        return "refused" if event.code in _REFUSED else "parse_error"
    return failed_throughout(made)


def _row(rollout: Rollout) -> dict[str, Any]:
    feedback, failure = rollout.feedback, rollout.failure
    return {
        "example_id": rollout.key.example_id,
        "score": None if feedback is None else feedback.score,
        "output": rollout.output,
        "feedback": "" if feedback is None else feedback.text,
        "modules": {} if feedback is None else dict(feedback.modules),
        "failure": None if failure is None else {"kind": failure.kind, "message": failure.message},
        "seconds": rollout.seconds,
    }


def _exchange(row: ReflectionRow) -> dict[str, Any]:
    return {"messages": [dict(message) for message in row.messages], "response": "" if row.completion is None else row.completion.text}
