"""TextGrad (arXiv 2406.07496) on the modules of a program: textual gradients from the feedback back through each call to its prompt, then one step of ``TGD``.

The loop is that of its own example of prompt optimization: minibatches of 3, one step on all prompts at once, and a step that lowers the validation mean is taken back. Forward passes are
the desk's rollouts; losses, gradients and steps are the package's own functions, classes and prompts.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import textgrad as tg
from textgrad.autograd.function import BackwardContext
from textgrad.autograd.llm_ops import LLMCall
from textgrad.autograd.string_based_ops import StringBasedFunction

_PURPOSE = "The runtime of a function that scores the output of the program, higher is better, and says in words what is wrong with it"
_serial = itertools.count()


def _hash(variable: Any) -> int:
    if "serial" not in vars(variable):
        variable.serial = next(_serial)
    return int(variable.serial)


class Engine(tg.EngineLM):  # type: ignore[misc]
    """The run's reflection model as an engine of TextGrad.

    Args:
        desk: the way to the run.
    """

    model_string = "reflection"

    def __init__(self, desk: Any) -> None:
        self._desk = desk

    def generate(self, prompt: Any, system_prompt: Any = None, **kwargs: Any) -> str:
        """See ``EngineLM``."""
        system = system_prompt or self.system_prompt
        return str(self._desk.reflect([{"role": "system", "content": system}, {"role": "user", "content": prompt}]))

    def __call__(self, prompt: Any, **kwargs: Any) -> str:
        return self.generate(prompt, **kwargs)


def run(desk: Any, task: dict[str, Any]) -> str:
    """Steps until the desk ends them."""
    # sets of variables then keep one order in every process, so that a resumed run asks what it asked before
    tg.Variable.__hash__ = _hash
    options = {"batch_size": 3, "revert": True, **task["options"]}
    size, revert = options.pop("batch_size"), options.pop("revert")
    engine = Engine(desk)
    prompts = {
        module["name"]: tg.Variable(
            module["text"], requires_grad=True, role_description=f"the system prompt of the step {module['name']} ({module['signature']})"
        )
        for module in task["modules"]
    }
    optimizer = tg.TGD(parameters=list(prompts.values()), engine=engine, **options)
    validation = [row["id"] for row in task["validation"]]
    kept = {name: prompt.value for name, prompt in prompts.items()}
    best = _mean(desk.evaluate(kept, validation), task)
    for batch in _batches([row["id"] for row in task["train"]], size, task["seed"]):
        rollouts = desk.evaluate(kept, batch)
        losses = [loss for rollout in rollouts if (loss := _loss(rollout, prompts, engine)) is not None]
        if not losses:
            continue
        optimizer.zero_grad()
        try:
            tg.sum(losses).backward(engine)
            optimizer.step()
        except IndexError:
            # its answer held no new prompt: modules before that one keep theirs
            pass
        texts = {name: prompt.value for name, prompt in prompts.items()}
        if texts == kept:
            continue
        mean = _mean(desk.evaluate(texts, validation), task)
        if revert and mean < best:
            for name, prompt in prompts.items():
                prompt.set_value(kept[name])
        else:
            kept, best = texts, mean
    raise AssertionError("there is always another batch")


def _batches(ids: list[str], size: int, seed: int) -> Any:
    """Minibatches without end: each epoch a new order, what does not fill a batch at its end left out."""
    draw, size = random.Random(seed), min(size, len(ids))
    while True:
        order = draw.sample(ids, len(ids))
        yield from (order[start : start + size] for start in range(0, len(order) - size + 1, size))


def _mean(rollouts: list[dict[str, Any]], task: dict[str, Any]) -> float:
    scores = [float(task["worst"] if rollout["score"] is None else rollout["score"]) for rollout in rollouts]
    return sum(scores) / len(scores)


def _loss(rollout: dict[str, Any], prompts: dict[str, Any], engine: Any) -> Any:
    """The graph of a rollout, from the prompts and inputs through every call to the feedback; None for one that is missing or made no call."""
    if rollout["score"] is None:
        return None
    replies: list[tuple[dict[str, Any], Any]] = []
    for call in rollout["calls"]:
        if call["module"] in prompts:
            replies.append((call, _reply(call, prompts[call["module"]], replies, engine)))
    if not replies:
        return None
    words = _words(rollout, [call for call, _ in replies])
    judge = StringBasedFunction(lambda **_: words, function_purpose=_PURPOSE)
    return judge(
        inputs={"output of the program": replies[-1][1]}, response_role_description="the score and feedback of the program's output"
    )


def _reply(call: dict[str, Any], prompt: Any, earlier: list[tuple[dict[str, Any], Any]], engine: Any) -> Any:
    """A module's reply, whose gradient goes to its prompt and to the replies that its inputs came from."""
    inputs = [reply for before, reply in earlier if _feeds(before, call)]
    if not inputs:
        inputs = [tg.Variable(call["user"], requires_grad=False, role_description=f"the input of the step {call['module']}")]
    reply = tg.Variable(call["reply"], predecessors=[prompt, *inputs], role_description=f"the reply of the step {call['module']}")
    backward = LLMCall(engine, system_prompt=prompt).backward
    reply.set_grad_fn(BackwardContext(backward_fn=backward, response=reply, prompt=call["user"], system_prompt=prompt.value))
    return reply


def _feeds(before: dict[str, Any], call: dict[str, Any]) -> bool:
    """Whether an output of a call, or its whole reply, is an input of a later one."""
    given = [str(value) for value in call["inputs"].values()]
    made = [str(value) for value in (before["outputs"] or {}).values()] + [before["reply"]]
    return any(value and value in given for value in made)


def _words(rollout: dict[str, Any], calls: list[dict[str, Any]]) -> str:
    """The same feedback as everybody gets, that on single modules included."""
    lines = [f"score {rollout['score']:g}. {rollout['feedback']}".strip()]
    for module in dict.fromkeys(call["module"] for call in calls):
        own = rollout["words"].get(module)
        lines += [f"On the step {module}: {own}"] if own else []
    return "\n".join(lines)
