"""The whole way on a real small model: declare, optimize, resume, save, load. SmolLM2-135M through llama.cpp, as task and reflection model."""

from __future__ import annotations

from pathlib import Path

import pytest

import gepa_lite as gl
from gepa_lite.store.run_store import RunStore

pytestmark = [pytest.mark.local_model, pytest.mark.timeout(400)]


class Sort(gl.Program):
    """Sort a message."""

    label = gl.Module("message -> label: Literal['question', 'praise']", "Say what the message is.", max_tokens=8, temperature=0.0)
    reason = gl.Module("message, label -> reason", "Give the reason in a few words.", max_tokens=12, temperature=0.0)

    def forward(self, message: str) -> gl.Outputs:
        label = self.label(message=message).label
        return gl.Outputs(label=label, reason=self.reason(message=message, label=label).reason)


ROWS = [
    ("When does the shop open?", "question"),
    ("What a lovely fern!", "praise"),
    ("How much light does a cactus need?", "question"),
    ("The best plants I ever had.", "praise"),
    ("Can I change my order?", "question"),
    ("Thank you, everything arrived green and happy.", "praise"),
    ("Where is my parcel?", "question"),
    ("Great service, as always.", "praise"),
]


def test_a_real_small_model_from_declaration_to_bundle(tmp_path: Path) -> None:
    examples = [{"message": message, "gold": gold} for message, gold in ROWS]

    def feedback(example: gl.Example, output: gl.Outputs) -> gl.Feedback:
        # never the best score, so that there is always something to reflect on
        return gl.Feedback(0.9 * (output.label == example["gold"]), f"The message is {example['gold']}: answer {example['gold']}.")

    def run() -> gl.Result[Sort]:
        rules = gl.Search.paper(reflection_tokens=60, minibatch=2)
        program = Sort(lm="local/smollm2-135m")
        budget = gl.Budget(rollouts=24, proposals=2)
        return gl.optimize(program, examples[:4], examples[4:], feedback=feedback, search=rules, budget=budget, run=tmp_path / "run")

    result = run()
    assert result.finished
    assert 0.0 <= result.validation.before <= 1.0
    assert result.costs.logical.reflection.calls == 2
    assert result.costs.paid.calls > 10
    assert result.costs.logical.task.tokens > 100
    assert result.costs.paid.usd == 0.0
    with RunStore.read(tmp_path / "run") as store:
        rollouts = list(store.rollouts())
    assert all(rollout.output["label"] in ("question", "praise") for rollout in rollouts), "the reply is held to the choices"
    assert all(call.reply for rollout in rollouts for call in rollout.trace.calls)
    again = run()
    assert again.costs.paid == result.costs.paid, "a finished run costs nothing"
    path = result.save(tmp_path / "sort.prompts.json")
    assert Sort().load(path).prompts == result.prompts
