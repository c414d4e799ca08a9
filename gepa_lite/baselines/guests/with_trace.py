"""Trace's OptoPrime (arXiv 2406.16218) on the modules of a program: prompts are trainable nodes, each call is a node computed from its prompt and inputs.

The loop is that of its own batch examples: a minibatch's outputs are concatenated into one node, the feedback is propagated back, and one step of OptoPrime may change every prompt. Forward
passes are the desk's rollouts; graph, propagation, prompts and parsing are the package's own.
"""

from __future__ import annotations

import random
import re
from types import SimpleNamespace
from typing import Any

from opto.optimizers import OptoPrime
from opto.trace import node
from opto.trace.nodes import MessageNode


def run(desk: Any, task: dict[str, Any]) -> str:
    """Steps until the desk ends them."""
    options = {"batch_size": 3, **task["options"]}
    size = options.pop("batch_size")
    # names of nodes are read by the model: they must be identifiers
    names = {module["name"]: re.sub(r"\W", "_", module["name"]) for module in task["modules"]}
    prompts = {
        module["name"]: node(
            module["text"],
            name=f"prompt_{names[module['name']]}",
            trainable=True,
        )
        for module in task["modules"]
    }
    optimizer = OptoPrime(list(prompts.values()), llm=_llm(desk), **options)
    validation = [row["id"] for row in task["validation"]]
    kept = {name: prompt.data for name, prompt in prompts.items()}
    for batch in _batches([row["id"] for row in task["train"]], size, task["seed"]):
        rollouts = [rollout for rollout in desk.evaluate(kept, batch) if rollout["score"] is not None and rollout["calls"]]
        outputs = [_output(rollout, prompts, names, task) for rollout in rollouts]
        if not outputs:
            continue
        joined = MessageNode(
            "\n".join(f"ID [{place}]: {output.data}" for place, output in enumerate(outputs)),
            inputs={f"output_{place}": output for place, output in enumerate(outputs)},
            description="[concat] Concatenates the outputs of a batch.",
            name="batch",
        )
        optimizer.zero_feedback()
        optimizer.backward(joined, "\n".join(f"ID [{place}]: {_words(rollout)}" for place, rollout in enumerate(rollouts)))
        optimizer.step()
        texts = {name: prompt.data for name, prompt in prompts.items()}
        if texts != kept:
            desk.evaluate(texts, validation)
        kept = texts
    raise AssertionError("there is always another batch")


def _llm(desk: Any) -> Any:
    def ask(messages: Any, **kwargs: Any) -> Any:
        if "response_format" in kwargs:
            # OptoPrime tries this first and asks again without it: one question is enough
            raise ValueError("this model takes no response_format")
        message = SimpleNamespace(content=desk.reflect(messages))
        return SimpleNamespace(choices=[SimpleNamespace(message=message)])

    return ask


def _batches(ids: list[str], size: int, seed: int) -> Any:
    """Minibatches without end: each epoch a new order, what does not fill a batch at its end left out."""
    draw, size = random.Random(seed), min(size, len(ids))
    while True:
        order = draw.sample(ids, len(ids))
        yield from (order[start : start + size] for start in range(0, len(order) - size + 1, size))


def _output(rollout: dict[str, Any], prompts: dict[str, Any], names: dict[str, str], task: dict[str, Any]) -> Any:
    """The last call of a rollout as a node over the graph of all its calls."""
    made: list[tuple[dict[str, Any], Any]] = []
    signatures = {module["name"]: module["signature"] for module in task["modules"]}
    given: dict[tuple[str, str], Any] = {}
    for call in rollout["calls"]:
        if call["module"] not in prompts:
            continue
        inputs = {"prompt": prompts[call["module"]]}
        for field, value in call["inputs"].items():
            source = next((output for before, output in reversed(made) if _gives(before, value)), None)
            place = (field, str(value))
            if source is None and place not in given:
                given[place] = node(str(value), name=f"input_{re.sub(r'[^A-Za-z0-9_]', '_', field)}")
            inputs[field] = given[place] if source is None else source
        name = names[call["module"]]
        output = MessageNode(
            call["reply"],
            inputs=inputs,
            description=f"[{name}] A language model's reply ({signatures[call['module']]}); prompt is its system prompt.",
            name=name,
        )
        made.append((call, output))
    return made[-1][1]


def _gives(before: dict[str, Any], value: Any) -> bool:
    return str(value) in [str(made) for made in (before["outputs"] or {}).values()] + [before["reply"]] and bool(str(value))


def _words(rollout: dict[str, Any]) -> str:
    """The same feedback as everybody gets, that on single modules included."""
    own = [f"On the step {module}: {words}" for module, words in rollout["words"].items() if words]
    return " ".join([f"score {rollout['score']:g}.", rollout["feedback"], *own]).strip()
