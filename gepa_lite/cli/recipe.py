"""How to build a run again: what ``run`` leaves in the run's folder, and what ``optimize`` does (see ``gepa_lite.origin``)."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gepa_lite.cli.config import RunConfig, make_record
from gepa_lite.cli.targets import import_from, load_program, load_target
from gepa_lite.errors import StoreError, UsageError

if TYPE_CHECKING:
    from gepa_lite.api import Prepared
    from gepa_lite.core.budget import Budget


class Recipe(BaseModel):
    """Everything of a run but its examples and its budget, which the run's own file holds.

    Attributes:
        kind: ``"cli"`` or ``"python"``: who started it.
        program: ``module:name``; None where it can't be imported.
        prompts: texts that replace the program's own, by module path.
        starts: further prompts to start from: paths that ``gepa_lite.starting`` reads, names of runs, or texts by module path.
        feedback: ``module:name``; None for the program's own method.
        lm: the model of all modules that name none.
        reflection_lm: who rewrites, or models with their weights; None for the program's model.
        search: fields of ``gl.Search``.
        contract: fields of ``gl.Contract`` by module path.
        prices: USD per million input and output tokens, by model.
        workers: as ``optimize`` takes them.
        trackers: names of trackers that are told of each session.
        out: where to write the prompts of the finished run.
        imports: folders to import from.
        obstacle: why it can't be built again, in words.
        script: the script that was started.
        module: the module that was started with ``python -m``.
        argv: its arguments.
        folder: where it was started.
    """

    # a later release may keep more
    model_config = ConfigDict(extra="ignore", frozen=True)

    kind: Literal["cli", "python"]
    program: str | None
    prompts: dict[str, str] = Field(default_factory=dict)
    starts: list[dict[str, str] | str] = Field(default_factory=list)
    feedback: str | None = None
    lm: str | None = None
    reflection_lm: str | dict[str, float] | None = None
    search: dict[str, Any] = Field(default_factory=dict)
    contract: dict[str, dict[str, Any]] = Field(default_factory=dict)
    prices: dict[str, list[float]] = Field(default_factory=dict)
    workers: int | str = 16
    trackers: list[str] = Field(default_factory=list)
    out: Path | None = None
    imports: list[Path] = Field(default_factory=list)
    obstacle: str | None = None
    script: str | None = None
    module: str | None = None
    argv: list[str] = Field(default_factory=list)
    folder: Path | None = None

    def kept(self) -> dict[str, Any]:
        """As JSON types, for the run's meta."""
        return self.model_dump(mode="json")

    def fixed(self, starts: Iterable[Mapping[str, str]]) -> Recipe:
        """The same with the texts of all starts, so that a resume needs no file of theirs."""
        search = {name: value for name, value in self.search.items() if name != "start"}
        return self.model_copy(update={"starts": [dict(texts) for texts in starts], "search": search})

    def begun_with(self, rules: Mapping[str, Any]) -> Recipe:
        """The same with every rule that was not chosen as the run has it, so that a release with another default goes on with an older one's run.

        Args:
            rules: as the run's first event tells them (``Search.fingerprint``).
        """
        from gepa_lite.search.search import Search

        names = {item.name for item in dataclasses.fields(Search)}
        plain = {name: value for name, value in rules.items() if name in names and isinstance(value, (bool, int, float, str))}
        return self.model_copy(update={"search": {**plain, **self.search}})

    def make_program(self) -> Any:
        """The program, of whatever kind ``optimize`` takes.

        Raises:
            UsageError: it can't be imported or made.
        """
        import_from([Path.cwd(), *self.imports])
        if self.program is None:
            raise UsageError(f"the program can't be built again: {self.obstacle}.")
        program = load_program(self.program, self.lm)
        return program.with_prompts(self.prompts) if self.prompts else program

    def prepare(self, train: Any, validation: Any, test: Any, budget: Budget | None, curve: Any = None) -> Prepared:
        """The checked run, which has cost nothing yet; the arguments are ``optimize``'s.

        Raises:
            UsageError: something is wrong with it.
        """
        from gepa_lite.api import prepare
        from gepa_lite.core.contract import Contract
        from gepa_lite.search.search import Search

        search = make_record(Search, self.search, "search")
        program = self.make_program()
        return prepare(
            [program, *self.starts],
            train,
            validation,
            testset=test,
            curveset=curve,
            feedback=None if self.feedback is None else load_target(self.feedback, "feedback"),
            reflection_lm=self.reflection_lm,
            budget=budget,
            search=search,
            contract={path: make_record(Contract, table, f"contract.{path}") for path, table in self.contract.items()} or None,
            prices=self.prices or None,
            workers=self.workers,
        )

    def command(self) -> str | None:
        """The command that started a Python run, for a shell; None where there was no script."""
        if self.module is not None:
            words = ["python", "-m", self.module.removesuffix(".__main__"), *self.argv]
        elif self.script is not None:
            words = ["python", self.script, *self.argv]
        else:
            return None
        folder = "" if self.folder is None or self.folder == Path.cwd() else f"cd {shlex.quote(str(self.folder))} && "
        return folder + shlex.join(words)


def recipe_of(config: RunConfig, file: Path | None) -> Recipe:
    """The recipe of a config; modules are imported from the current folder and from the config file's."""
    folders = [Path.cwd(), *([] if file is None else [file.absolute().parent])]
    return Recipe(
        kind="cli",
        program=config.program,
        starts=[str(path.absolute() if path.exists() else path) for path in config.start],
        feedback=config.feedback,
        lm=config.lm,
        reflection_lm=config.reflection_lm,
        # pins may be examples
        search={name: rule for name, rule in config.search.items() if name != "pins" or config.search.get("store_messages", True)},
        contract=config.contract,
        prices=config.prices,
        workers=config.workers,
        trackers=config.trackers,
        out=None if config.out is None else config.out.absolute(),
        imports=list(dict.fromkeys(folders)),
        folder=Path.cwd(),
    )


def read_recipe(kept: Any, folder: Path) -> Recipe:
    """The recipe that a run's meta holds.

    Args:
        kept: the entry.
        folder: of the run, for the message.

    Raises:
        UsageError: the run has none.
        StoreError: it is not a recipe.
    """
    if kept is None:
        raise UsageError(f"The run in {folder} does not say how it was started: start it again by the same call with run={str(folder)!r}.")
    try:
        return Recipe.model_validate(kept)
    except ValidationError as error:
        raise StoreError(
            f"The run in {folder} has a config that can't be read: {error.errors()[0]['msg']}. Start it again by the same call."
        ) from error
