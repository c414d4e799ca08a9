"""What the cells of ``prompts-or-weights`` say together: scores, form and content, costs, and how many rollouts each takes to the same score."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from benchmarks.cell_tables import Found, interval
from gepa_lite.search.verdict import mean_interval

BY_HAND = "by_hand"
RL = "grpo"


def markdown(cells: Sequence[Found]) -> str:
    """The tables for a page."""
    lines = [
        "| task | optimizer | seeds | test, mean [95 %] | of the naive prompts | worst seed | in form, before and after | gain by form | by content | rollouts | tokens, of them reflection | seconds | of them training |",
        f"|{' --- |' * 13}",
    ]
    for task, name, group in groups(cells):
        mean, low, high = interval([each["test_values"]["winner"] for each in group])
        parts = [task, name, str(len(group)), f"{mean:.3f} [{low:.3f}, {high:.3f}]"]
        if name == BY_HAND:
            lines.append(f"| {' | '.join([*parts, '', '', format(_mean(group, 'form'), '.2f'), *[''] * 6])} |")
            continue
        gained = [split_gain(each["figures"]) for each in group]
        parts += [
            f"{_mean(group, 'seed_test'):.3f}",
            f"{min(each['figures']['test'] for each in group):.3f}",
            f"{_mean(group, 'seed_form'):.2f}, {_mean(group, 'form'):.2f}",
            *(f"{fmean(gain[place] for gain in gained):+.3f}" for place in (0, 1)),
            f"{_mean(group, 'rollouts'):.0f}",
            f"{_mean(group, 'tokens'):,.0f}, {fmean(_reflection(each) for each in group):,.0f}",
            f"{_mean(group, 'seconds'):.0f}",
            f"{_mean(group, 'training_seconds'):.0f}",
        ]
        lines.append(f"| {' | '.join(parts)} |")
    lines += [
        "",
        f"| task | optimizer beside `{RL}` | seeds | test, its own less `{RL}`'s [95 %] | `{RL}`'s rollouts / its own to equal validation score [95 % over seeds] | seeds in which both rose |",
        f"|{' --- |' * 6}",
    ]
    found = {(task, name): group for task, name, group in groups(cells)}
    for (task, name), group in found.items():
        if name not in (BY_HAND, RL) and (task, RL) in found:
            lines.append(_beside(task, name, group, found[task, RL]))
    return "\n".join(lines)


def groups(cells: Iterable[Found]) -> list[tuple[str, str, list[Found]]]:
    """Cells by task and optimizer, prompts by hand and training first."""
    kinds: dict[tuple[str, str], list[Found]] = {}
    for cell in cells:
        kinds.setdefault((cell["task"], cell["optimizer"]), []).append(cell)
    order = sorted(kinds, key=lambda kind: (kind[0], kind[1] != BY_HAND, kind[1] != RL, kind[1]))
    return [(task, name, sorted(kinds[task, name], key=lambda cell: cell["seed"])) for task, name in order]


def split_gain(figures: Mapping[str, float]) -> tuple[float, float]:
    """How much of a gain is form: more answers in form, at the score that an answer in form had before, or has now where there were none; and the rest.

    >>> [round(part, 3) for part in split_gain({"seed_test": 0.2, "test": 0.8, "seed_form": 0.4, "form": 1.0})]
    [0.3, 0.3]
    """
    before, after, old, new = (figures[name] for name in ("seed_test", "test", "seed_form", "form"))
    worth = min(1.0, before / old) if old else after / new if new else 0.0
    form = (new - old) * worth
    return form, after - before - form


def fewer_rollouts(one: Found, other: Found) -> float | None:
    """How many times the rollouts of ``one`` the ``other`` took to the same validation score: the best that both reached.

    Returns:
        None where one of them never rose above the naive prompts: there is no score to compare at.
    """
    best = min(max(lead["validation"] for lead in each["leads"]) for each in (one, other))
    if best <= max(each["leads"][0]["validation"] for each in (one, other)):
        return None
    ours, theirs = (min(lead["rollouts"] for lead in each["leads"] if lead["validation"] >= best) for each in (one, other))
    return float(theirs / ours)


def _beside(task: str, name: str, group: Sequence[Found], training: Sequence[Found]) -> str:
    by_seed = {each["seed"]: each for each in training}
    pairs = [(each, by_seed[each["seed"]]) for each in group if each["seed"] in by_seed]
    differences = [
        [None if a is None or b is None else a - b for a, b in zip(one["test_values"]["winner"], two["test_values"]["winner"], strict=True)]
        for one, two in pairs
    ]
    test = "{:+.3f} [{:+.3f}, {:+.3f}]".format(*interval(differences)) if pairs else ""
    ratios = [ratio for one, two in pairs if (ratio := fewer_rollouts(one, two)) is not None]
    middle, low, high, _ = mean_interval([math.log(ratio) for ratio in ratios])
    times = f"{math.exp(middle):.2f} [{math.exp(low):.2f}, {math.exp(high):.2f}]" if ratios else "none: one of the two never rose"
    return f"| {task} | {name} | {len(pairs)} | {test} | {times} | {len(ratios)} |"


def _mean(group: Sequence[Found], figure: str) -> float:
    return fmean(each["figures"][figure] for each in group)


def _reflection(cell: Found) -> int:
    roles = cell["figures"]["tokens_by_role"]
    return sum(spend["input_tokens"] + spend["output_tokens"] for role, spend in roles.items() if role == "reflection")
