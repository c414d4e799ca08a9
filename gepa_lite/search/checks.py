"""What each field of a record of settings may be, and those of ``Search``. A field without an entry in ``CHECKS`` is an error of ours, and a test says so."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from gepa_lite.core.feedback import Objective
from gepa_lite.errors import UsageError
from gepa_lite.guard.options import MODES, Guard
from gepa_lite.search.accept import ACCEPTANCE
from gepa_lite.search.reflect import ReflectionLimits
from gepa_lite.search.select import SELECTORS

OBJECTIVES = ("prompt_tokens",)
"""Objectives that are known without a feedback function: see ``Search.objectives``."""


@dataclass(frozen=True, slots=True)
class Check:
    """What a field may be.

    Attributes:
        expected: in words, as they end the sentence "... is needed".
        holds: whether a value is one of these.
        names: the names that the field takes, for near matches.
    """

    expected: str
    holds: Callable[[Any], bool]
    names: Collection[str] = ()


def check_fields(record: Any, checks: Mapping[str, Check]) -> None:
    """Hold every field of a record to its check.

    Raises:
        UsageError: names the record and the field, what came, and what is needed.
    """
    for item in dataclasses.fields(record):
        value, check = getattr(record, item.name), checks[item.name]
        if not check.holds(value):
            near = difflib.get_close_matches(value, check.names, n=1) if isinstance(value, str) else []
            hint = f" Did you mean {near[0]!r}?" if near else ""
            came = f"{type(record).__name__}({item.name}={_short(value)})"
            raise UsageError(f"{came}: {check.expected} is needed.{hint}")


def check_names(kind: type, names: Iterable[str]) -> None:
    """Refuse options that a record does not have.

    Raises:
        UsageError: names the option and its near match.
    """
    known = [item.name for item in dataclasses.fields(kind)]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(known)}."
            raise UsageError(f"{kind.__name__} has no rule {name!r}. {hint}")


def check_settings(name: str, rule: object) -> None:
    """Refuse a rule of the user's whose settings can't be kept with the run: a resume would never find them the same.

    Raises:
        UsageError: names the setting.
    """
    for item in dataclasses.fields(rule) if dataclasses.is_dataclass(rule) else ():
        value = getattr(rule, item.name)
        if not _is_plain(value):
            kind = type(rule).__name__
            raise UsageError(
                f"Search({name}={kind}(...)): its setting {item.name} is {_short(value)}, which can't be kept with the run. Numbers, texts, lists and mappings of them, and frozen dataclasses of these, can."
            )


def _is_plain(value: Any) -> bool:
    if value is None or isinstance(value, (str, bool, int)):
        return True
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(_is_plain, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return all(_is_plain(getattr(value, item.name)) for item in dataclasses.fields(value))
    return False


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _is_whole(value: Any, least: int | None = None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_rule(value: Any, names: Collection[str] = ()) -> bool:
    """A name, or an object whose settings can be part of the run's fingerprint."""
    if isinstance(value, str):
        return value in names
    return dataclasses.is_dataclass(value) and not isinstance(value, type) and callable(value)


def _is_schedule(value: Any) -> bool:
    if not isinstance(value, tuple):
        return _is_whole(value, 1)
    pairs = all(isinstance(part, tuple) and len(part) == 2 and _is_whole(part[0], 0) and _is_whole(part[1], 1) for part in value)
    starts = [part[0] for part in value] if pairs else []
    return bool(starts) and starts[0] == 0 and sorted(set(starts)) == starts


def count(least: int) -> Check:
    """A whole number of at least so many."""
    return Check(f"a whole number of at least {least}", partial(_is_whole, least=least))


def above(least: float) -> Check:
    """A number above a bound."""
    return Check(f"a number above {least:g}", lambda value: _is_number(value) and value > least)


def at_least(least: float) -> Check:
    """A number of at least so much."""
    return Check(f"a number of at least {least:g}", lambda value: _is_number(value) and value >= least)


def optional(check: Check) -> Check:
    """What a check holds of, or None."""
    return Check(f"{check.expected}, or None,", lambda value: value is None or check.holds(value), check.names)


