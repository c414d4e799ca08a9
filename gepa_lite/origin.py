"""Where a run came from: what ``gepa-lite resume`` needs to build the same run again, or to say who can.

An origin is kept in the run's meta under ``ORIGIN_KEY``. It decides nothing: whether a rebuilt run is the same one, ``session.check_same_run`` says.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gepa_lite.core.feedback import Objective
from gepa_lite.core.ids import jsonable
from gepa_lite.executors.workers import WorkersSpec
from gepa_lite.guard.options import Guard
from gepa_lite.lm.resolve import LMSpec
from gepa_lite.program.module import Module
from gepa_lite.program.program import Program
from gepa_lite.rollouts.judge import FeedbackFunction
from gepa_lite.search.reflect import ReflectionLimits
from gepa_lite.search.search import Search

ORIGIN_KEY = "config"
"""The meta entry that holds a run's origin."""

# what Program itself keeps on an instance
_OWN_ATTRIBUTES = frozenset({"_lm", "_lms", "_texts", "_opened", "_bindings"})
_SECRET_NAME = re.compile(r"key|token|secret|password|credential", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"\b(?:sk|pk|rk|ghp|hf|xai|gsk|AIza)[-_A-Za-z0-9]{12,}")


def python_origin(
    program: Any,
    feedback: FeedbackFunction | None,
    reflection_lm: LMSpec | Mapping[str, float] | None,
    search: Search,
    workers: WorkersSpec,
) -> dict[str, Any]:
    """The origin of a run that a Python program started, as JSON types.

    Args:
        program: as it was given.
        feedback: as it was given; None for the program's own method.
        reflection_lm: as it was given; None for the program's model.
        search: the rules.
        workers: as `optimize` takes them.

    Returns:
        ``program`` and ``feedback`` are ``module:name`` where that names the very object; ``obstacle`` says why the run can't be built
        again from here, or is None; ``script``, ``module``, ``argv`` and ``folder`` say what was started.
    """
    native = isinstance(program, Program)
    values = vars(program) if native else {}
    main = sys.modules.get("__main__")
    script, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    return {
        "kind": "python",
        "program": address_of(type(program)) if native else None,
        "lm": _named(values.get("_lm")),
        "prompts": dict(values.get("_texts") or {}),
        "feedback": None if feedback is None else address_of(feedback),
        "reflection_lm": {str(key): weight for key, weight in reflection_lm.items()}
        if isinstance(reflection_lm, Mapping)
        else _named(reflection_lm),
        "search": search_table(search),
        "workers": workers if isinstance(workers, int | str) else str(workers),
        "obstacle": _obstacle(program, feedback, reflection_lm, search),
        "script": None if script is None else str(Path(script).absolute()),
        "module": None if spec is None else spec.name,
        "argv": without_secrets(sys.argv[1:]),
        "folder": str(Path.cwd()),
        "imports": list(dict.fromkeys([str(Path(*sys.path[:1]).absolute()), str(Path.cwd())])),
    }


def search_table(search: Search) -> dict[str, Any]:
    """The fields of a search that are not at their defaults, as JSON types; the examples that it pins only where a run may keep examples.

    >>> search_table(Search(fan=8, minibatch=((0, 3), (40, 6))))
    {'minibatch': [[0, 3], [40, 6]], 'fan': 8}
    """
    hidden = () if search.store_messages else ("pins",)
    return {name: jsonable(value) for name, value in _chosen(search).items() if name not in hidden}


def address_of(value: Any) -> str | None:
    """``module:name`` of a class or function if another process finds the very object there, else None.

    >>> address_of(Program)
    'gepa_lite.program.program:Program'
    >>> address_of(lambda example, output: 1.0) is None
    True
    """
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not name or module == "__main__":
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is value else None


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """Command line arguments with what looks like a secret struck out: an origin is written to disk.

    >>> without_secrets(["--api-key", "abc", "--token=abc", "--seed", "3"])
    ['--api-key', '***', '--token=***', '--seed', '3']
    """
    kept: list[str] = []
    after_name = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        is_name = name.startswith("-") and _SECRET_NAME.search(name) is not None
        if after_name and not argument.startswith("-"):
            kept.append("***")
        elif is_name and equals:
            kept.append(f"{name}=***")
        else:
            kept.append(_SECRET_VALUE.sub("***", argument))
        after_name = is_name and not equals
    return kept


def _named(lm: LMSpec | None) -> str | None:
    return lm if isinstance(lm, str) else None


def _chosen(search: Search) -> dict[str, Any]:
    default = Search()
    values = {item.name: getattr(search, item.name) for item in dataclasses.fields(search)}
    # the texts of a bundle to start from are kept with the other starts
    return {name: value for name, value in values.items() if name != "start" and value != getattr(default, name)}


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold a value of a search and give it back."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return (
        value is None
        or isinstance(value, (str, int, float, Objective, ReflectionLimits))
        or (isinstance(value, Guard) and not value.detectors)
    )


def _obstacle(
    program: Any, feedback: FeedbackFunction | None, reflection_lm: LMSpec | Mapping[str, float] | None, search: Search
) -> str | None:
    """Why another process can't build the same run, in words, or None."""
    kind = type(program)
    if not isinstance(program, Program):
        return f"the program is an object of {kind.__module__}.{kind.__qualname__}, which only the script itself can make again"
    values = vars(program)
    if address_of(kind) is None:
        return f"the program {kind.__name__} is defined in the script itself, not in a module that can be imported"
    settings = [name for name, value in values.items() if name not in _OWN_ATTRIBUTES and not isinstance(value, Module)]
    if settings:
        return f"the program has attributes of its own ({', '.join(settings)}), which are not kept"
    if values.get("_lms"):
        return "single modules have models of their own (lms=...)"
    reflectors = list(reflection_lm) if isinstance(reflection_lm, Mapping) else [reflection_lm]
    for what, lm in (("the model", values.get("_lm")), *(("the reflection model", lm) for lm in reflectors)):
        if lm is not None and not isinstance(lm, str):
            return f"{what} was given as an object ({type(lm).__name__}), not by name"
    if feedback is not None and address_of(feedback) is None:
        return "the feedback function can't be imported from a module by its name"
    objects = [name for name, value in _chosen(search).items() if not _is_plain(value)]
    return f"search.{objects[0]} was given as an object, which is not kept" if objects else None
