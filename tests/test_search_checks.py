"""Each field of ``Search`` is checked where it is made, before anything is paid for."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest

import gepa_lite as gl
from gepa_lite import api
from gepa_lite.core.events import Proposed
from gepa_lite.errors import UsageError
from gepa_lite.search.accept import Paired
from gepa_lite.search.checks import CHECKS
from gepa_lite.search.reflect import ReflectionLimits
from gepa_lite.search.select import Best
from gepa_lite.search.stop_rules import ScoreReached
from tests.test_search_run import search
from tests.triage import program, reflector, rows

FIELDS = [item.name for item in dataclasses.fields(gl.Search)]

WRONG: dict[str, list[Any]] = {
    "seed": ["7", 1.5, True, None],
    "minibatch": [0, "3", (), ((5, 3),), ((0, 3), (0, 4)), ((0, 0),), (3, 4), [[0, 3, 1]], None],
    "sampling": ["epochs", 3, None],
    "patience": [0, -1.0, float("nan"), float("inf"), "10", True],
    "selector": ["parteo", print, Best, None],
    "frontier": ["examples", 1],
    "modules": ["blames", ("route",)],
    "accept": ["strickt", Paired, 0.5],
    "validation": ["stage", True],
    "validation_bound": [-0.1, 1, 1.0, "0.05", float("nan")],
    "coverage": [0, 1.5, -0.1, "0.9", float("nan"), None],
    "merge": ["complement", 1, None],
    "skip_perfect": [1, "yes", None],
    "reuse": [0, "no", None],
    "overlap": [0, "no", None],
    "store_messages": [0, "no", None],
    "horizon": [-1, 1.5, "episodes", None],
    "proposer": ["edits", None],
    "mixing": ["bandits", None],
    "stop": [None, "stop", ScoreReached, (ScoreReached(0.9), 3), {}],
    "objective": ["maximize", None],
    "reflection_template": [3, "", "{{ promt }}", "{% if %}"],
    "reflection_limits": [8, None, {}],
    "reflection_temperature": [-0.1, "1", float("nan"), True],
    "guard": ["rejects", True, None],
    "objectives": ["prompt_tokens", ("length",), None, {"prompt_tokens": 1}],
    "prefer": ["shorter", None],
    "pins": ["abc", {"id": 1}, None, 3],
    "require": ["improve", True, 1],
    "start": [3, True, ("a",)],
    "plateau": [-1, 1.0, True, None],
    "shorten": [-1, 1.0, True, None],
}
"""Values that a field refuses; the fields that are not here are whole numbers of at least 1."""

RIGHT: dict[str, list[Any]] = {
    "minibatch": [1, [[0, 3], [10, 6]]],
    "patience": [None, 1, 0.5],
    "selector": [Best(), "elite"],
    "accept": [Paired(0.1)],
    "merge": [True, False, "paper"],
    "horizon": [0, 2, "episode"],
    "stop": [(), ScoreReached(0.9), [ScoreReached(0.9)]],
    "validation_bound": [0, 0.5],
    "reflection_template": ["{{ prompt }} {% for lesson in lessons %}{{ lesson.feedback }}{{ range(2) }}{% endfor %}"],
    "reflection_temperature": [None, 0, 1.5],
    "guard": ["off", gl.Guard(words=8)],
    "pins": [[], ["id"], ({"message": "x"},)],
    "require": [None, "improved"],
    "start": [None, "t.prompts.json", Path("t.prompts.json"), {"route": "x"}],
}


def test_every_field_has_a_check_and_no_check_is_left_over() -> None:
    assert sorted(CHECKS) == sorted(FIELDS)


@pytest.mark.parametrize("name", FIELDS)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(name: str) -> None:
    for value in WRONG.get(name, [0, -1, 1.0, "3", True, None]):
        with pytest.raises(UsageError, match=rf"^Search\({name}=") as caught:
            gl.Search(**{name: value})
        words = str(caught.value)
        assert " is needed." in words or name == "reflection_template", f"{name}={value!r} says what is expected: {words}"
        assert repr(value)[1:20] in words or name in ("reflection_template", "minibatch", "stop"), (
            f"{name}={value!r} says what came: {words}"
        )


@pytest.mark.parametrize("name", FIELDS)
def test_right_values_are_taken(name: str) -> None:
    for value in [getattr(gl.Search(), name), *RIGHT.get(name, [])]:
        gl.Search(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "near"), [("selector", "parteo", "pareto"), ("guard", "rejects", "reject"), ("merge", "papers", "paper")]
)
def test_a_wrong_name_gets_its_near_match(name: str, value: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"Did you mean '{near}'"):
        gl.Search(**{name: value})


@pytest.mark.parametrize("make", [gl.Search, gl.Search.paper, lambda **options: dataclasses.replace(gl.Search(), **options)])
def test_an_unknown_rule_gets_its_near_match(make: Any) -> None:
    with pytest.raises(UsageError, match=r"no rule 'minibatches'\. Did you mean 'minibatch'"):
        make(minibatches=3)
    with pytest.raises(UsageError, match=r"no rule 'zzz'\. There are seed, "):
        make(zzz=3)


def test_a_rule_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="no effect on proposer='edit'"):
        gl.Search(proposer="edit", reflection_template="{{ prompt }}")
    assert gl.Search(proposer="edit", plateau=5, reflection_template="{{ prompt }}").plateau == 5


@pytest.mark.parametrize("options", [{"examples": 0}, {"value_chars": "9"}, {"tokens": 1.5}])
def test_what_a_reflection_shows_is_checked(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=rf"ReflectionLimits\({next(iter(options))}="):
        ReflectionLimits(**options)


@dataclasses.dataclass(frozen=True)
class Told:
    """A stop rule with a setting of any kind."""

    setting: Any

    def __call__(self, state: Any, objective: Any, around: Any) -> str | None:
        return None


@pytest.mark.parametrize("setting", [print, object(), float("nan"), {1: 2}, [{"a": lambda: 1}], Told(object())])
def test_a_rule_whose_settings_can_not_be_kept_is_refused(setting: Any) -> None:
    with pytest.raises(UsageError, match=r"Search\(stop=Told\(\.\.\.\)\): its setting setting is .*can't be kept with the run"):
        gl.Search(stop=Told(setting))
    gl.Search(stop=(Told([1, "a", None, {"b": (2.5, frozenset({3}))}]), Told(Best())))


def test_a_search_can_be_copied_and_sent_to_another_process() -> None:
    rules = gl.Search(fan=2, guard=gl.Guard(words=8))
    assert pickle.loads(pickle.dumps(rules)) == copy.deepcopy(rules) == dataclasses.replace(rules) == rules


def test_the_least_budget_pays_for_the_first_step_of_a_schedule() -> None:
    rules = gl.Search.paper(minibatch=((0, 6), (40, 2)))
    spec = api.prepare(program(), rows(24, 1), rows(16, 2), reflection_lm=reflector(), search=rules).spec
    least = spec.least_rollouts()
    assert least == 2 * 16 + 2 * 6
    assert any(isinstance(event, Proposed) for event in search(search=rules, budget=gl.Budget(rollouts=least)))
    with pytest.raises(UsageError, match=f"{least} rollouts are needed"):
        search(search=rules, budget=gl.Budget(rollouts=least - 1))
