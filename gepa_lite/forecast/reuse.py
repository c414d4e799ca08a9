"""Which rollouts of parents are paid: a candidate is run on a training example once, and what it scored there answers from then on."""

from __future__ import annotations

from dataclasses import dataclass, replace

_MOST = 8
"""Cohorts that are told apart: the oldest ones differ little."""


@dataclass(frozen=True, slots=True)
class Cohort:
    """Candidates that joined within one epoch.

    Attributes:
        count: of those that may be parents, in expectation.
        unseen: share of the training examples that one of them was not run on in the epochs before.
        used: minibatches of this epoch that all of them together had.
    """

    count: float
    unseen: float = 1.0
    used: float = 0.0

    def turned(self, covers: float) -> Cohort:
        """At the end of an epoch; a minibatch covers such a share of the examples."""
        return Cohort(self.count, self.unseen * max(0.0, 1 - covers * self.used / self.count))

    def joined(self, other: Cohort) -> Cohort:
        """Both as one."""
        count = self.count + other.count
        return Cohort(count, (self.count * self.unseen + other.count * other.unseen) / count, self.used + other.used)


@dataclass(frozen=True, slots=True)
class Parents:
    """Who may be a parent, and what each of them was run on, in expectation.

    Within an epoch no example comes twice, so nothing is used again before the same parent meets an example of an earlier epoch. Where examples are drawn without epochs,
    every minibatch is an epoch of its own that covers a part.

    Attributes:
        epoch: minibatches of one.
        covers: share of the examples in a minibatch.
        cohorts: the oldest first; the seed is the first.
        place: minibatches of this epoch so far.
        young: whether the last cohort joined in this epoch.
    """

    epoch: int
    covers: float
    cohorts: tuple[Cohort, ...] = (Cohort(1.0),)
    place: int = 0
    young: bool = False

    @classmethod
    def of(cls, train: int, minibatch: int, *, epochs: bool) -> Parents:
        """Before the first step."""
        size = min(minibatch, train)
        per_epoch = -(-train // size)
        return cls(per_epoch, 1 / per_epoch) if epochs else cls(1, size / train)

    def take(self, slots: int, newest: float) -> tuple[float, Parents]:
        """A step's minibatches.

        Args:
            slots: how many, all of one parent.
            newest: chance that this is the child of the step before, whoever was drawn.

        Returns:
            How many of them, in minibatches, the parent was not run on; and the parents after it.
        """
        total = sum(cohort.count for cohort in self.cohorts)
        shares = [(1 - newest) * cohort.count / total for cohort in self.cohorts]
        # what a parent of each cohort was not run on, and the newest child, as the step goes on
        own, youngest = [cohort.unseen for cohort in self.cohorts], 1.0
        cohorts, place, new, left, young = self.cohorts, self.place, 0.0, slots, self.young
        while left:
            part = min(left, self.epoch - place)
            new += part * (newest * youngest + sum(share * unseen for share, unseen in zip(shares, own, strict=True)))
            place, left = place + part, left - part
            before, cohorts = cohorts, _used(cohorts, shares, newest, part)
            if place == self.epoch:
                own = [
                    unseen * max(0.0, 1 - self.covers * (cohort.used / cohort.count + part))
                    for unseen, cohort in zip(own, before, strict=True)
                ]
                youngest *= max(0.0, 1 - self.covers * part)
                cohorts, place, young = tuple(cohort.turned(self.covers) for cohort in cohorts), 0, False
        return new, replace(self, cohorts=cohorts, place=place, young=young)

    def join(self, count: float) -> Parents:
        """With so many more who may be parents; each was run on a minibatch of this epoch, as a child."""
        if count <= 0:
            return self
        child, cohorts = Cohort(count, used=count), self.cohorts
        cohorts = (*cohorts[:-1], cohorts[-1].joined(child)) if self.young else (*cohorts, child)
        if len(cohorts) > _MOST:
            cohorts = (cohorts[0].joined(cohorts[1]), *cohorts[2:])
        return replace(self, cohorts=cohorts, young=True)


def _used(cohorts: tuple[Cohort, ...], shares: list[float], newest: float, part: int) -> tuple[Cohort, ...]:
    """The cohorts after so many minibatches of one parent, who is of each with its share, and the newest child besides."""
    last = len(cohorts) - 1
    return tuple(
        replace(cohort, used=cohort.used + part * (share + (newest if place == last else 0.0)))
        for place, (cohort, share) in enumerate(zip(cohorts, shares, strict=True))
    )
