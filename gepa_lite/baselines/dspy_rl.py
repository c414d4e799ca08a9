"""dspy's own GRPO on our backend: an LM of dspy over an open model in this process, with a ``ReinforceJob`` that trains its adapter (extras ``rl`` and ``dspy``, dspy 3.4)."""

from __future__ import annotations

import dataclasses
import itertools
import os
import queue
import threading
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from gepa_lite.baselines.grpo.backend import Course, RLBackend, Update
from gepa_lite.baselines.grpo.rows import Episode, Row, SampledCall
from gepa_lite.baselines.grpo.settings import Training
from gepa_lite.baselines.grpo.signal import FLAT_IN_A_ROW, Signal, signal_of, stall_words
from gepa_lite.baselines.grpo.trl_backend import TRLBackend
from gepa_lite.errors import ContextWindowError, UsageError
from gepa_lite.lm.policy import Engine, PolicyLM, Sample, engine_of, logprobs_of, need, open_policy
from gepa_lite.lm.protocol import Completion, Params, Request

Entry = Mapping[str, Any]
"""``messages``, ``completion`` and ``reward`` of one call, as dspy hands it on."""
_THEIRS = ("steps", "calls", "validate_every", "patience", "baseline", "shuffled")
"""Settings of a training that dspy decides by its own means."""
_UNBOUNDED = 1_000_000_000


class _Ended(Exception):  # an internal signal
    """dspy has made its last step."""


class Learner:
    """Trains the adapter of an engine by groups of replies that come from outside, one update for each ``step``; the trainer waits for them in a thread of its own.

    Args:
        engine: the model.
        training: settings; an update takes ``examples`` groups of ``group`` replies.
        folder: where the adapter goes in the end.
        seed: of the adapter's random half.
        backend: computes the updates; None for TRL.
    """

    def __init__(self, engine: Engine, training: Training, folder: Path, seed: int, backend: RLBackend | None) -> None:
        self.engine, self.training, self.folder, self.steps = engine, training, folder, 0
        self._seed, self._backend = seed, backend or TRLBackend(1)
        self._kept: dict[tuple[tuple[int, ...], str], Sample] = {}
        self._lock = threading.Lock()
        self._given: queue.SimpleQueue[list[Row] | None] = queue.SimpleQueue()
        self._made: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._flat: list[Signal] = []

    @property
    def running(self) -> bool:
        """Whether it waits for steps."""
        return self._thread is not None

    def keep(self, sample: Sample) -> None:
        """Keep what was sampled, so that its own tokens are trained. Safe to call from many threads."""
        key = (sample.prompt_ids, self.engine.decode(sample.completion_ids).strip())
        with self._lock:
            self._kept[key] = sample

    def begin(self) -> None:
        """Put a new adapter on the model and start the trainer."""
        self.engine.shape(self.training.lora, self._seed)
        # as many steps as dspy asks for, and no checkpoints: dspy has no way to resume from one
        settings = dataclasses.replace(self.training, steps=_UNBOUNDED, validate_every=_UNBOUNDED)
        ids = [str(place) for place in range(self.training.examples)]
        course = Course(self.engine, settings, ids, self._seed, self.folder / "training", self._rows, self._ended)
        self._thread = threading.Thread(target=self._train, args=(course,), name="dspy-rl", daemon=True)
        self._thread.start()

    def step(self, groups: Sequence[Sequence[Entry]]) -> None:
        """Make one update. A warning says so where several in a row had nothing to go on.

        Args:
            groups: ``examples`` of them, each of ``group`` replies to one question; rewards are compared within each.

        Raises:
            UsageError: there are more or fewer.
        """
        wanted = (self.training.examples, self.training.group)
        if len(groups) != wanted[0] or any(len(group) != wanted[1] for group in groups):
            sizes = ", ".join(str(len(group)) for group in groups)
            raise UsageError(
                f"an update takes {wanted[0]} groups of {wanted[1]} replies, by Training(examples=, group=); groups of {sizes or 'none'} came."
            )
        self.engine.model.eval()
        episodes = [self._episode(str(place), entry) for place, group in enumerate(groups) for entry in group]
        rows = self.training.builder.rows(episodes)
        self._see(signal_of(episodes, rows))
        self._given.put(rows)
        self._wait()
        self.steps += 1
        with self._lock:
            self._kept.clear()

    def _see(self, signal: Signal) -> None:
        self._flat = [*self._flat, signal] if signal.still else []
        if len(self._flat) == FLAT_IN_A_ROW:
            words = stall_words(self._flat, None, self.training.group, self.training.temperature)
            warnings.warn(words, RuntimeWarning, stacklevel=3)

    def end(self) -> None:
        """End the trainer and write the adapter to the folder."""
        if self._thread is not None:
            self._given.put(None)
            self._wait()
            self._thread.join()
            self._thread = None
            self.engine.save(self.folder)

    def _wait(self) -> None:
        error = self._made.get()
        if error is not None:
            self._thread = None
            raise error

    def _train(self, course: Course) -> None:
        try:
            self._backend.train(course)
        except _Ended:
            self._made.put(None)
        except BaseException as error:
            self._made.put(error)

    def _rows(self, step: int, example_ids: Sequence[str]) -> list[Row]:
        rows = self._given.get()
        if rows is None:
            raise _Ended
        return rows

    def _ended(self, update: Update) -> bool:
        self._made.put(None)
        return True

    def _episode(self, group: str, entry: Entry) -> Episode:
        sample = self._sample(entry)
        return Episode(group, (SampledCall("dspy", sample.prompt_ids, sample.completion_ids, sample.logprobs),), float(entry["reward"]))

    def _sample(self, entry: Entry) -> Sample:
        """What was sampled for an entry; dspy's adapters write replies anew, and one that differs is encoded, with the chance that the model gives it now."""
        prompt, text = self.engine.encode(entry["messages"]), str(entry["completion"]["content"])
        with self._lock:
            found = self._kept.get((prompt, text.strip()))
        if found is not None:
            return found
        ids = (*self.engine.tokenizer(text, add_special_tokens=False)["input_ids"], self.engine.tokenizer.eos_token_id)
        return Sample(prompt, ids, logprobs_of(self.engine.model, prompt, ids))


