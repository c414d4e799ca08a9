"""A dspy program's prompts in dspy's own file: what dspy sends after a plain load is what was sent inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import ScriptedLM
from tests.dspy_task import BETTER, TRAIN, Shout, dspy, right, serving, shout, words

WORDS = [f"word{number} {{x}} [[ \n line" if number % 4 == 0 else f"word{number}" for number in range(50)]


def test_dspys_own_load_sends_what_was_sent_inside_on_50_examples(tmp_path: Path) -> None:
    with serving(shout) as (server, lm):
        result = gl.optimize(
            Shout(),
            TRAIN,
            words("a", "b", "c", "d"),
            testset=words(*WORDS),
            feedback=right,
            reflection_lm=ScriptedLM(BETTER),
            run=tmp_path / "run",
        )
        done = gl.export(result, "dspy", tmp_path / "shout.json", verify_on=50)
        assert done.verified is not None
        assert (done.verified.examples, done.verified.sent) == (50, 50)
        # outside: dspy alone, over HTTP, with the LM as the user has it
        fresh = Shout()
        fresh.load(tmp_path / "shout.json")
        bundle = result.save(tmp_path / "shout.prompts.json")
        with RunStore.read(tmp_path / "run") as store:
            rollouts = {r.key.example_id: r for r in store.rollouts_of(result.candidates[result.shipped].candidate.id)}
            examples = store.examples("test")
        with dspy.context(lm=lm.copy(cache=False)):
            for example in examples:
                before = server.calls
                fresh(**example.inputs)
                assert server.calls == before + 1
                assert server.requests[-1]["messages"] == [dict(m) for m in rollouts[example.id].trace.calls[0].messages]
        assert gl.export(bundle, "dspy", tmp_path / "again.json", program=Shout()).verified is None
        assert (tmp_path / "again.json").read_text() == (tmp_path / "shout.json").read_text()


def test_a_changed_dspy_program_is_refused(tmp_path: Path) -> None:
    class Prefixed(Shout):
        def forward(self, word: str) -> Any:
            return self.say(word=f"the {word}")

    with serving(shout):
        result = gl.optimize(Shout(), TRAIN, words("a", "b"), feedback=right, reflection_lm=ScriptedLM(BETTER), run=tmp_path / "run")
        with pytest.raises(gl.UnfaithfulExportError, match=r"\+user: .*the "):
            gl.export(result, "dspy", tmp_path / "shout.json", program=Prefixed())
        with pytest.raises(gl.UsageError, match="is no dspy program"):
            gl.export(result, "dspy", tmp_path / "shout.json", program=_native())
    assert not (tmp_path / "shout.json").exists()


def _native() -> gl.Program:
    class Say(gl.Program):
        say = gl.Module("word -> reply", "Repeat.")

        def forward(self, word: str) -> gl.Outputs:
            return self.say(word=word)

    return Say(lm=ScriptedLM("x"))


def test_what_dspys_file_does_not_hold_is_refused(tmp_path: Path) -> None:
    def search(query: str) -> str:
        """Look something up."""
        return query

    with serving(shout):
        agent = gl.DspyProgram(dspy.ReAct("word -> reply", tools=[search], max_iters=1), tools=True)
        data = {"prompt": "Look it up in the book.", "signature": "", "contract": None}
        modules = {path: {**data, "fingerprint": part.fingerprint, "prompt": part.text} for path, part in agent.parts.items()}
        assert "react:tool search" in modules
        modules["react:tool search"] = {**modules["react:tool search"], "prompt": "Look it up in the book."}
        prompts = gl.Prompts({"modules": modules, "program": "ReAct"}, "a bundle")
        with pytest.raises(gl.UsageError, match=r"prompt of 'react.*' does not come back"):
            gl.export(prompts, "dspy", tmp_path / "agent.json", program=agent)
