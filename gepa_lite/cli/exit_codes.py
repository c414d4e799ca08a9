"""What the command line's exit codes mean; the only place that says so, ``docs/cli.md`` included."""

from __future__ import annotations

from enum import IntEnum

from gepa_lite.errors import GepaLiteError, RunLockedError, UsageError


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    RUN = 3
    LOCKED = 4
    NOT_IMPROVED = 5
    CHECK_FAILED = 6
    ROLL_BACK = 7
    OPTIMIZE_AGAIN = 8
    UNDECIDED = 9
    INTERRUPTED = 130


MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "the command did what it was asked",
    ExitCode.UNEXPECTED: "an unexpected error, with its traceback: please report it",
    ExitCode.USAGE: "a wrong argument, option, config file or set-up; nothing was paid for",
    ExitCode.RUN: "the run can't go on: models are down or can't be fetched, the feedback function failed, the run's file can't be written",
    ExitCode.LOCKED: "another process is writing to this run",
    ExitCode.NOT_IMPROVED: "--require-improved was given, and the verdict is another one",
    ExitCode.CHECK_FAILED: "`gepa-lite check` found something that would waste a run",
    ExitCode.ROLL_BACK: "recheck: the shipped prompts score below their seed",
    ExitCode.OPTIMIZE_AGAIN: "recheck: the shipped prompts score below what they were shipped with",
    ExitCode.UNDECIDED: "recheck: too many examples have no score",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C; what was paid is kept, and the run can be resumed",
}


def code_of(error: GepaLiteError) -> ExitCode:
    """The exit code for an error of ours."""
    if isinstance(error, UsageError):
        return ExitCode.USAGE
    # the wiring pulls in numpy, which a wrong option should not wait for
    from gepa_lite.session import InterruptedRunError

    if isinstance(error, InterruptedRunError):
        return ExitCode.INTERRUPTED
    return ExitCode.LOCKED if isinstance(error, RunLockedError) else ExitCode.RUN
