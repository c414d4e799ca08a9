"""A trace holds its calls in the order they began, whichever ends first."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import gepa_lite as gl
from gepa_lite.testing import ScriptedLM


def test_the_first_call_is_first_though_it_ends_last() -> None:
    began, ended = threading.Event(), threading.Event()

    def answer(request: gl.Request) -> str:
        if "slow" in request.messages[-1]["content"]:
            began.set()
            assert ended.wait(30)
        return "done"

    class Two(gl.Program):
        """Ask twice at once."""

        slow = gl.Module("question -> answer", "Answer the first.")
        fast = gl.Module("question -> answer", "Answer the second.")

        def forward(self, question: str) -> gl.Outputs:
            with ThreadPoolExecutor(1) as pool:
                first = pool.submit(gl.carry(lambda: self.slow(question="slow")))
                assert began.wait(30)
                answer = self.fast(question=question).answer
                ended.set()
                return gl.Outputs(answer=answer + first.result().answer)

    scored = gl.evaluate(Two(lm=ScriptedLM(answer)), [{"question": "fast"}], feedback=lambda example, output: 1.0)
    trace = scored.rollouts[0].trace
    assert [call.module for call in trace.calls] == ["slow", "fast"]
    assert trace.modules == ("slow", "fast")
