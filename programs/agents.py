"""Agents: one whose answer extraction is code under optimization, and one that calls tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from gepa_lite.errors import UsageError
from gepa_lite.lm.resolve import LMSpec
from gepa_lite.program.code import Code
from gepa_lite.program.module import Module
from gepa_lite.program.outputs import Outputs
from gepa_lite.program.program import Program
from gepa_lite.sandbox.sandbox import Sandbox

EXTRACTION = """\
def extract(reply):
    return reply.split("Answer:")[-1].strip()
"""
"""Answer extraction to start from: what follows the last ``Answer:``."""


class BBEHAgent(Program):
    """Answer a hard question, and take the answer out of the reply by code.

    question ─► respond ─► extract, code in the sandbox ─► answer

    Source: the BBEH agent of "learning loops" (arXiv 2603.23994): a prompt and an extraction function, both optimized. The function gets the reply and returns a text; code that fails,
    or that the sandbox stops, is the candidate's failure, in words.

    Args:
        lm: the model.
        code: Python that defines ``extract``, to start from.
        sandbox: holds the code.

    Raises:
        UsageError: nothing here can hold the code (see ``Sandbox.check_ready``).

    Example:
        >>> from gepa_lite.testing import ScriptedLM
        >>> BBEHAgent(ScriptedLM("Let me see. Answer: (B)"), sandbox=Sandbox(unconfined=True))(question="Which?").answer
        '(B)'
    """

    respond = Module("question -> reply", "Given the question, think step by step and end with a line 'Answer: ...'.", max_tokens=1024)

    def __init__(self, lm: LMSpec | None = None, *, code: str = EXTRACTION, sandbox: Sandbox | None = None) -> None:
        super().__init__(lm)
        self.extract = Code("reply -> answer", code, function="extract", sandbox=sandbox)
        self.extract.sandbox.check_ready()

    def forward(self, question: str) -> Outputs:
        """Answer one question; the model's reply is kept as ``reply``."""
        reply = self.respond(question=question).reply
        return Outputs(reply=reply, answer=self.extract(reply=reply).answer)


class ToolAgent(Program):
    """Solve a task by calling tools, one at a time, until it is done or the turns are used up.

    task ─► step ─► tool ─► step ─► … ─► answer

    Source: our own, after ReAct (arXiv 2210.03629). What a tool raises is told to the model as its result.

    Args:
        tools: functions of one text that return a text, by name; their docstrings are shown to the model.
        lm: the model.
        turns: calls of the model at most.

    Raises:
        UsageError: no tools, or a tool named ``finish``.

    Example:
        >>> from gepa_lite.testing import ScriptedLM
        >>> lm = ScriptedLM(['{"thought": "t", "tool": "upper", "argument": "fern"}', '{"thought": "t", "tool": "finish", "argument": "FERN"}'])
        >>> ToolAgent({"upper": str.upper}, lm)(task="Shout fern")
        Outputs(answer='FERN', history=['upper("fern") gave FERN'])
    """

    step = Module(
        "task, tools, history: list[str] -> thought, tool, argument",
        "Solve the task by the tools. Say what you think, then name one tool and its argument. When you know the answer, name the tool finish with the answer.",
        max_tokens=512,
    )

    def __init__(self, tools: Mapping[str, Callable[[str], str]], lm: LMSpec | None = None, *, turns: int = 6) -> None:
        super().__init__(lm)
        if not tools or "finish" in tools:
            raise UsageError("ToolAgent: at least one tool is needed, and none may be named 'finish'.")
        self.tools, self.turns = dict(tools), turns

    def forward(self, task: str) -> Outputs:
        """Work on one task; without ``finish`` the answer is empty."""
        told = "\n".join(
            f"{name}: {(tool.__doc__ or '').strip().splitlines()[0] if tool.__doc__ else ''}" for name, tool in self.tools.items()
        )
        history: list[str] = []
        for _ in range(self.turns):
            chosen = self.step(task=task, tools=told, history=history)
            if chosen.tool == "finish":
                return Outputs(answer=chosen.argument, history=history)
            history.append(f"{chosen.tool}({json.dumps(chosen.argument, ensure_ascii=False)}) {self._call(chosen.tool, chosen.argument)}")
        return Outputs(answer="", history=history)

    def _call(self, name: str, argument: str) -> str:
        if name not in self.tools:
            return f"failed: there is no such tool; there are {', '.join(self.tools)} and finish"
        try:
            return f"gave {self.tools[name](argument)}"
        except Exception as error:  # whatever a tool raises is an answer to the model
            return f"failed: {type(error).__name__}: {error}"
