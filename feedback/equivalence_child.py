"""What runs in the process beside ours: compares formulas by ``math-verify``, one JSON line in, one out. A script of its own, so that it can be killed."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any


def equal(gold: str, answer: str, *, up_to_constant: bool) -> bool:
    """Whether two LaTeX formulas are equal, or differ by a constant.

    Raises:
        ValueError: one can't be read.
    """
    from math_verify import LatexExtractionConfig, parse, verify

    found = [parse(f"$\\boxed{{{text}}}$", [LatexExtractionConfig()], parsing_timeout=None) for text in (gold, answer)]
    if not all(found):
        raise ValueError("it can't be read as LaTeX")
    if verify(found[0], found[1], timeout_seconds=None):
        return True
    return up_to_constant and _constant(found[0][0], found[1][0])


def _constant(one: Any, other: Any) -> bool:
    import sympy

    if not isinstance(one, sympy.Expr) or not isinstance(other, sympy.Expr):
        return False
    # by name: the parser's symbols carry assumptions
    x = next((symbol for symbol in one.free_symbols if symbol.name == "x"), None)
    # what else stands in an integral is its constant; a right "answer" without x is none (one label of the set reads "Aborted")
    return x is not None and bool(sympy.simplify(sympy.diff(one - other, x)) == 0)


def main() -> None:
    """Answer until the input ends."""
    logging.disable(logging.WARNING)  # it warns that its own time-outs are off: this process is killed instead
    import math_verify

    print(json.dumps({"ready": math_verify.__name__}), flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            reply = {"equal": equal(job["gold"], job["answer"], up_to_constant=job["up_to_constant"]), "problem": ""}
        except Exception as error:  # a library's trouble with a text is the text's
            reply = {"equal": False, "problem": str(error)[:200] or type(error).__name__}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