class PolicyEngine:
    """An engine of ``dspy.LM`` over the model: while its ``Learner`` runs, the model in training, sampled at the training's temperature; afterwards what came out of it.

    Args:
        learner: of the model.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner, self._numbers = learner, itertools.count()

    def __deepcopy__(self, memo: Any) -> PolicyEngine:
        """Itself: there is one model."""
        return self

    def complete(self, request: Any) -> Any:
        """Answer a ``dspy.lm15.Request``."""
        lm15, learner = import_module("dspy").lm15, self._learner
        config = request.config
        limit = config.max_tokens or learner.training.max_tokens
        params = Params(limit, config.temperature, config.top_p, tuple(config.stop), config.seed)
        try:
            # each call draws anew: dspy's cache is what keeps replies
            found = self._model().complete_at(Request(_messages(request), params), next(self._numbers), ())
        except ContextWindowError as error:
            raise lm15.ContextLengthError(str(error)) from error
        return _response(lm15, found)

    def _model(self) -> PolicyLM:
        learner = self._learner
        name = learner.engine.base
        if not learner.running:
            return open_policy(str(learner.folder)) if learner.steps else PolicyLM(learner.engine, name)
        training = learner.training
        return PolicyLM(
            learner.engine,
            name,
            learner.engine.training or learner.engine.adapter,
            temperature=training.temperature,
            max_tokens=training.max_tokens,
            keep=learner.keep,
        )


def dspy_policy(
    model: str,
    folder: str | os.PathLike[str],
    *,
    training: Training | None = None,
    seed: int = 0,
    backend: RLBackend | None = None,
    **options: Any,
) -> Any:
    """A ``dspy.LM`` whose weights ``dspy.teleprompt.grpo.GRPO`` trains, by our backend: a LoRA adapter, which ends up in a folder that ``policy/FOLDER`` opens.

    ``Training(examples=, group=)`` must be what dspy sends: its ``num_dspy_examples_per_grpo_step`` times the program's predictors, and its ``num_rollouts_per_grpo_step``. Steps, validation and
    scores of failed rollouts are dspy's. Nothing of it enters a ledger of ours.

    Args:
        model: a model of the catalogue of local models, the path of a ``.gguf`` file, or a folder or hub name of ``transformers``.
        folder: for the adapter; new or empty.
        training: settings; ``steps``, ``calls``, ``validate_every``, ``patience``, ``baseline`` and ``shuffled`` are left as they are.
        seed: of the adapter's random half.
        backend: computes the updates; None for TRL.
        options: of ``dspy.LM``: ``temperature`` and ``max_tokens`` outside the training, ``cache``.

    Raises:
        UsageError: a package is missing or too old, the folder is not empty, or a setting is not ours to follow.

    Example:
        >>> lm = dspy_policy("smollm2-135m", "adapters/triage", training=Training(examples=2, group=6))  # doctest: +SKIP
        >>> program.set_lm(lm)  # doctest: +SKIP
        >>> GRPO(metric=metric, exclude_demos=True, num_dspy_examples_per_grpo_step=2, num_rollouts_per_grpo_step=6).compile(program, trainset)  # doctest: +SKIP
    """
    training, target = training or Training(), Path(os.fspath(folder))
    _check(training, target)
    learner = Learner(engine_of(model.removeprefix("policy/")), training, target, seed, backend)
    dspy = import_module("dspy")
    return dspy.LM(f"policy/{learner.engine.base}", engine=PolicyEngine(learner), provider=_provider(learner), **options)


def _check(training: Training, target: Path) -> None:
    default = Training()
    changed = [name for name in _THEIRS if getattr(training, name) != getattr(default, name)]
    if changed:
        raise UsageError(
            f"Training({', '.join(f'{name}=' for name in changed)}) is not followed here, since dspy's GRPO decides it: leave it out."
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is not empty: name a new folder for the adapter.")
    need()
    try:
        dspy = import_module("dspy")
    except ImportError as error:
        raise UsageError("the bridge to dspy needs it: pip install 'gepa-lite[dspy]'.") from error
    if not hasattr(dspy, "lm15"):
        raise UsageError(f"the bridge needs dspy 3.4, whose LM takes an engine; this is dspy {dspy.__version__}.")


def _provider(learner: Learner) -> Any:
    """A ``Provider`` of dspy whose jobs drive the learner."""
    base = import_module("dspy.clients.provider")

    class Job(base.ReinforceJob):  # type: ignore[misc, name-defined]  # its base is known at run time alone
        """One training."""

        def initialize(self) -> None:
            unknown = sorted(set(self.train_kwargs) - {"num_generations"})
            if unknown:
                raise UsageError(f"train_kwargs holds {', '.join(unknown)}: settings are those of dspy_policy(training=).")
            sent = self.train_kwargs.get("num_generations", learner.training.group)
            if sent != learner.training.group:
                raise UsageError(
                    f"dspy sends groups of {sent}: num_rollouts_per_grpo_step and Training(group={learner.training.group}) must be equal."
                )
            if learner.running or learner.steps:
                raise UsageError("this LM has been trained, or is: make a new one by dspy_policy.")
            learner.begin()

        def get_status(self) -> dict[str, Any]:
            first = learner.steps * learner.training.examples
            pending = list(range(first, first + learner.training.examples))
            return {
                "job_id": str(learner.folder),
                "status": "running" if learner.running else "succeeded",
                "current_model": self.lm.model,
                "checkpoints": self.checkpoints,
                "last_checkpoint": self.last_checkpoint,
                "pending_batch_ids": pending if learner.running else [],
            }

        def step(self, train_data: Sequence[Mapping[str, Any]], train_data_format: Any = None) -> None:
            learner.step([each["group"] for each in train_data])

        def save_checkpoint(self, checkpoint_name: str) -> None:
            place = learner.folder / "checkpoints" / checkpoint_name
            learner.engine.save(place)
            self.checkpoints[checkpoint_name], self.last_checkpoint = str(place), checkpoint_name

        def terminate(self) -> None:
            learner.end()
            self.lm.model = f"policy/{learner.folder}"

    class Policy(base.Provider):  # type: ignore[misc, name-defined]
        """Says that the LM can be trained by rewards."""

        def __init__(self) -> None:
            super().__init__()
            self.reinforceable, self.ReinforceJob = True, Job

        def __deepcopy__(self, memo: Any) -> Policy:
            return self

    return Policy()


def _messages(request: Any) -> tuple[dict[str, str], ...]:
    system = request.system if isinstance(request.system, str) else "".join(_text(part) for part in request.system or ())
    head = ({"role": "system", "content": system},) if system else ()
    return (*head, *({"role": message.role, "content": "".join(map(_text, message.parts))} for message in request.messages))


def _text(part: Any) -> str:
    if not isinstance(getattr(part, "text", None), str):
        raise UsageError(f"an open model in this process reads text alone, and a message holds a {type(part).__name__}.")
    return str(part.text)


def _response(lm15: Any, found: Completion) -> Any:
    usage = lm15.Usage(found.usage.input_tokens, found.usage.output_tokens, found.usage.input_tokens + found.usage.output_tokens)
    return lm15.Response(None, found.model, lm15.Message.assistant(lm15.TextPart(found.text)), found.finish_reason, usage)
