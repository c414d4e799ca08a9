"""``gl.train_mutator``: from the records of runs to a model that serves as ``reflection_lm``."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gepa_lite.core.ids import content_hash
from gepa_lite.errors import UsageError
from gepa_lite.lm.policy import engine_of, need
from gepa_lite.lm.policy.engine import is_adapter, read_card
from gepa_lite.mutator.selection import Exchange, Selection, check_enough, read_records, select, split
from gepa_lite.mutator.settings import Tuning
from gepa_lite.mutator.trainers import Progress, length, loss_of, train_pairs, train_replies
from gepa_lite.ship.atomic import write_atomically

_RECORD, _WORK = "training.json", "training"


@dataclass(frozen=True, slots=True)
class TrainedMutator:
    """What a training came to; ``training.json`` in its folder holds the same.

    Attributes:
        folder: ``reflection_lm="policy/FOLDER"`` opens it.
        base: the model that it is an adapter of.
        adapter: hash of the adapter.
        records: how many there were.
        dropped: how many of them each filter left out.
        rows: replies that were trained on.
        held_out: replies that were not, and whose loss was measured.
        pairs: of preferences, trained on afterwards.
        loss_before: mean loss of a token of the replies held out, in nats, by the base; None where none are.
        loss_after: the same by the trained model.
    """

    folder: str
    base: str
    adapter: str
    records: int
    dropped: Mapping[str, int]
    rows: int
    held_out: int
    pairs: int
    loss_before: float | None
    loss_after: float | None

    def __str__(self) -> str:
        left = ", ".join(f"{count} {name}" for name, count in sorted(self.dropped.items(), key=lambda item: -item[1]))
        pairs = f", then on {self.pairs} pairs" if self.pairs else ""
        lines = [
            f"{self.folder}: trained on {self.rows} replies{pairs}; {self.held_out} held out, of {self.records} records.",
            f"Left out: {left or 'none'}.",
        ]
        if self.loss_before is not None and self.loss_after is not None:
            lines.append(f"Loss of a token held out: {self.loss_before:.3f} before, {self.loss_after:.3f} after.")
        return "\n".join([*lines, f'Use it: reflection_lm="policy/{self.folder}"'])


def train_mutator(
    runs: Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    *,
    base: str = "smollm2-135m",
    tuning: Tuning | None = None,
    progress: Progress | None = None,
) -> TrainedMutator:
    """Fine-tune a small open model to rewrite prompts, on the replies of recorded runs that improved a prompt on their minibatch.

    What is learned is the reply to the question that the reflection model was asked, by a LoRA adapter. A training that was broken off goes on from its newest checkpoint where the same call is made
    again; one that has ended is only read. Needs the extra ``rl``.

    Args:
        runs: names or folders of runs, and files of ``gepa-lite export RUN --format transitions``; of several tasks, if the model is to rewrite prompts of other ones.
        folder: for the adapter; new, or of the same training.
        base: a model of the catalogue of local models, the path of a ``.gguf`` file, or a folder or hub name of ``transformers``.
        tuning: settings.
        progress: told of each update: stage, number, of how many, loss.

    Returns:
        What was kept and left out, and the loss of replies held out before and after.

    Raises:
        UsageError: too few records, records that are too long, a missing extra, or a folder of something else; before any weights are loaded.

    Example:
        >>> trained = gl.train_mutator(["triage-1", "billing-2"], "mutators/first")  # doctest: +SKIP
        >>> gl.optimize(program, trainset, valset, reflection_lm=f"policy/{trained.folder}")  # doctest: +SKIP
    """
    tuning = tuning or Tuning()
    base, target = base.removeprefix("policy/"), Path(os.fspath(folder))
    if is_adapter(Path(base)):
        raise UsageError(f"base={base!r} is the folder of an adapter; the model that it was trained from is needed.")
    _check_folder(target)
    records = read_records(runs)
    # by the filters that need no tokenizer first
    check_enough(select(records, tuning), tuning)
    need()
    engine = engine_of(base)
    engine.open_tokenizer()
    if tuning.max_length > (window := engine.window):
        raise UsageError(f"max_length={tuning.max_length}: the window of {base} is {window} tokens.")
    chosen = select(records, tuning, lambda messages, reply: length(engine, messages, reply))
    check_enough(chosen, tuning)
    rows, held = split(chosen.rows, tuning)
    plan = _plan(base, tuning, chosen)
    done = _begun(target, plan)
    if done is not None:
        return TrainedMutator(**{**done, "folder": str(target)})
    before, after, adapter = _train(target, base, tuning, (rows, held, chosen), progress or _silent)
    counts = (len(rows), len(held), len(chosen.pairs))
    trained = TrainedMutator(str(target), base, adapter, chosen.records, chosen.dropped, *counts, before, after)
    write_atomically(target / _RECORD, json.dumps({"plan": plan, "trained": dataclasses.asdict(trained)}, indent=2) + "\n")
    return trained


def _train(
    target: Path, base: str, tuning: Tuning, data: tuple[list[Exchange], list[Exchange], Selection], told: Progress
) -> tuple[float | None, float | None, str]:
    """Loss before, loss after, and the adapter's hash."""
    rows, held, chosen = data
    engine, work = engine_of(base), target / _WORK
    engine.load()
    engine.shape(tuning.lora, tuning.seed)
    before = loss_of(engine, held)
    if not is_adapter(work / "replies"):
        train_replies(engine, rows, tuning, work / "replies-updates", told)
        engine.save(work / "replies")
    else:
        engine.use(read_card(work / "replies")["adapter"], work / "replies")
    if chosen.pairs:
        train_pairs(engine, chosen.pairs, tuning, work / "pairs-updates", told)
    engine.save(target)
    return before, loss_of(engine, held), engine.adapter


def _plan(base: str, tuning: Tuning, chosen: Selection) -> dict[str, Any]:
    data = [[[dict(message) for message in row.messages], row.reply, row.about] for row in chosen.rows]
    pairs = [[[dict(message) for message in pair.messages], pair.chosen, pair.rejected] for pair in chosen.pairs]
    return {"base": base, "tuning": tuning.settings(), "data": content_hash([data, pairs])}


def _check_folder(target: Path) -> None:
    """Refuse a folder of something else.

    Raises:
        UsageError: it is a file, or not empty and no training of a mutator.
    """
    if target.exists() and not (target / _RECORD).exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists and holds no training of a mutator: name a new folder.")


def _begun(target: Path, plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the folder's training came to, None where it has not ended.

    Raises:
        UsageError: it is another training, or its record can't be read.
    """
    path = target / _RECORD
    if not path.exists():
        target.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"plan": plan, "trained": None}, indent=2) + "\n")
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        known, trained = found["plan"], found["trained"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} can't be read ({error}): name a new folder.") from error
    if known != json.loads(json.dumps(plan)):
        changed = ", ".join(name for name in plan if known.get(name) != json.loads(json.dumps(plan[name])))
        raise UsageError(f"{target} holds a training that differs in {changed}: name a new folder, or make the same call to go on with it.")
    return trained if isinstance(trained, dict) else None


def _silent(stage: str, step: int, steps: int, loss: float) -> None:
    """Tells nobody."""
