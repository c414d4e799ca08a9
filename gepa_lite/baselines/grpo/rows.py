"""From rollouts to rows of training: which tokens were sampled, and how much better than its group each rollout was. Pure Python, no torch.

A program calls its model several times in a rollout, once or often, in one module or in many. Every sampled reply becomes one row, with the final reward of its rollout
as the reward of each (arXiv 2507.19457, appendix on GRPO: modules of a compound system).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeVar

from gepa_lite.errors import UsageError
from gepa_lite.search.checks import TRUTH, check_fields, one_of

T = TypeVar("T")
Baseline = Literal["rollout", "module"]
BASELINES: tuple[Baseline, ...] = ("rollout", "module")
_TINY = 1e-4
"""Added to the standard deviation that advantages are divided by (papers: GRPO)."""


@dataclass(frozen=True, slots=True)
class SampledCall:
    """One reply as it was really sampled.

    Attributes:
        module: path of the module that asked.
        prompt_ids: token ids of what was asked, chat template included.
        completion_ids: token ids that were sampled, the end token included; empty where nothing was.
        logprobs: natural log-probability of each at sampling time; as long as ``completion_ids``.
    """

    module: str
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.completion_ids) != len(self.logprobs):
            raise UsageError(f"{self.module}: {len(self.completion_ids)} sampled tokens have {len(self.logprobs)} log-probabilities.")


@dataclass(frozen=True, slots=True)
class Episode:
    """One rollout of the program by the model in training.

    Attributes:
        example_id: the example's; rollouts of one example are a group.
        calls: in the order in which the replies came; empty where the program asked nothing.
        reward: higher is better; None where an outage left the rollout without a score: it then teaches nothing.
    """

    example_id: str
    calls: tuple[SampledCall, ...]
    reward: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """One reply to train on.

    Attributes:
        prompt_ids: context; never trained.
        completion_ids: trained where ``trained``.
        logprobs: at sampling time, for the ratio.
        advantage: how much better than its group its rollout was; 0 where it is not trained.
        trained: False for padding, and for replies of rollouts without a reward.
        episode: place of the rollout among all of the batch, -1 for padding.
        call: place of the call in its rollout, -1 for padding.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    advantage: float
    trained: bool
    episode: int
    call: int


@dataclass(frozen=True, slots=True)
class GroupBuilder:
    """Turns G rollouts an example into rows.

    Attributes:
        baseline: ``"rollout"``: a rollout is compared with the mean reward of its group; ``"module"``: a reply with that of the rollouts of the group in which the same module ran as often.
            They differ where modules run in some rollouts only.
        scaled: divide by the group's standard deviation, as in the paper; without it the advantage is in units of the reward.
    """

    baseline: Baseline = "rollout"
    scaled: bool = True

    def __post_init__(self) -> None:
        check_fields(self, {"baseline": one_of(BASELINES), "scaled": TRUTH})

    def rows(self, episodes: Sequence[Episode]) -> list[Row]:
        """One row for each reply with at least one token, in the order of the rollouts and of the calls in them.

        Args:
            episodes: of one batch, the rollouts of an example anywhere in it.
        """
        advantages = self._by_rollout(episodes) if self.baseline == "rollout" else self._by_module(episodes)
        rows = []
        for place, episode in enumerate(episodes):
            for number, call in enumerate(episode.calls):
                if call.completion_ids:
                    advantage = advantages[place][number]
                    rows.append(
                        Row(call.prompt_ids, call.completion_ids, call.logprobs, advantage or 0.0, advantage is not None, place, number)
                    )
        return rows

    def _by_rollout(self, episodes: Sequence[Episode]) -> list[list[float | None]]:
        values: list[float | None] = [None] * len(episodes)
        for group in _groups(enumerate(episodes), key=lambda pair: pair[1].example_id):
            rewards = [episode.reward for _, episode in group]
            for (place, _), value in zip(group, relative(rewards, scaled=self.scaled), strict=True):
                values[place] = value
        return [[value] * len(episode.calls) for value, episode in zip(values, episodes, strict=True)]

    def _by_module(self, episodes: Sequence[Episode]) -> list[list[float | None]]:
        values: list[list[float | None]] = [[None] * len(episode.calls) for episode in episodes]
        places = [
            ((episode.example_id, call.module, _invocation(episode, number)), place, number)
            for place, episode in enumerate(episodes)
            for number, call in enumerate(episode.calls)
        ]
        for group in _groups(places, key=lambda item: item[0]):
            rewards = [episodes[place].reward for _, place, _ in group]
            for (_, place, number), value in zip(group, relative(rewards, scaled=self.scaled), strict=True):
                values[place][number] = value
        return values


def relative(rewards: Sequence[float | None], *, scaled: bool = True) -> list[float | None]:
    """Rewards minus their mean, over their standard deviation where ``scaled``; None where there is none.

    The known ones sum to zero. A group in which all are equal, or only one is known, has nothing to teach: zeros.

    >>> relative([1.0, None, 0.0], scaled=False)
    [0.5, None, -0.5]

    Raises:
        UsageError: a reward is not a finite number.
    """
    known = [reward for reward in rewards if reward is not None]
    if any(not math.isfinite(reward) for reward in known):
        raise UsageError(f"rewards must be finite numbers, but got {known!r}.")
    if not known:
        return [None] * len(rewards)
    if min(known) == max(known):
        # by rounding, the mean of equal numbers may be another one
        return [None if reward is None else 0.0 for reward in rewards]
    mean = math.fsum(known) / len(known)
    spread = math.sqrt(math.fsum((reward - mean) ** 2 for reward in known) / (len(known) - 1))
    divisor = spread + _TINY if scaled else 1.0
    return [None if reward is None else (reward - mean) / divisor for reward in rewards]


def padded(rows: Sequence[Row], count: int, pad_id: int) -> list[Row]:
    """Rows filled up to a number that a trainer asks for; padding carries no gradient.

    Args:
        rows: at most ``count``.
        count: rows needed.
        pad_id: the token of padding, since trainers take no empty row.

    Raises:
        UsageError: there are more rows than that.
    """
    if len(rows) > count:
        raise UsageError(f"{len(rows)} rows do not fit in {count}: raise the setting 'calls'.")
    padding = Row((pad_id,), (pad_id,), (0.0,), 0.0, False, -1, -1)
    return [*rows, *[padding] * (count - len(rows))]


def trained_tokens(rows: Iterable[Row]) -> int:
    """Tokens that carry a gradient, also one of zero advantage."""
    return sum(len(row.completion_ids) for row in rows if row.trained)


def _invocation(episode: Episode, number: int) -> int:
    """How often the module had run in the rollout before this call."""
    return sum(call.module == episode.calls[number].module for call in episode.calls[:number])


def _groups(items: Iterable[T], key: Callable[[T], Any]) -> list[list[T]]:
    """Items of one key together, each group in the order given."""
    return [list(group) for _, group in groupby(sorted(items, key=key), key=key)]
