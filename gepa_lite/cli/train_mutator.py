"""``gepa-lite train-mutator``: a small model that rewrites prompts, trained on recorded runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from gepa_lite.cli.options import Json, Quiet


def train_mutator(  # noqa: PLR0913 - a command has as many parameters as options
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Names or folders of runs, and files of `gepa-lite export RUN --format transitions`."),
    ],
    *,
    to: Annotated[Path, typer.Option("--to", "--out", "-o", metavar="FOLDER", help="The folder for the adapter.")],
    base: Annotated[
        str,
        typer.Option(metavar="MODEL", help="The model to train: a name of `gepa-lite models`, a .gguf file, or a folder of transformers."),
    ] = "smollm2-135m",
    epochs: Annotated[int, typer.Option(metavar="N", help="Times that each reply is trained on.")] = 2,
    learning_rate: Annotated[float, typer.Option(metavar="X", help="The highest one; it falls as a cosine.")] = 2e-4,
    batch: Annotated[int, typer.Option(metavar="N", help="Replies an update.")] = 4,
    max_length: Annotated[int, typer.Option(metavar="N", help="Tokens of question and reply; longer records are left out.")] = 2048,
    held_out: Annotated[float, typer.Option(metavar="SHARE", help="Share of the replies kept from training to measure the loss on.")] = 0.1,
    min_gain: Annotated[float, typer.Option(metavar="X", help="Learn from replies that gained more than this on their minibatch.")] = 0.0,
    min_records: Annotated[int, typer.Option(metavar="N", help="Refuse to train on fewer replies.")] = 8,
    preferences: Annotated[bool, typer.Option("--preferences", help="Then train on pairs of a better and a worse reply (DPO).")] = False,
    seed: Annotated[int, typer.Option(metavar="N", help="Of all that is drawn.")] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a small model to rewrite prompts, on the replies in runs that improved a prompt.

    The result serves as reflection model: --reflection-lm policy/FOLDER. Says which records were kept, and which filter left out how many. A training that was broken off goes on with the same command.
    Needs pip install 'gepa-lite[rl]'. See docs/mutators.md.
    """
    from gepa_lite.cli.output import answer, answer_json, say
    from gepa_lite.mutator.settings import Tuning
    from gepa_lite.mutator.training import train_mutator as train

    tuning = Tuning(
        epochs=epochs,
        learning_rate=learning_rate,
        batch=batch,
        max_length=max_length,
        held_out=held_out,
        min_gain=min_gain,
        min_records=min_records,
        preferences=preferences,
        seed=seed,
    )

    def told(stage: str, step: int, steps: int, loss: float) -> None:
        say(f"{stage} {step}/{steps}: loss {loss:.3f}")

    trained = train(runs, to, base=base, tuning=tuning, progress=None if quiet else told)
    if as_json:
        answer_json(dataclasses.asdict(trained))
    else:
        answer(str(trained))
