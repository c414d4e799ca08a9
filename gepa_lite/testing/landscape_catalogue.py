"""The named landscapes. A search's defaults are chosen on ``TUNING`` and judged on both; nothing is ever chosen on ``HELD_BACK``."""

from __future__ import annotations

from gepa_lite.errors import UsageError
from gepa_lite.testing.landscape_reflector import Reflector
from gepa_lite.testing.landscapes import Landscape, LandscapeSpec

_SPECS = (
    LandscapeSpec("one-easy", rules=6, wobble=0.0),
    LandscapeSpec(
        "three-modules",
        modules=3,
        rules=4,
        tail=0.8,
        pairs=0.7,
        wobble=0.2,
        reflector=Reflector(find=0.6, garble=0.1, overfit=0.02, miss=0.2, most=2),
    ),
    LandscapeSpec("noisy", modules=2, rules=5, tail=1.0, pairs=0.4, wobble=1.0, label_noise=0.05, reflector=Reflector(find=0.5, most=2)),
    LandscapeSpec(
        "deceptive",
        rules=10,
        tail=0.2,
        wobble=0.0,
        desks=3,
        reflector=Reflector(find=0.4, garble=0.05, overfit=0.0, deceive=0.35, miss=0.15, repair=0.0, lose=0.01),
    ),
    LandscapeSpec(
        "overfitting",
        rules=10,
        slack=1,
        dilution=0.08,
        train=15,
        validation=25,
        reflector=Reflector(find=0.35, garble=0.1, overfit=0.4, miss=0.15, most=2),
    ),
    LandscapeSpec(
        "mixed",
        modules=3,
        rules=4,
        pairs=0.5,
        wobble=0.4,
        label_noise=0.03,
        desks=2,
        shortcut=0.7,
        mislead=0.8,
        reflector=Reflector(deceive=0.1, miss=0.2, repair=0.15, lose=0.03, most=2),
    ),
    LandscapeSpec("one-many", rules=24, tail=1.0, wobble=0.2, train=100, reflector=Reflector(find=0.4, most=2)),
    LandscapeSpec(
        "six-modules",
        modules=6,
        rules=2,
        tail=0.5,
        pairs=1.0,
        base=0.2,
        wobble=0.3,
        reflector=Reflector(find=0.65, garble=0.1, overfit=0.02, miss=0.2, most=2),
    ),
    LandscapeSpec("graded", modules=2, rules=5, graded=True, pairs=0.5, wobble=0.3, reflector=Reflector(find=0.4, garble=0.2, miss=0.3)),
    LandscapeSpec(
        "complementary",
        modules=4,
        rules=3,
        tail=0.2,
        wobble=0.05,
        train=48,
        validation=36,
        reflector=Reflector(find=0.6, garble=0.1, overfit=0.0, lose=0.03, most=2),
    ),
    LandscapeSpec(
        "niches",
        modules=2,
        rules=4,
        tail=0.3,
        wobble=0.05,
        desks=2,
        shortcut=0.85,
        mislead=0.95,
        reflector=Reflector(garble=0.05, overfit=0.0, deceive=0.35, miss=0.15, repair=0.0, lose=0.01),
    ),
    LandscapeSpec(
        "small-data",
        modules=2,
        rules=6,
        tail=1.0,
        pairs=0.4,
        wobble=0.3,
        slack=2,
        dilution=0.06,
        train=20,
        validation=20,
        reflector=Reflector(find=0.4, overfit=0.25, miss=0.15, lose=0.03, most=2),
    ),
    LandscapeSpec(
        "unblamed",
        modules=4,
        rules=3,
        tail=0.6,
        pairs=0.5,
        wobble=0.2,
        blames=False,
        reflector=Reflector(find=0.6, garble=0.1, overfit=0.02, miss=0.2, most=2),
    ),
)

LANDSCAPES: dict[str, LandscapeSpec] = {spec.name: spec for spec in _SPECS}
TUNING = ("one-easy", "three-modules", "noisy", "deceptive", "overfitting", "mixed")
HELD_BACK = ("one-many", "six-modules", "graded", "complementary", "niches", "small-data", "unblamed")


def landscape(name: str, seed: int = 0) -> Landscape:
    """A named landscape, drawn by a seed.

    Raises:
        UsageError: there is none of that name.

    Example:
        >>> landscape("six-modules").modules
        ('read', 'plan', 'draft', 'check', 'route', 'answer')
    """
    if name not in LANDSCAPES:
        raise UsageError(f"there is no landscape {name!r}; there are {', '.join(map(repr, LANDSCAPES))}.")
    return Landscape(LANDSCAPES[name], seed)
