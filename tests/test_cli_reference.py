"""docs/cli.md says what the command line says."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_the_reference_is_what_the_generator_writes() -> None:
    generator = runpy.run_path(str(DOCS / "generate_cli.py"))
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == generator["reference"](), "run: python docs/generate_cli.py"


def test_every_option_has_a_help_text() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert ": None" not in text
    for command in (
        "run",
        "check",
        "estimate",
        "resume",
        "show",
        "blame",
        "measures",
        "report",
        "plot",
        "demo",
        "models",
        "models fetch",
        "models remove",
    ):
        assert f"## `gepa-lite {command}" in text
