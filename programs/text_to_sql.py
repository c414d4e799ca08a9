"""Text to SQL: a draft, and a repair where the database refuses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gepa_lite.lm.resolve import LMSpec
from gepa_lite.program.module import Module
from gepa_lite.program.outputs import Outputs
from gepa_lite.program.program import Program
from gepa_lite.sandbox.sql import Database


class TextToSQL(Program):
    """Write an SQLite query for a question.

    question, schema ─► draft ─► the database ─► error? ─► repair ─► sql

    Source: our own, for Spider-like data. The database is read-only and has a time limit.

    Args:
        database: the SQLite file of a ``db_id``.
        lm: the model.
        seconds: time limit of a query.

    Raises:
        UsageError: from a call, where there is no such file.
    """

    draft = Module("question, schema -> sql", "Write one SQLite query that answers the question. Give the query alone.", max_tokens=300)
    repair = Module(
        "question, schema, sql, error -> fixed_sql",
        "The query fails with the error. Write it anew so that it runs. Give the query alone.",
        max_tokens=300,
    )

    def __init__(self, database: Callable[[str], str | Path], lm: LMSpec | None = None, *, seconds: float = 5.0) -> None:
        super().__init__(lm)
        self.database, self.seconds = database, seconds

    def forward(self, question: str, db_id: str) -> Outputs:
        """Draft a query, run it, and repair it once where it fails; ``error`` is the draft's."""
        database = Database(Path(self.database(db_id)), self.seconds)
        schema = database.schema
        sql = self.draft(question=question, schema=schema).sql
        error = database.query(_bare(sql)).error
        if error:
            sql = self.repair(question=question, schema=schema, sql=sql, error=error).fixed_sql
        return Outputs(sql=_bare(sql), error=error)


def _bare(sql: str) -> str:
    """Without a fence and the closing semicolon."""
    if "```" in sql:
        sql = sql.split("```")[1].removeprefix("sqlite").removeprefix("sql")
    return sql.strip().rstrip(";").strip()
