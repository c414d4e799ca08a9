"""What the papers' figures say of each other and of our settings: budgets, grids, bounds, counts (papers, part A)."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from gepa_lite.feedback.constraints import constraints
from gepa_lite.feedback.privacy import privacy
from gepa_lite.feedback.retrieval import HOVER_STAGES
from gepa_lite.programs.multihop import HotpotMultiHop, HoverMultiHop

import gepa_lite as gl
from benchmarks import paper_splits, published
from gepa_lite import Budget, Search
from gepa_lite.core.events import Proposed
from gepa_lite.search.minibatch import epoch_minibatch
from gepa_lite.testing import ScriptedLM, landscape, run_landscape

SIZES = {"hotpotqa": 300, "ifbench": 300, "hover": 300, "pupa": 111, "aime": 45, "livebench_math": 121}


def test_a5_the_number_of_accepted_mutations_is_bounded_by_the_budget() -> None:
    bounds = {name: math.ceil((paper_splits.BUDGETS[name] - size) / (6 + size)) for name, size in SIZES.items()}
    assert bounds == {"hotpotqa": 22, "ifbench": 11, "hover": 23, "pupa": 20, "livebench_math": 14, "aime": 36}
    for name, (nodes, validation) in published.NODES.items():
        assert SIZES[name] == validation
        assert nodes - 1 <= bounds[name], "each released tree keeps to it"


@pytest.mark.parametrize("name", ["one-easy", "three-modules", "noisy"])
@pytest.mark.parametrize("rollouts", [300, 777])
def test_a5_and_a6_our_runs_keep_to_it_and_book_as_the_paper_counts(name: str, rollouts: int) -> None:
    """E = V + 2b for each proposal that was run + A V, without reuse; and never over the budget, where the paper's loop may be by 2b + V."""
    land = landscape(name, 1)
    state = run_landscape(land, Search.paper(reuse=False), Budget(rollouts=rollouts, proposals=rollouts), seed=3).state
    size = len(land.validation)
    accepted = sum(proposal.status == "accepted" for proposal in state.proposals)
    assert accepted <= math.ceil((rollouts - size) / (6 + size))
    assert len(state.pool) == accepted + 1
    booked = size + accepted * size + sum(len(p.before) + len(p.after) for p in state.proposals)
    assert state.spend.rollouts == booked <= rollouts
    assert {len(p.before) for p in state.proposals} == {3}


@pytest.mark.parametrize("table", ["QWEN3_8B", "GPT_41_MINI"])
def test_a10_published_aggregates_are_the_means_of_their_cells_but_for_one(table: str) -> None:
    cells = getattr(published, table)
    for optimizer, aggregate in published.AGGREGATES[table].items():
        mean = sum(cells[optimizer]) / len(published.BENCHMARKS)
        if (table, optimizer) == ("QWEN3_8B", "GRPO"):
            assert mean == pytest.approx(48.97, abs=0.01)
            assert aggregate == 48.91
        else:
            assert mean == pytest.approx(aggregate, abs=0.011)


@pytest.mark.parametrize("name", paper_splits.TEST_GRID)
def test_a10_published_scores_lie_on_the_test_sets_grid(name: str) -> None:
    place, grid = published.BENCHMARKS.index(name), paper_splits.TEST_GRID[name]
    for row in (*published.QWEN3_8B.values(), *published.GPT_41_MINI.values()):
        assert round(round(row[place] * grid / 100) / grid * 100, 2) == row[place]


def test_a12_a_constraint_holds_where_any_of_the_eight_forms_keeps_it() -> None:
    row = gl.Example("id", {}, {"instruction_id_list": ["startend:quotation"], "kwargs": [{}]})
    for reply in ('"yes"', 'Sure:\n"yes"', '"yes"\nBye', 'Sure:\n"yes"\nBye', '*"yes"*', 'Sure:\n*"yes"*\nBye'):
        assert constraints()(row, {"response": reply}).score == 1, reply
    assert constraints(loose=False)(row, {"response": 'Sure:\n"yes"'}).score == 0
    assert constraints()(row, {"response": 'a\nb\n"yes"'}).score == 0


