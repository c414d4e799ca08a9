"""``dspy.GEPA`` and ``dspy.MIPROv2`` on a generated dspy program: a predictor for each module, whose rollouts the desk runs with the user's own program."""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
import sys
import tempfile
import types
from typing import Any

import dspy

_UNBOUNDED = 10**9
_HEADING = "Examples of good answers:"
_INCOMPLETE = "This is an example of the task, though some input or output fields are not supplied."
_MINIBATCH = 35
"""MIPROv2's own size; it takes minibatches where the validation set is larger than ``_FULL``."""
_FULL = 50
_SEED = 9
"""MIPROv2's own, for our seed 0."""
_PRESETS = {"light": 6, "medium": 12, "heavy": 18}
"""Candidates of MIPROv2's own presets."""


class Counter:
    """What the generated program and its metrics share: the desk, the examples and the rollouts so far.

    Args:
        desk: the way to the run.
        task: what is to be optimized.
    """

    def __init__(self, desk: Any, task: dict[str, Any]) -> None:
        self._desk = desk
        self._seeds = {module["name"]: (inspect.cleandoc(module["text"]), module["text"]) for module in task["modules"]}
        self._ids = {_key(dict(row["inputs"], **row["labels"])): row["id"] for row in (*task["train"], *task["validation"])}
        self._by_inputs: dict[str, str] = {}
        for row in (*task["train"], *task["validation"]):
            self._by_inputs.setdefault(_key(row["inputs"]), row["id"])
        self._known: dict[tuple[str, str], dict[str, Any]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Counter:
        return self

    def texts(self, program: Any) -> dict[str, str]:
        """The prompts of a program: its predictors' instructions, with their demonstrations written out."""
        found = {}
        for name, predictor in zip(self._seeds, program.predictors()):
            clean, seed = self._seeds[name]
            text = seed if predictor.signature.instructions == clean else predictor.signature.instructions
            shown = [text for demo in predictor.demos if (text := _shown(demo, predictor.signature))]
            found[name] = "\n\n".join([text, _HEADING, *shown]) if shown else text
        return found

    def prefetch(self, program: Any, examples: list[Any]) -> None:
        """Run a whole batch at once, before dspy asks for its examples one by one."""
        texts = self.texts(program)
        self._evaluate(texts, [self._ids[_key(example.toDict())] for example in examples])

    def rollout(self, program: Any, inputs: dict[str, Any]) -> dict[str, Any]:
        """The rollout of a program on an example's inputs."""
        return self._one(self.texts(program), self._by_inputs[_key(inputs)])

    def judged(self, example: Any, prediction: Any) -> dict[str, Any]:
        """The rollout behind a prediction, judged by the example's own labels."""
        return self._one(prediction._texts, self._ids[_key(example.toDict())])

    def reflect(self, messages: list[dict[str, str]]) -> str:
        """A reply of the reflection model."""
        return str(self._desk.reflect(messages))

    def _one(self, texts: dict[str, str], example_id: str) -> dict[str, Any]:
        place = (_key(texts), example_id)
        if place not in self._known:
            self._evaluate(texts, [example_id])
        return self._known[place]

    def _evaluate(self, texts: dict[str, str], ids: list[str]) -> None:
        for example_id, rollout in zip(ids, self._desk.evaluate(texts, ids)):
            self._known[_key(texts), example_id] = rollout


class Batches(dspy.utils.callback.BaseCallback):  # type: ignore[misc]
    """Tells the counter of each batch that dspy is about to evaluate."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def on_evaluate_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """See ``BaseCallback``."""
        self._counter.prefetch(inputs["program"], list(inputs["devset"] or instance.devset))


class Reflector(dspy.BaseLM):  # type: ignore[misc]
    """The run's reflection model as an LM of dspy: sampling settings are the run's, and each call gets a reply of its own."""

    def __init__(self, counter: Counter) -> None:
        super().__init__(model="reflection", cache=False)
        self._counter = counter

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        """See ``BaseLM``."""
        text = self._counter.reflect(messages or [{"role": "user", "content": prompt}])
        message = types.SimpleNamespace(content=text, tool_calls=None, reasoning_content=None)
        choice = types.SimpleNamespace(message=message, finish_reason="stop", index=0)
        return types.SimpleNamespace(choices=[choice], usage={}, model="reflection")


def run(desk: Any, task: dict[str, Any]) -> str:
    """Run the optimizer that the task names, to its end."""
    logging.getLogger("dspy").setLevel(logging.ERROR)
    counter = Counter(desk, task)
    program = _program(counter, task)
    train, validation = ([_example(row) for row in task[split]] for split in ("train", "validation"))
    reflector = Reflector(counter)
    with dspy.context(lm=reflector, callbacks=[Batches(counter)], disable_history=True, track_usage=False):
        if task["optimizer"] == "gepa":
            return _run_gepa(counter, task, reflector, (program, train, validation))
        return _run_mipro(counter, task, reflector, (program, train, validation))


def _run_gepa(counter: Counter, task: dict[str, Any], reflector: Any, given: tuple[Any, Any, Any]) -> str:
    program, train, validation = given

    def metric(gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
        rollout = counter.judged(gold, pred)
        score = task["worst"] if rollout["score"] is None else rollout["score"]
        if pred_name is None:
            return score
        words = rollout["words"].get(_path(task, pred_name)) or rollout["feedback"] or None
        return dspy.Prediction(score=score, feedback=words)

    options = {
        "reflection_lm": reflector,
        "max_metric_calls": _UNBOUNDED,
        "num_threads": 1,
        "failure_score": task["worst"],
        "perfect_score": task["best"],
        "seed": task["seed"],
        **task["options"],
    }
    dspy.GEPA(metric=metric, **options).compile(program, trainset=train, valset=validation)
    return "dspy.GEPA ended by its own rules"


def _run_mipro(counter: Counter, task: dict[str, Any], reflector: Any, given: tuple[Any, Any, Any]) -> str:
    program, train, validation = given

    def metric(gold: Any, pred: Any, trace: Any = None) -> Any:
        rollout = counter.judged(gold, pred)
        score = task["worst"] if rollout["score"] is None else rollout["score"]
        # dspy's convention: with a trace a metric says whether the calls may serve as demonstrations
        return score if trace is None else rollout["score"] is not None and score >= task["best"]

    options = dict(task["options"])
    minibatch = len(validation) > _FULL
    batch = _MINIBATCH if minibatch else len(validation)
    candidates, trials = plan(len(program.predictors()), batch, task["rollouts"])
    of_compile = {name: options.pop(name) for name in list(options) if name in inspect.signature(dspy.MIPROv2.compile).parameters}
    planned = "auto" not in options and "num_candidates" not in options
    if planned:
        options.update(auto=None, num_candidates=candidates)
        of_compile = {"num_trials": trials, "minibatch": minibatch, **of_compile}
    settings = {"prompt_model": reflector, "task_model": reflector, "num_threads": 1, "seed": _SEED + task["seed"], **options}
    optimizer = dspy.MIPROv2(metric=metric, **settings)
    if planned:
        # as the presets split them where demonstrations are sought too
        optimizer.num_instruct_candidates = candidates // 2
    optimizer.compile(program, trainset=train, valset=validation, **of_compile)
    return "dspy.MIPROv2 made its last trial"


def plan(predictors: int, batch: int, rollouts: int | None) -> tuple[int, int]:
    """Candidates and trials of MIPROv2: the largest preset that the budget pays for, with trials until the budget ends.

    Args:
        predictors: of the program.
        batch: rollouts of a trial.
        rollouts: of the budget; None where it is held otherwise.
    """

    def trials(candidates: int) -> int:
        return int(max(2 * 2 * predictors * math.log2(candidates), 1.5 * candidates))

    if rollouts is None:
        return _PRESETS["light"], trials(_PRESETS["light"])
    fitting = [n for n in _PRESETS.values() if trials(n) * batch <= rollouts] or [_PRESETS["light"]]
    return fitting[-1], max(trials(fitting[-1]), rollouts // batch)


def _program(counter: Counter, task: dict[str, Any]) -> Any:
    """A dspy module with a predictor for each module of the program, under its name and with its source, which MIPROv2's proposer reads."""

    def init(self: Any) -> None:
        dspy.Module.__init__(self)
        self._counter = counter
        for place, module in enumerate(task["modules"]):
            setattr(self, f"step_{place}" if _path_is_odd(module["name"]) else module["name"], dspy.Predict(_signature(module)))

    def forward(self: Any, **inputs: Any) -> Any:
        rollout = counter.rollout(self, inputs)
        predictors = dict(zip((module["name"] for module in task["modules"]), self.predictors()))
        trace = dspy.settings.trace
        for call in rollout["calls"] if trace is not None else ():
            if call["module"] in predictors:
                outputs = call["outputs"] if call["outputs"] is not None else {"unusable reply": call["reply"]}
                trace.append((predictors[call["module"]], call["inputs"], dspy.Prediction(**outputs)))
        prediction = dspy.Prediction(**rollout["output"])
        prediction._texts = counter.texts(self)
        return prediction

    name = task["program"] if task["program"].isidentifier() else "Program"
    made = type(name, (dspy.Module,), {"__init__": init, "forward": forward, "__doc__": task["purpose"]})
    if task["source"]:
        _give_source(made, task["source"])
    return made()


def _give_source(made: type, source: str) -> None:
    path = os.path.join(tempfile.mkdtemp(), "user_program.py")  # noqa: PTH118
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(source)
    module = types.ModuleType("user_program")
    module.__file__ = path
    sys.modules["user_program"] = module
    made.__module__ = "user_program"


def _signature(module: dict[str, Any]) -> Any:
    try:
        return dspy.Signature(module["signature"], module["text"])
    except Exception:  # a type that dspy does not know by its name
        sides = [", ".join(part.split(":")[0].strip() for part in side.split(",")) for side in module["signature"].split("->")]
        return dspy.Signature(" -> ".join(sides), module["text"])


def _path_is_odd(name: str) -> bool:
    return not name.isidentifier() or hasattr(dspy.Module, name)


def _path(task: dict[str, Any], predictor: str) -> str:
    for place, module in enumerate(task["modules"]):
        if predictor in (module["name"], f"step_{place}"):
            return str(module["name"])
    return predictor


def _example(row: dict[str, Any]) -> Any:
    return dspy.Example(**row["inputs"], **row["labels"]).with_inputs(*row["inputs"])


def _shown(demo: Any, signature: Any) -> str:
    """A demonstration as lines of fields; "" where it has no input or no output of the module, as dspy leaves such out."""
    fields = {name: demo[name] for name in signature.fields if name in demo and demo[name] is not None}
    if not any(name in signature.input_fields for name in fields) or not any(name in signature.output_fields for name in fields):
        return ""
    lines = [f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "\n".join(lines if len(fields) == len(signature.fields) else [_INCOMPLETE, *lines])


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
