"""A run as training data: one record for each proposed text, with what was asked, what came back, what it changed and what it was worth (arXiv 2606.29082)."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gepa_lite.core.call import Message
from gepa_lite.core.ids import jsonable
from gepa_lite.errors import UsageError
from gepa_lite.insight.measures import read_trail, run_of
from gepa_lite.store.browse import Browse

if TYPE_CHECKING:
    from gepa_lite.ship.result import Result

TOLERANCE = 1e-9
"""A change of the mean score within it is none."""
TOKENS = 32_000
"""A longer exchange is too long to train on, unless another bound is given."""

Label = Literal["improved", "regressed", "no_change", ""]
Status = Literal["ok", "parse_error", "exec_error", "timeout", "refused", "infra"]
Dropped = Literal["", "no_child", "unrecoverable", "breakage", "systematic", "too_long"]


@dataclass(frozen=True, slots=True)
class TransitionRecord:
    """One proposed text of one module. A proposal for several modules, and a merge that changed several, is as many records, which share their scores.

    Scores are in the user's own direction; ``delta`` is turned so that more is better.

    Attributes:
        uid: ``sha256(run_id|iteration.slot|parent|child|module)``.
        run_id: of the run: the name of its folder and a hash of its first event.
        task: name of the program.
        iteration: the step.
        slot: place in the step's fan.
        generation: of the child: steps from the seed.
        op: ``"mutation"`` or ``"merge"``.
        proposer: ``"rewrite"``, ``"edit"``, ``"merge"``, or another optimizer's name.
        module: path.
        model: who was asked; "" for a merge.
        parent_ids: content hashes; of a merge both.
        child_id: "" where there is no child.
        parent_text: the module's text before; of a merge the first parent's.
        child_text: proposed; "" where the reply held none.
        minibatch_ids: examples that parent and child were compared on; of a merge, of the validation set.
        scores_before: the parent's, None where one is missing; of a merge the better parent's.
        scores_after: the child's; empty where it was not run.
        delta: mean score of the child less the parent's; None where the child was not run on all of them.
        label: ``"improved"``, ``"regressed"`` or ``"no_change"`` by ``delta``; "" where there is none.
        feedback: what the feedback function said of the parent, for this module, one entry for each example.
        val_before: the first parent's validation mean, or None.
        val_after: the child's, where it was validated.
        messages: what the reflection model was asked last; empty for a merge and where messages are not kept.
        response: its reply; "" likewise.
        reasoning: reasoning that the endpoint separated from the reply, or None.
        tokens: ``input`` and ``output`` of that call.
        cost: its dollars, None where a price is unknown.
        wall: its seconds.
        accepted: whether the child was better on the minibatch, by the run's rule of acceptance.
        code: why not, or why, in one stable word.
        status: ``"ok"``; ``"parse_error"``: the reply held no usable text; ``"refused"``: it broke the contract or the leak guard's rules; ``"exec_error"``, ``"timeout"``: the child failed on every
            example; ``"infra"``: the world failed.
        dropped: why the record is left out of training rows, "" where it is not; see ``docs/trajectories.md``.
        artifacts: ``parent`` and ``child``: output, feedback, score and failure by example; ``first``: messages and reply before the model was asked once more, where it was.
    """

    uid: str
    run_id: str
    task: str
    iteration: int
    slot: int
    generation: int
    op: Literal["mutation", "merge"]
    proposer: str
    module: str
    model: str
    parent_ids: tuple[str, ...]
    child_id: str
    parent_text: str
    child_text: str
    minibatch_ids: tuple[str, ...]
    scores_before: tuple[float | None, ...]
    scores_after: tuple[float | None, ...]
    delta: float | None
    label: Label
    feedback: tuple[str, ...]
    val_before: float | None
    val_after: float | None
    messages: tuple[Message, ...]
    response: str
    reasoning: str | None
    tokens: Mapping[str, int]
    cost: float | None
    wall: float
    accepted: bool
    code: str
    status: Status
    dropped: Dropped
    artifacts: Mapping[str, Any]

    def to_data(self) -> dict[str, Any]:
        """JSON types."""
        data: dict[str, Any] = jsonable(self)
        return data


def transitions(run: Result[Any] | str | Path, *, max_tokens: int = TOKENS) -> list[TransitionRecord]:
    """Every proposed text of a run as a record to learn from, in the order of the log. Read from the file alone: nothing is locked, called or paid for.

    Minibatches that taught nothing, for which no text was asked, have no record.

    Args:
        run: a result, the name of a run, or the path of its folder.
        max_tokens: a record whose messages and reply are longer, in estimated tokens, is marked as dropped.

    Raises:
        UsageError: there is no such run, it was kept in memory, or the bound is not positive.

    Example:
        >>> import gepa_lite as gl
        >>> from gepa_lite.testing import ScriptedLM
        >>> class Shout(gl.Program):
        ...     answer = gl.Module("word -> reply", "Repeat the word.")
        ...     def forward(self, word):
        ...         return self.answer(word=word)
        >>> task = ScriptedLM(lambda request: "HI" if "capital" in request.messages[0]["content"] else "hi")
        >>> words = [{"word": w} for w in "red green blue white".split()]
        >>> result = gl.optimize(Shout(lm=task), words[:2], words[2:], feedback=lambda example, output: (float(output.reply.isupper()), "Answer in capital letters."),
        ...     reflection_lm=ScriptedLM("<prompt>Repeat it in capital letters.</prompt>"), budget=gl.Budget(proposals=4), run=getfixture("tmp_path"))
        >>> record = gl.transitions(result)[0]
        >>> record.label, record.delta, record.child_text, record.response
        ('improved', 1.0, 'Repeat it in capital letters.', '<prompt>Repeat it in capital letters.</prompt>')
    """
    from gepa_lite.insight.transition_reading import Reading

    if isinstance(max_tokens, bool) or max_tokens < 1:
        raise UsageError(f"max_tokens={max_tokens!r}: a positive number of tokens is needed.")
    with Browse(run_of(run)) as browse:
        return list(Reading(browse, read_trail(browse), max_tokens).records())


def uid_of(parts: Sequence[str]) -> str:
    """The id of a record: a hash of what tells it from all others."""
    return hashlib.sha256("|".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def label_of(delta: float | None) -> Label:
    """What a change of the mean score is called."""
    if delta is None:
        return ""
    return "improved" if delta > TOLERANCE else "regressed" if delta < -TOLERANCE else "no_change"


def mark(record: TransitionRecord, max_tokens: int, recovered: bool) -> Dropped:
    """Why a record is no good to learn from, or "".

    Args:
        record: its ``dropped`` is not looked at.
        max_tokens: of messages and reply together, estimated.
        recovered: whether a candidate that came of the child ran after all.
    """
    if record.status in ("infra", "timeout"):
        return "systematic"
    if record.status == "exec_error":
        return ("" if recovered else "unrecoverable") if not _runs(record.artifacts["parent"]) else "breakage"
    if record.status != "ok" or record.delta is None:
        return "no_child"
    characters = sum(len(message["content"]) for message in record.messages) + len(record.response) + len(record.reasoning or "")
    return "too_long" if characters > 4 * max_tokens else ""


def _runs(rollouts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a candidate ran at all: a rollout that is not known counts."""
    return not rollouts or any(row["failure"] is None for row in rollouts)


def failed_throughout(rollouts: Sequence[Mapping[str, Any]]) -> Status:
    """``"ok"``, or how a child failed that failed on every example."""
    if _runs(rollouts):
        return "ok"
    kinds = {row["failure"]["kind"] for row in rollouts}
    return "timeout" if kinds <= {"timeout"} else "exec_error"


def remarked(record: TransitionRecord, max_tokens: int, recovered: bool) -> TransitionRecord:
    """The record with its mark."""
    return dataclasses.replace(record, dropped=mark(record, max_tokens, recovered))
