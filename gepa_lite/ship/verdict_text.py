"""The verdict in plain words, and the tables behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gepa_lite.errors import UsageError
from gepa_lite.search.verdict import LEVEL, Comparison

if TYPE_CHECKING:
    from gepa_lite.ship.result import Result

_BARS = "▁▂▃▄▅▆▇█"
_IDS_SHOWN = 5


def verdict_text(result: Result[Any]) -> str:
    """The verdict first, then what ``result.program`` is and how the search ended; one sentence a line."""
    lines = [_verdict(result), *_cautions(result), _program(result)]
    state = "Search ended" if result.finished else "Search not finished"
    lines.append(f"{state}: {result.stopped}.")
    return "\n".join(line for line in lines if line)


def _verdict(result: Result[Any]) -> str:
    test, verdict = result.test, result.verdict
    if verdict == "validated only":
        row = result.validation
        words = _means(row, result, f"the {row.n} validation examples, where the winner was chosen")
        return f"Verdict: validated only. No test set was given, so no gain can be claimed.\n{words} Such gains are optimistic."
    if test is None:
        return "Verdict: none yet. The sealed test set is not scored."
    words = _means(test, result, f"{test.n} sealed test examples")
    share = "less than 0.01 %" if test.p < 1e-4 else f"{100 * test.p:.2f} %"
    chance = f"Chance alone does as much in {share} of cases."
    if verdict == "indecisive":
        return f"Verdict: indecisive. {test.missing} of {test.n + test.missing} test examples have no score.\n{words}"
    if verdict == "not shown":
        if result.winner_prompts == result.seed_prompts:
            return f"Verdict: not shown. The winner is the seed.\n{words}"
        return f"Verdict: not shown. The sealed test set shows no clear gain.\n{words} {chance}{_could_show(test)}"
    meaning = "The sealed test set shows a gain." if verdict == "improved" else "The winner scores less on the sealed test set."
    return f"Verdict: {verdict}. {meaning}\n{words} {chance}"


def _means(row: Comparison, result: Result[Any], where: str) -> str:
    score, sign = result.objective.score, 1 if result.objective.direction == "maximize" else -1
    low, high = sorted((sign * row.low, sign * row.high))
    share = f"{1 - LEVEL / row.looks:.1%}".replace(".0%", "%").replace("%", " %")
    return (
        f"On {where}, the winner's prompts score {score(row.after):.3f} and the seed's {score(row.before):.3f}: {sign * row.gain:+.3f}, "
        f"{share} interval {low:+.3f} to {high:+.3f}, {row.won} better and {row.lost} worse."
    )


def _could_show(row: Comparison) -> str:
    if row.detectable is None:
        return ""
    return f"\nSo many examples show a true gain of about {row.detectable:.2f} in four of five runs, and smaller ones less often."


def _cautions(result: Result[Any]) -> Iterator[str]:
    test = result.test
    if test is not None and test.looks > 1:
        yield (
            f"The test set was looked at {test.looks} times: the interval and the p-value that a verdict needs ({test.level:.4f}) are corrected for it (Bonferroni)."
        )
    if test is not None and result.optimism is not None and result.optimism > 0 and result.winner_index:
        sign = 1 if result.objective.direction == "maximize" else -1
        yield (
            f"The validation gain was {sign * result.validation.gain:+.3f}, the test gain is {sign * test.gain:+.3f}: "
            f"choosing on the validation set flattered the winner by {result.optimism:.3f}."
        )
    pins = result.state.started.pin_ids if result.state.started is not None else ()
    if pins:
        broken = Counter(pin for veto in result.state.vetoes for pin in veto.pin_ids)
        which = ", ".join(f"{pin} in {count}" for pin, count in broken.most_common(_IDS_SHOWN))
        vetoed = f"; {len(result.state.vetoes)} candidates were vetoed for breaking one ({which})" if broken else "; no candidate broke one"
        yield f"Pins: the winner holds {len(pins)} of {len(pins)}{vetoed}."


def _program(result: Result[Any]) -> str:
    if result.winner_prompts == result.seed_prompts:
        return "No candidate beat the seed on the validation set: the prompts are unchanged."
    if result.prompts != result.seed_prompts:
        return ""
    if result.test is not None and result.test.gain <= 0:
        return "result.program is the seed, since the winner's test score is not above it; result.winner holds the winner."
    return "result.program is the seed, since a gain was required and is not shown; result.winner holds the winner."


def objectives_text(result: Result[Any]) -> str:
    """One row an objective; "" without any."""
    if not result.objectives:
        return ""
    tested = result.state.tested is not None and result.state.tested.winner == result.winner_index
    lines = [f"{'objectives':<20}{'before':>9}{'after':>9}{'gain':>9}   on the {'test' if tested else 'validation'} set, higher is better"]
    for name, row in result.objectives.items():
        lines.append(f"{name:<20}{row.before:>9.3f}{row.after:>9.3f}{row.gain:>+9.3f}   [{row.low:+.3f}, {row.high:+.3f}]")
    return "\n".join(lines)


def flips_text(result: Result[Any]) -> str:
    """The test examples that got worse, by id; "" where none did or nothing was tested."""
    tested, state = result.state.tested, result.state
    if tested is None or state.started is None or tested.winner != result.winner_index:
        return ""
    rows = zip(state.started.test_ids, tested.seed_values, tested.winner_values, strict=True)
    lost = [example for example, before, after in rows if before is not None and after is not None and after < before]
    if not lost:
        return ""
    more = f" and {len(lost) - _IDS_SHOWN} more" if len(lost) > _IDS_SHOWN else ""
    return f"Worse on the test examples {', '.join(lost[:_IDS_SHOWN])}{more}; result.flips has the inputs and both outputs."


def curve_text(result: Result[Any]) -> str:
    """The milestones as a table with a line of bars; "" without a curve."""
    if not result.curve:
        return ""
    rows = [f"{'curve':<12}{'rollouts':>9}{'validation':>12}{'unseen':>9}{'gap':>9}   95 % interval (n={result.curve[0].n})"]
    for milestone in result.curve:
        interval = f"[{milestone.low:.3f}, {milestone.high:.3f}]"
        rows.append(
            f"{f'#{milestone.member}':<12}{milestone.rollouts:>9,}{milestone.validation:>12.3f}{milestone.score:>9.3f}{milestone.gap:>+9.3f}   {interval}"
        )
    values = [milestone.score for milestone in result.curve]
    rows.append(f"unseen {_bars(values)}, validation {_bars([milestone.validation for milestone in result.curve])}")
    return "\n".join(rows)


def prompt_cost_text(result: Result[Any]) -> str:
    """How long the prompts are, before and after, what was dropped, and when a saving pays the search back."""
    before, after = result.prompt_tokens
    if result.winner_prompts == result.seed_prompts:
        return ""
    lines = [f"Prompts: about {after:,.0f} tokens in a run of the program, {before:,.0f} before."]
    dropped = [event for event in result.state.shortenings if event.status == "dropped"]
    if result.state.shortenings:
        lines.append(f"Shortening: {len(dropped)} of {len(result.state.shortenings)} sentences tried cost nothing to leave out.")
    try:
        even = result.break_even()
    except UsageError:
        return "\n".join(lines)
    if even.runs is not None:
        lines.append(f"Break-even: {even}.")
    return "\n".join(lines)


def _bars(values: list[float]) -> str:
    low, high = min(values), max(values)
    if high == low:
        return _BARS[3] * len(values)
    return "".join(_BARS[round((value - low) / (high - low) * (len(_BARS) - 1))] for value in values)
