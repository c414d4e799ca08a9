"""The other programs of the GEPA paper (arXiv 2507.19457, section 4): instruction following, private delegation, mathematics."""

from __future__ import annotations

from gepa_lite.lm.resolve import LMSpec
from gepa_lite.program.module import Module
from gepa_lite.program.outputs import Outputs
from gepa_lite.program.program import Program


class IFBenchTwoStage(Program):
    """Follow instructions to the letter: answer, then put the answer right.

    query ─► generate_response ─► ensure_correct_response ─► response

    Source: the IFBench program of GEPA's artifact.

    Example:
        >>> from gepa_lite.testing import ScriptedLM
        >>> IFBenchTwoStage(ScriptedLM('{"reasoning": "r", "response": "a", "final_response": "b"}'))(query="q")
        Outputs(draft='a', response='b')
    """

    generate_response = Module("query -> reasoning, response", "Respond to the query.", max_tokens=2048)
    ensure_correct_response = Module(
        "query, response -> reasoning, final_response",
        "Ensure the response is correct and adheres to the given constraints. Your response will be used as the final response.",
        max_tokens=2048,
    )

    def forward(self, query: str) -> Outputs:
        """Answer in two stages; the first one's answer is kept as ``draft``."""
        draft = self.generate_response(query=query).response
        return Outputs(draft=draft, response=self.ensure_correct_response(query=query, response=draft).final_response)


class Papillon(Program):
    """Ask a strong model that must not see private data, through one that may.

    user_query ─► craft_redacted_request ─► untrusted ─► respond_to_query ─► response

    Source: PAPILLON (arXiv 2410.17127), as in GEPA's artifact. ``untrusted`` is the model that sees only the redacted request: its calls are traced and in the ledger, and its prompt is not
    ours to optimize.

    Args:
        lm: the trusted model.
        untrusted: the model that sees the redacted request alone.

    Example:
        >>> from gepa_lite.testing import ScriptedLM
        >>> crafted = '{"reasoning": "r", "llm_request": "Letter for a man"}'
        >>> trusted = ScriptedLM({"related_llm_request": "Dear Mr. Fern", "user_query": crafted})
        >>> Papillon(trusted, ScriptedLM("Dear X"))(user_query="Mr. Fern wants a letter")
        Outputs(llm_request='Letter for a man', llm_response='Dear X', response='Dear Mr. Fern')
    """

    craft_redacted_request = Module(
        "user_query -> reasoning, llm_request",
        "Given a private user query, create a privacy-preserving request for a powerful external LLM. The LLM may assist without learning private "
        "information about the user.",
    )
    respond_to_query = Module(
        "related_llm_request, related_llm_response, user_query -> response",
        "Respond to a user query. For inspiration, we found a potentially related request to a powerful external LLM and its response.",
    )

    def __init__(self, lm: LMSpec | None = None, untrusted: LMSpec | None = None) -> None:
        super().__init__(lm)
        self.untrusted = Module("request -> answer", "You are a helpful assistant.", max_tokens=1024, lm=untrusted, optimize=False)

    def forward(self, user_query: str) -> Outputs:
        """Redact, ask, answer; what left the house is kept as ``llm_request``."""
        request = self.craft_redacted_request(user_query=user_query).llm_request
        found = self.untrusted(request=request).answer
        answer = self.respond_to_query(related_llm_request=request, related_llm_response=found, user_query=user_query).response
        return Outputs(llm_request=request, llm_response=found, response=answer)


class Aime(Program):
    """Solve a problem of the AIME.

    problem ─► solve ─► answer

    Source: the AIME program of GEPA's artifact.
    """

    solve = Module(
        "problem -> reasoning, answer",
        "Solve the problem and provide the answer in the correct format.",
        describe={"answer": "an integer from 0 to 999"},
        max_tokens=4096,
    )

    def forward(self, problem: str) -> Outputs:
        """Solve one problem."""
        return self.solve(problem=problem)


class LiveBenchMath(Program):
    """Solve a problem of LiveBench-Math.

    question ─► solve ─► answer

    Source: the LiveBench-Math program of GEPA's artifact.
    """

    solve = Module("question -> reasoning, answer", "Solve the question and provide the answer in the correct format.", max_tokens=4096)

    def forward(self, question: str) -> Outputs:
        """Solve one problem."""
        return self.solve(question=question)