def test_pupas_score_is_half_quality_and_half_what_was_kept() -> None:
    for leaked, quality in ((0, 1.0), (1, 1.0), (2, 0.0), (2, 0.5)):
        units = ["Ada Byron", "Ferntown"]
        row = gl.Example("id", {}, {"pii_units": "||".join(units)})
        output = {"llm_request": " and ".join(units[:leaked])}
        found = privacy(lambda example, output: output["quality"])(row, {**output, "quality": quality}, gl.Trace())
        assert found.score == (quality + 1 - leaked / 2) / 2


def test_a19_our_budgets_have_the_published_mean() -> None:
    assert sum(paper_splits.BUDGETS.values()) / 6 == 3936.5


@pytest.mark.parametrize(("batch", "epochs"), [(1, 1), (3, 3), (5, 5)])
def test_a20_fifteen_updates_on_fifteen_examples_are_one_three_and_five_epochs(batch: int, epochs: int) -> None:
    ids = [f"e{number}" for number in range(15)]
    seen = [key for step in range(15) for key in epoch_minibatch(ids, batch, step, seed=0)]
    assert {seen.count(key) for key in ids} == {epochs}


def test_bbeh_is_split_as_the_study_splits_it() -> None:
    split = paper_splits.bbeh(range(200))
    assert (split["train"], split["val"]) == (list(range(15)), list(range(15, 25)))
    assert len(split["test"]) == 175


def test_the_programs_search_as_deep_as_the_papers() -> None:
    """§1.9: 7 + 7 documents for HotpotQA, 7 + 7 + 10 for HoVer; modules in the order of turns; HoVer's feedback speaks to each."""
    asked: list[int] = []

    def search(query: str, k: int) -> list[str]:
        asked.append(k)
        return [f"{query} {place} | text" for place in range(k)]

    lm = ScriptedLM(lambda request: '{"reasoning": "r", "query": "q", "summary": "s", "answer": "a"}')
    assert len(HoverMultiHop(search, lm)(claim="c").documents) == 24
    assert len(HotpotMultiHop(search, lm)(question="q").hops) == 2
    assert asked == [7, 7, 10, 7, 7]
    assert list(HoverMultiHop(search, lm).prompts) == ["create_query_hop2", "create_query_hop3", "summarize1", "summarize2"]
    assert set(HOVER_STAGES) == set(HoverMultiHop(search, lm).prompts)


def test_the_papers_settings_are_the_papers() -> None:
    """§1.7: minibatches of 3, one proposal a step, round robin, strict acceptance, the instance front, full validation, no merge."""
    paper = Search.paper()
    assert (paper.minibatch, paper.fan, paper.window, paper.modules, paper.validation) == (3, 1, 1, "round_robin", "full")
    assert (paper.merge, paper.merge_attempts, paper.frontier, paper.skip_perfect) == ("none", 5, "example", True)
    assert (paper.selector, paper.accept) == ("pareto", "strict")
    state = run_landscape(landscape("three-modules", 0), paper, Budget(rollouts=400), seed=0).state
    turns = [
        proposal.modules[0] for proposal in state.proposals if isinstance(proposal, Proposed) and proposal.parent == 0 and proposal.modules
    ]
    order = landscape("three-modules", 0).modules
    assert all(order.index(other) == (order.index(one) + 1) % 3 for one, other in pairwise(turns))


def test_b1_pareto_leads_greedy_where_a_shortcut_deceives() -> None:
    """Direction alone, on a task made for it; over all tasks it is not so (docs/studies/pareto.md)."""
    scores: dict[Any, float] = {}
    for selector in ("pareto", "best"):
        runs = [
            run_landscape(landscape("deceptive", seed), Search.paper(selector=selector), Budget(rollouts=700, proposals=350), seed=seed)
            for seed in range(6)
        ]
        scores[selector] = sum(run.held_out for run in runs) / len(runs)
    assert scores["pareto"] > scores["best"]
