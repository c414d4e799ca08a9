"""Multi-hop search: the two retrieval programs of the GEPA paper (arXiv 2507.19457, section 4)."""

from __future__ import annotations

from gepa_lite.lm.resolve import LMSpec
from gepa_lite.program.module import Module
from gepa_lite.program.outputs import Outputs
from gepa_lite.program.program import Program

from .retrieval import Search


class HotpotMultiHop(Program):
    """Answer a question from two searches.

    question ─► search(7) ─► summarize1 ─► create_query_hop2 ─► search(7) ─► summarize2 ─► final_answer ─► answer

    Source: the HotpotQA program of GEPA's artifact; its order of modules (which is the order of turns) and its seed prompts, which only list the fields.

    Args:
        search: finds documents, e.g. ``BM25(documents)``.
        lm: the model.
        k: documents a search.

    Example:
        >>> from gepa_lite.testing import ScriptedLM
        >>> lm = ScriptedLM(lambda request: '{"reasoning": "r", "query": "q", "answer": "yes", "summary": "s"}')
        >>> program = HotpotMultiHop(lambda query, k: [f"Title {query} | text"], lm)
        >>> program(question="Is it?").hops
        [['Title Is it? | text'], ['Title q | text']]
    """

    create_query_hop2 = Module(
        "question, summary_1 -> reasoning, query", "Given the fields `question`, `summary_1`, produce the fields `query`.", max_tokens=512
    )
    final_answer = Module(
        "question, summary_1, summary_2 -> reasoning, answer",
        "Given the fields `question`, `summary_1`, `summary_2`, produce the fields `answer`.",
        max_tokens=512,
    )
    summarize1 = Module(
        "question, passages: list[str] -> reasoning, summary", "Given the fields `question`, `passages`, produce the fields `summary`."
    )
    summarize2 = Module(
        "question, context, passages: list[str] -> reasoning, summary",
        "Given the fields `question`, `context`, `passages`, produce the fields `summary`.",
    )

    def __init__(self, search: Search, lm: LMSpec | None = None, *, k: int = 7) -> None:
        super().__init__(lm)
        self.search, self.k = search, k

    def forward(self, question: str) -> Outputs:
        """Search, sum up, search for what is missing, answer. ``hops`` are the documents of each search."""
        hop1 = list(self.search(question, self.k))
        summary_1 = self.summarize1(question=question, passages=hop1).summary
        query = self.create_query_hop2(question=question, summary_1=summary_1).query
        hop2 = list(self.search(query, self.k))
        summary_2 = self.summarize2(question=question, context=summary_1, passages=hop2).summary
        answer = self.final_answer(question=question, summary_1=summary_1, summary_2=summary_2).answer
        return Outputs(answer=answer, hops=[hop1, hop2])


class HoverMultiHop(Program):
    """Find the documents that a claim rests on, by three searches.

    claim ─► search(7) ─► summarize1 ─► create_query_hop2 ─► search(7) ─► summarize2 ─► create_query_hop3 ─► search(10) ─► documents

    Source: the HoVer program of GEPA's artifact; order of modules and seed prompts as there.

    Args:
        search: finds documents, e.g. ``BM25(documents)``.
        lm: the model.
        k: documents of the first two searches.
        k_last: documents of the third.

    Example:
        >>> from gepa_lite.testing import ScriptedLM
        >>> lm = ScriptedLM(lambda request: '{"reasoning": "r", "query": "q", "summary": "s"}')
        >>> len(HoverMultiHop(lambda query, k: [query] * k, lm)(claim="It is.").documents)
        24
    """

    create_query_hop2 = Module(
        "claim, summary_1 -> reasoning, query", "Given the fields `claim`, `summary_1`, produce the fields `query`.", max_tokens=512
    )
    create_query_hop3 = Module(
        "claim, summary_1, summary_2 -> reasoning, query",
        "Given the fields `claim`, `summary_1`, `summary_2`, produce the fields `query`.",
        max_tokens=512,
    )
    summarize1 = Module(
        "claim, passages: list[str] -> reasoning, summary", "Given the fields `claim`, `passages`, produce the fields `summary`."
    )
    summarize2 = Module(
        "claim, context, passages: list[str] -> reasoning, summary",
        "Given the fields `claim`, `context`, `passages`, produce the fields `summary`.",
    )

    def __init__(self, search: Search, lm: LMSpec | None = None, *, k: int = 7, k_last: int = 10) -> None:
        super().__init__(lm)
        self.search, self.k, self.k_last = search, k, k_last

    def forward(self, claim: str) -> Outputs:
        """Search, sum up, and search for what is missing, twice. ``hops`` are the documents of each search."""
        hop1 = list(self.search(claim, self.k))
        summary_1 = self.summarize1(claim=claim, passages=hop1).summary
        hop2 = list(self.search(self.create_query_hop2(claim=claim, summary_1=summary_1).query, self.k))
        summary_2 = self.summarize2(claim=claim, context=summary_1, passages=hop2).summary
        hop3 = list(self.search(self.create_query_hop3(claim=claim, summary_1=summary_1, summary_2=summary_2).query, self.k_last))
        return Outputs(documents=[*hop1, *hop2, *hop3], hops=[hop1, hop2, hop3])
