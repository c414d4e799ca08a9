"""The seam between a run and whatever it optimizes: a ``gl.Program``, a dspy program, a plain function with prompts.

A run knows an optimizable by its parts (the texts that may change) and by ``run``; what stands behind them is the adapter's own.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from gepa_lite.core.call import Trace
from gepa_lite.core.contract import Contract
from gepa_lite.core.example import Example
from gepa_lite.errors import ModelError, UsageError
from gepa_lite.lm.protocol import LM
from gepa_lite.program.recorder import CallModel


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a program: what it returned or raised, and its trace.

    ``outage`` is the first model failure that was the world's fault, also where the program caught it: such a run is never scored.
    """

    output: Any
    error: Exception | None
    trace: Trace
    outage: ModelError | None


@dataclass(frozen=True, slots=True)
class Frame:
    """What a part's prompt is sent in, where that is the same on every call: a system message that begins with the prompt, and a user message of the inputs.

    Attributes:
        after: what follows the prompt in the system message.
        inputs: the inputs that the user message shows, in order.
    """

    after: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One text that may be rewritten: a module of the program.

    Attributes:
        text: as it stands in this program.
        signature: its inputs and outputs in one line; kept in the bundle.
        fingerprint: a hash of what the text must fit (names, types, direction of its fields). A bundle made for another one is refused.
        words: what goes in and out, in words for the reflection model.
        model: the name of the model it is sent to; "" where that is not known beforehand.
        contract: what every text of this part must keep to.
        params: how it is sampled, as far as the program says so; kept in the bundle.
        frame: the messages around the text; None where only the user's own code, or its framework, knows them.
        setting: True where the text is no prompt but names something else that a candidate has, e.g. trained weights: a bundle keeps it apart.
    """

    text: str
    signature: str
    fingerprint: str
    words: str
    model: str = ""
    contract: Contract = field(default_factory=Contract)
    params: Mapping[str, Any] = field(default_factory=dict)
    frame: Frame | None = None
    setting: bool = False


class Optimizable(Protocol):
    """What a run needs of a program. An implementation is never changed by a run, and ``run`` is called from many threads at once."""

    @property
    def name(self) -> str:
        """What to call it: names the run's folder and the bundle."""
        ...

    @property
    def purpose(self) -> str:
        """What it is for, in words for the reflection model; "" where nothing says so."""
        ...

    @property
    def notices(self) -> Sequence[str]:
        """What a person should know of how it is taken, e.g. what of it stays as it is."""
        ...

    @property
    def parts(self) -> Mapping[str, Part]:
        """The texts by module path, at least one, always in the same order."""
        ...

    @property
    def prompts(self) -> dict[str, str]:
        """The text of each part, by path."""
        ...

    @property
    def models(self) -> Mapping[str, LM]:
        """The models it calls, by module path where that is known; the first reflects where no reflection model is given. Opening one costs nothing."""
        ...

    @property
    def metered(self) -> bool:
        """Whether all its model calls reach the run, so that tokens and dollars can be held to a budget."""
        ...

    @property
    def calls_held(self) -> bool:
        """Whether every model call of its reaches the run before it is made: only then is a hang told from a model that does not answer."""
        ...

    @property
    def fingerprint(self) -> str:
        """A hash of what fixes its behaviour beside texts and models; a resumed run must have the same."""
        ...

    @property
    def deliverable(self) -> Any:
        """What a user gets as ``result.program``: of the type that came in, with these texts, and free of anything of the run's."""
        ...

    def with_prompts(self, prompts: Mapping[str, str]) -> Self:
        """The same with these texts; parts that are not named keep theirs.

        Raises:
            UsageError: a path it does not have, or a text it can't take.
        """
        ...

    def run(self, inputs: Mapping[str, Any], call: CallModel | None = None) -> Execution:
        """Run it on an example's inputs and keep the trace, also of a failure.

        Every model call it can reach goes through ``call``. An exception of the program is returned, a ``UsageError`` or ``RunError`` is raised, also one that the program caught.
        """
        ...

    def open(self, spec: Any) -> LM:
        """The LM that a user means by a name, a function or an object; the same one each time.

        Raises:
            UsageError: it is no model.
        """
        ...

    def examples(self, source: Any, what: str) -> Sequence[Example]:
        """A user's examples, with inputs told from labels.

        Raises:
            UsageError: it can't be read, or a row lacks an input; ``what`` names the set.
        """
        ...

    def judged_by(self, feedback: Callable[..., Any] | None) -> Callable[..., Any]:
        """The feedback function in our form, ``(example, output, trace)`` or ``(example, output)``; the program's own where None is given.

        Raises:
            UsageError: there is none, or it can't be called in this way.
        """
        ...

    def sendable(self) -> Self:
        """Itself in a form that can be pickled by value into a worker process, its models as ``LM`` objects.

        Raises:
            UsageError: it can't run there.
        """
        ...


def check_parts(program: Optimizable, prompts: Mapping[str, Any], what: str) -> None:
    """Refuse texts for parts that a program does not have, and texts that are no text.

    Raises:
        UsageError: names the path, with near matches, or the type that came.
    """
    known = program.parts
    for path, text in prompts.items():
        if path not in known:
            near = difflib.get_close_matches(path, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"{what}: {program.name} has no module {path!r}; it has {', '.join(map(repr, known)) or 'none'}.{hint}")
        if not isinstance(text, str):
            raise UsageError(f"{what}: the text of {path!r} is of type {type(text).__name__}; a str is needed.")
