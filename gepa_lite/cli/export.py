"""``gepa-lite export`` and ``gepa-lite import``: shipped prompts in another tool's form, and back; and a run as training data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gepa_lite.cli.options import Json

if TYPE_CHECKING:
    from gepa_lite.ship.result import Result

_ROWS = ("transitions", "sft", "preferences", "kto")
"""Forms of a run's course; the others are of its prompts."""


def export(  # noqa: PLR0913 - a command has as many parameters as options
    source: Annotated[
        str, typer.Argument(metavar="RUN|BUNDLE", help="A run's name or folder, a *.prompts.json file, or a registry's folder.")
    ],
    *,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="dspy, langchain, markdown, messages, mlflow or py; of a RUN also transitions, sft, preferences or kto.",
        ),
    ],
    to: Annotated[
        str, typer.Option("--to", "--out", "-o", metavar="PATH", help="The file or folder to write; for mlflow its tracking URI.")
    ],
    program: Annotated[
        str | None, typer.Option(metavar="MODULE:NAME", help="The program that will use the prompts; a run has its own.")
    ] = None,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="The run that a BUNDLE is of, to verify the export against.")] = None,
    verify: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Recorded examples to verify on; 10 by default, 0 verifies nothing.")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Also call the models, and compare scores with those inside the run.")] = False,
    feedback: Annotated[str | None, typer.Option(metavar="MODULE:NAME", help="The feedback function for --live.")] = None,
    as_json: Json = False,
) -> None:
    """Write shipped prompts in another tool's form, verified against what was sent inside the run.

    What was written is read back by the tool that it is for. On recorded examples its messages, and those of the program with the prompts that came back, its calls answered by recorded replies, must be
    byte-equal to those inside; a difference is shown and nothing is written. See docs/export.md.

    The forms transitions, sft, preferences and kto write the course of a RUN as JSON lines, to train a model that rewrites prompts; they are read from its file alone. See docs/trajectories.md.
    """
    from gepa_lite.bundle import load_prompts
    from gepa_lite.cli.output import answer, answer_json, only_the_answer
    from gepa_lite.cli.targets import import_from, load_program, load_target
    from gepa_lite.exports.exporting import export as write
    from gepa_lite.store.folders import find_run

    if form in _ROWS:
        given = {"--program": program, "--run": run, "--verify": verify, "--live": live or None, "--feedback": feedback}
        _write_rows(source, form, to, [name for name, value in given.items() if value is not None], as_json)
        return
    import_from([Path.cwd()])
    made = None if program is None else load_program(program, None)
    judge = None if feedback is None else load_target(feedback, "feedback")
    with only_the_answer(as_json):
        prompts = load_prompts(source) if _is_bundle(source) else _result(source, made)
        folder = None if run is None else find_run(run)
        done = write(prompts, form, to, program=made, run=folder, verify_on=verify, live=live, feedback=judge)
    if as_json:
        answer_json(dataclasses.asdict(done))
    else:
        answer(str(done))


def import_folder(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What `gepa-lite export --format markdown` wrote.")],
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The *.prompts.json file to write.")],
) -> None:
    """Read a folder of Markdown prompts back into a bundle, edited or not, held to its contract."""
    from gepa_lite.cli.output import answer
    from gepa_lite.exports.folder import import_prompts

    edited = import_prompts(folder, bundle).data.get("edited", [])
    answer(f"{bundle}: {f'edited by hand: {chr(44).join(edited)}; its scores are of the texts before' if edited else 'as it was exported'}")


_WHY_NONE = {
    "sft": "No row: no reply of this run was an improvement on its minibatch.",
    "preferences": "No row: nowhere does an improved reply stand beside one to the same module's same text that brought nothing. Runs of gepa-lite probe have such pairs.",
    "kto": "No row: no reply of this run improved its minibatch, or made it worse.",
}


def _write_rows(run: str, form: str, to: str, strangers: list[str], as_json: bool) -> None:
    """The course of a run as JSON lines; ``strangers`` are options that have no meaning here."""
    import json
    from collections import Counter

    from gepa_lite.cli.output import answer, answer_json
    from gepa_lite.errors import UsageError
    from gepa_lite.insight.training_rows import training_rows
    from gepa_lite.insight.transitions import transitions
    from gepa_lite.ship.atomic import write_atomically

    if strangers:
        raise UsageError(f"--format {form} takes no {', '.join(strangers)}: it reads the run's file alone.")
    records = transitions(run)
    rows = [_whole_text(json.dumps(row, ensure_ascii=False)) for row in training_rows(records, form)]
    write_atomically(Path(to), "".join(f"{row}\n" for row in rows))
    labels, dropped = Counter(record.label or "unmeasured" for record in records), Counter(r.dropped for r in records if r.dropped)
    if as_json:
        answer_json({"path": to, "rows": len(rows), "records": len(records), "labels": labels, "dropped": dropped})
        return
    counts = ", ".join(f"{count} {name}" for name, count in labels.most_common())
    marks = "".join(f", {count} {name}" for name, count in dropped.most_common())
    answer(f"{to}: {len(rows)} rows of {len(records)} records ({counts}{'; marked' + marks[1:] if marks else ''})")
    if not rows and records:
        answer(_WHY_NONE[form])


_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def _whole_text(text: str) -> str:
    r"""A line that UTF-8 and every reader of JSON lines takes: half a character, as a cut-off reply ends with one, becomes U+FFFD, and what some take for a line's end is escaped.

    >>> _whole_text("a\ud83d\ude00 b\ud83d") == "a\U0001f600 b\ufffd"
    True
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").translate(_LINE_ENDS)


def _is_bundle(source: str) -> bool:
    from gepa_lite.bundle import REGISTRY_FILE

    path = Path(source)
    return path.is_file() or (path / REGISTRY_FILE).is_file()


def _result(run: str, program: Any) -> Result[Any]:
    """The result of a run, with the program that it was started with unless another one is given."""
    from gepa_lite.adapters.adapt import adapt
    from gepa_lite.cli.recipe import read_recipe
    from gepa_lite.insight.stored import read_run
    from gepa_lite.ship.result import make_result
    from gepa_lite.store.folders import find_run

    stored = read_run(find_run(run))
    if program is None:
        program = read_recipe(stored.recipe, stored.folder).make_program()
    return make_result(adapt(program), stored.state, stored.search, stored.costs, interrupted=False, run=stored.folder, notices=())
