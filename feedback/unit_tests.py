"""Judge code that a model wrote by tests, in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.errors import UsageError
from gepa_lite.sandbox.sandbox import Call, Check, Ran, Sandbox

from .match import FieldFeedback, shown

_SHOWN = 4


def unit_tests(field: str = "code", label: str = "tests", *, sandbox: Sandbox | None = None) -> FieldFeedback:
    """A feedback function: the share of tests that the code passes, with each failed one in words.

    A test is a dict ``{"call": name, "args": [...], "expected": value}``, whose value is compared outside the sandbox, so that the code can't cheat; or a text,
    e.g. ``"assert double(2) == 4"``, which runs beside the code. Code that breaks out of the sandbox, or does not load, scores 0.

    Args:
        field: the output field with Python code, in a fence or not.
        label: the label with the list of tests.
        sandbox: limits; ``Sandbox()`` where it is None. Its time is for all tests of an example together.

    Raises:
        UsageError: nothing here can hold the code (see ``Sandbox.check_ready``); or, from the function, a test of neither form.

    Example:
        >>> judge = unit_tests(sandbox=Sandbox(unconfined=True))
        >>> row = Example("id", {}, {"tests": [{"call": "double", "args": [2], "expected": 4}, "assert double(0) == 0"]})
        >>> judge(row, {"code": "def double(n): return n * n"}).score
        1.0
    """
    box = sandbox or Sandbox()
    box.check_ready()

    def feedback(example: Example, output: Any) -> Feedback:
        tests = list(example[label])
        if not tests:
            raise UsageError(f"unit_tests: the label {label!r} of an example is empty; at least one test is needed.")
        ran = box.run(code_of(str(output[field])), [_step(test, label) for test in tests])
        failed = _failures(tests, ran)
        if ran.kind:
            reached = f" after {len(ran.steps)} of {len(tests)} tests" if ran.steps else ""
            return Feedback(0.0, f"The code failed{reached}: {ran.words}.{_printed(ran)}")
        if not failed:
            return Feedback(1.0, f"All {len(tests)} tests pass.")
        more = f" And {len(failed) - _SHOWN} more." if len(failed) > _SHOWN else ""
        return Feedback(
            1 - len(failed) / len(tests), f"{len(failed)} of {len(tests)} tests fail. {' '.join(failed[:_SHOWN])}{more}{_printed(ran)}"
        )

    return feedback


def code_of(text: str) -> str:
    r"""The Python code of a reply: what stands in its last fence, or the whole.

    >>> code_of("Here:\n```python\nx = 1\n```\nDone.")
    'x = 1'
    """
    if text.count("```") < 2:
        return text.replace("```python", "").replace("```", "").strip("\n")
    block = text.split("```")[-2 if text.count("```") % 2 == 0 else -1]
    first, _, rest = block.partition("\n")
    return (rest if first.strip().lower() in ("python", "py", "python3", "") else block).strip("\n")


def _step(test: Any, label: str) -> Call | Check:
    if isinstance(test, str):
        return Check(test)
    if isinstance(test, Mapping) and "call" in test and "expected" in test and isinstance(test.get("args", []), Sequence):
        return Call(str(test["call"]), tuple(test.get("args", [])))
    raise UsageError(
        f"unit_tests: a test of the label {label!r} is {test!r}; a text, or a dict with 'call', 'args' and 'expected', is needed."
    )


def _failures(tests: list[Any], ran: Ran) -> list[str]:
    words = []
    for test, step in zip(tests, ran.steps, strict=False):
        if isinstance(test, str):
            if step.error:
                words.append(f"{test} fails: {step.error}.")
            continue
        called = f"{test['call']}({', '.join(shown(arg, 80) for arg in test.get('args', []))})"
        if step.error:
            words.append(f"{called} fails: {step.error}.")
        elif not _same(test["expected"], step.value):
            words.append(f"{called} gives {shown(step.value, 120)}; {shown(test['expected'], 120)} is right.")
    return words


def _same(expected: Any, value: Any) -> bool:
    if isinstance(expected, bool) or isinstance(value, bool):
        return expected is value
    if isinstance(expected, (int, float)) and isinstance(value, (int, float)):
        return abs(expected - value) <= 1e-9 * max(1.0, abs(expected))
    if isinstance(expected, (list, tuple)) and isinstance(value, list):
        return len(expected) == len(value) and all(map(_same, expected, value))
    if isinstance(expected, Mapping) and isinstance(value, dict):
        return {str(key) for key in expected} == set(value) and all(_same(item, value[str(key)]) for key, item in expected.items())
    return bool(expected == value)


def _printed(ran: Ran) -> str:
    return f" It printed {shown(ran.printed, 200)}." if ran.printed.strip() else ""
