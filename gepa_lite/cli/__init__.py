"""The command line: ``gepa-lite``, or ``python -m gepa_lite``. One file per command; ``app`` puts them together."""

from __future__ import annotations


def main() -> None:
    """Run the command line and end the process with one of ``exit_codes.ExitCode``."""
    from gepa_lite.cli.app import app

    app(prog_name="gepa-lite")
