"""Judge SQL by what it gives: the rows beside those of the right query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gepa_lite.core.example import Example
from gepa_lite.core.feedback import Feedback
from gepa_lite.errors import UsageError
from gepa_lite.sandbox.sql import Database, Rows

from .match import FieldFeedback, shown

_SHOWN_ROWS = 3


def sql_execution(
    database: str | Path | Callable[[Example], str | Path],
    field: str = "sql",
    label: str = "query",
    *,
    ordered: str | None = None,
    seconds: float = 5.0,
) -> FieldFeedback:
    """A feedback function: 1 where the query gives the rows of the right one (as a multiset, or in order), else 0, with the difference in words.

    Both run on a read-only connection with a time limit (``gepa_lite.sandbox.sql``). Column names don't count; their order does. Floats are compared to 9 digits.

    Args:
        database: the SQLite file, or a function of the example that names it.
        field: the output field with the query.
        label: the label with the right query.
        ordered: a label that is true where the order of rows counts; None for never.
        seconds: time limit of each query.

    Raises:
        UsageError: from the function, where the right query itself fails.

    Example:
        ``sql_execution(lambda example: f"databases/{example['db_id']}.sqlite", ordered="order_matters")``
    """

    def feedback(example: Example, output: Any) -> Feedback:
        path = database(example) if callable(database) else database
        opened = Database(Path(path), seconds)
        gold = opened.query(str(example[label]))
        if gold.error:
            raise UsageError(
                f"sql_execution: the right query of an example fails on {path}: {gold.error}. The query is {example[label]!r}."
            )
        text = statement(str(output[field]))
        came = opened.query(text)
        right = f"The right query is: {example[label]}"
        if came.error:
            return Feedback(0.0, f"The query fails: {came.error}. It was: {shown(text, 500)}. {right}")
        problems = _differences(gold, came, bool(ordered and example[ordered]))
        if not problems:
            return Feedback(1.0, "Right: the query gives the right rows.")
        return Feedback(0.0, f"Wrong rows. {' '.join(problems)} It was: {shown(text, 500)}. {right}")

    return feedback


def statement(text: str) -> str:
    r"""The SQL of a reply: without a fence around it, and without its closing semicolon.

    >>> statement("```sql\nSELECT 1;\n```")
    'SELECT 1'
    """
    if "```" in text:
        text = text.split("```")[1]
        text = text.split("\n", 1)[1] if "\n" in text else text
    return text.strip().rstrip(";").strip()


def _differences(gold: Rows, came: Rows, ordered: bool) -> list[str]:
    wanted, found = ([tuple(map(_form, row)) for row in rows.rows] for rows in (gold, came))
    if (wanted == found) if ordered else (Counter(wanted) == Counter(found)):
        return []
    if len(gold.columns) != len(came.columns):
        return [
            f"It has {len(came.columns)} columns ({', '.join(came.columns)}); the right one has {len(gold.columns)} ({', '.join(gold.columns)})."
        ]
    if Counter(wanted) == Counter(found):
        return ["The rows are right, their order is not: the question asks for an order."]
    if (
        any(sorted(map(str, row)) == sorted(map(str, other)) for row in wanted[:1] for other in found[:1])
        and len(gold.columns) > 1
        and wanted[0] != found[0]
    ):
        return ["The values are right, in another order of columns."]
    words = []
    if len(wanted) != len(found):
        words.append(f"It gives {len(found)} rows; the right one gives {len(wanted)}.")
        if set(wanted) == set(found):
            words.append("The same rows occur, another number of times: mind DISTINCT and joins that multiply.")
    missing, surplus = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    for head, rows in (("Missing", missing), ("Too many", surplus)):
        if rows:
            listed = "; ".join(shown(row, 120) for row in list(rows)[:_SHOWN_ROWS])
            words.append(f"{head}: {listed}{f' and {rows.total() - _SHOWN_ROWS} more' if rows.total() > _SHOWN_ROWS else ''}.")
    return words


def _form(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) else value