def one_of(names: Collection[str], more: str = "", also: Callable[[Any], bool] = lambda value: False) -> Check:
    """One of some names, or what ``also`` holds of, which ``more`` says in words."""
    words = f"one of {', '.join(map(repr, sorted(names)))}{more}"
    return Check(words, lambda value: value in names if isinstance(value, str) else also(value), names)


def _rule(names: Collection[str], kind: str) -> Check:
    more = f" or an object of gepa_lite.search.{kind}, or a frozen dataclass of your own that can be called,"
    return Check(f"one of {', '.join(map(repr, sorted(names)))}{more}", partial(_is_rule, names=names), names)


TRUTH = Check("True or False", lambda value: isinstance(value, bool))

CHECKS: Mapping[str, Check] = {
    "seed": Check("a whole number", _is_whole),
    "minibatch": Check(
        "a whole number of at least 1, or pairs (from proposal, size), the first from 0, in rising order, such as ((0, 3), (40, 6)),",
        _is_schedule,
    ),
    "sampling": one_of(("epoch", "hard")),
    "fan": one_of(("auto",), " or a whole number of at least 1", partial(_is_whole, least=1)),
    "window": count(1),
    "overlap": TRUTH,
    "patience": Check("a number of seconds above 0, or None to wait,", lambda value: value is None or (_is_number(value) and value > 0)),
    "repeats": count(1),
    "selector": _rule(SELECTORS, "select"),
    "frontier": one_of(("example", "objective", "hybrid", "product")),
    "modules": one_of(("round_robin", "all", "blame")),
    "accept": _rule(ACCEPTANCE, "accept"),
    "validation": one_of(("full", "staged")),
    "validation_block": count(1),
    "validation_bound": Check("a probability of at least 0 and below 1", lambda value: _is_number(value) and 0 <= value < 1),
    "merge": one_of(("none", "paper", "complementary"), ", True or False"),
    "merge_attempts": count(1),
    "merge_give_up": count(1),
    "skip_perfect": TRUTH,
    "reuse": TRUTH,
    "horizon": one_of(("adaptive", "episode"), " or a whole number of at least 0", partial(_is_whole, least=0)),
    "proposer": one_of(("auto", "rewrite", "edit")),
    "edit_words": count(1),
    "mixing": one_of(("weights", "bandit")),
    "plateau": count(0),
    "stop": Check(
        "a rule of gepa_lite.search.stop_rules such as ScoreReached(0.9), or a list of them,", lambda value: all(map(_is_rule, value))
    ),
    "objective": Check("a gl.Objective(direction=, range=)", lambda value: isinstance(value, Objective)),
    "reflection_template": Check("a Jinja2 text, or None for ours,", lambda value: value is None or isinstance(value, str)),
    "reflection_limits": Check(
        "a ReflectionLimits(examples=, value_chars=, tokens=) of gepa_lite.search.reflect",
        lambda value: isinstance(value, ReflectionLimits),
    ),
    "reflection_tokens": count(1),
    "reflection_temperature": Check(
        "a number of at least 0, or None to leave it to the endpoint,", lambda value: value is None or (_is_number(value) and value >= 0)
    ),
    "max_prompt_tokens": count(1),
    "guard": one_of(MODES, " or a gl.Guard(...)", lambda value: isinstance(value, Guard)),
    "objectives": Check(
        "a list of names (there is 'prompt_tokens'; objectives of your own come with Feedback(objectives={...}))",
        lambda value: isinstance(value, tuple) and all(name in OBJECTIVES for name in value),
        OBJECTIVES,
    ),
    "prefer": one_of(("score", "short")),
    "shorten": count(0),
    "pins": Check("a list of examples, or of ids of validation examples,", lambda value: isinstance(value, tuple)),
    "require": Check("'improved' or None", lambda value: value in (None, "improved"), ("improved",)),
    "milestones": count(1),
    "start": Check(
        "the path of a bundle, a registry, a run or prompt files, or texts by module path,",
        lambda value: value is None or isinstance(value, (str, Mapping)) or hasattr(value, "__fspath__"),
    ),
    "store_messages": TRUTH,
    "coverage": Check("a share above 0, up to 1,", lambda value: _is_number(value) and 0 < value <= 1),
}
"""By field."""
