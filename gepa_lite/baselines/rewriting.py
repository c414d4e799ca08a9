"""Baselines that rewrite prompts without reading what went wrong: what feedback in words is worth is measured against them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gepa_lite.baselines.steps import rewritten, run_steps
from gepa_lite.search.charges import Uncharged
from gepa_lite.search.checks import check_fields, count
from gepa_lite.search.state import RunState
from gepa_lite.search.step import Course
from gepa_lite.search.trail import Trail

_TEMPLATE = """Below is the prompt of one step of a program.

{% if purpose %}
What the program is for: {{ purpose }}
{% endif %}
The prompt belongs to the step "{{ module }}": {{ signature }}
<current>
{{ prompt }}
</current>

Write a better prompt for this step: clearer, more precise and more complete. Give the complete new prompt in this form, and nothing else:
<prompt>
...
</prompt>"""


@dataclass(frozen=True)
class BestOfN:
    """Samples rewrites of the seed and keeps the one with the best validation score: every module is rewritten at once, no rollout is looked at.

    Attributes:
        n: rewrites at most; the budget may end it before.
    """

    n: int = 16

    def __post_init__(self) -> None:
        check_fields(self, {"n": count(1)})

    def settings(self) -> Mapping[str, Any]:
        """See ``Procedure``."""
        return {"name": "best_of_n", "n": self.n}

    def __call__(self, trail: Trail, course: Course) -> RunState:
        """See ``Procedure``."""

        def take(state: RunState, course: Course, step: int) -> Uncharged:
            return Uncharged(rewritten(state.pool[0], state, course, step, _TEMPLATE))

        return run_steps(trail, course, take, self.n)


@dataclass(frozen=True)
class RandomRewrite:
    """Hill climbing without feedback: rewrites the best candidate so far, keeps what scores higher on the validation set.

    Attributes:
        n: rewrites at most; the budget may end it before.
    """

    n: int = 1_000

    def __post_init__(self) -> None:
        check_fields(self, {"n": count(1)})

    def settings(self) -> Mapping[str, Any]:
        """See ``Procedure``."""
        return {"name": "random_rewrite", "n": self.n}

    def __call__(self, trail: Trail, course: Course) -> RunState:
        """See ``Procedure``."""

        def take(state: RunState, course: Course, step: int) -> Uncharged:
            return Uncharged(rewritten(state.best, state, course, step, _TEMPLATE))

        return run_steps(trail, course, take, self.n)
