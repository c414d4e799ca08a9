"""The report: one file that holds together without a network or a script, whatever the texts in it are."""

from __future__ import annotations

import html
import itertools
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import gepa_lite as gl
from benchmarks.ui_recording import Size, write_large_run
from gepa_lite.cli.app import app
from gepa_lite.insight.distance import TextSpace
from gepa_lite.insight.measures import read_trail
from gepa_lite.report.charts import progress_chart
from gepa_lite.report.lineage import MOST, ancestors_of, lineage_chart, shown_nodes
from gepa_lite.report.matrix import matrix_of, matrix_picture
from gepa_lite.report.pages import Look
from gepa_lite.report.svg import Scale, number, tag
from gepa_lite.store.browse import Browse
from gepa_lite.store.run_store import RunStore
from gepa_lite.testing import ScriptedLM
from tests import triage

HOSTILE = "<script>alert('owned')</script><img src=x onerror=alert(1)> {{ 7*7 }} </style></pre> \u202egnp.exe \x1b[31m שלום עולם"


def hostile_run(folder: Path) -> gl.Result[Any]:
    """A run in which everything that a model or a user may write is hostile: prompts, replies, feedback, inputs, and one line of a megabyte."""
    numbers = iter(range(10_000))

    def reflect(request: gl.Request) -> str:
        return f"<prompt>Decide how urgent it is. rule refund rule leak {HOSTILE} {next(numbers)}</prompt>"

    def feedback(example: gl.Example, output: gl.Outputs, trace: gl.Trace) -> gl.Feedback:
        right = output.urgency == example["urgency"]
        return gl.Feedback(
            float(right), HOSTILE + "x" * 1_000_000 if example["kind"] == "typo" and not right else HOSTILE, {"gist": HOSTILE}
        )

    rows = [{**row, "note": HOSTILE} for row in triage.rows(24, 1)]
    others = [{**row, "note": HOSTILE} for row in triage.rows(20, 2)]
    return gl.optimize(
        triage.program(),
        rows,
        others,
        testset=triage.rows(20, 3),
        feedback=feedback,
        reflection_lm=ScriptedLM(reflect, name="<b>reflector</b>"),
        budget=gl.Budget(proposals=12),
        search=gl.Search(modules="round_robin", fan=1),
        run=folder,
    )


def good_run(folder: Path, **search: Any) -> gl.Result[Any]:
    return gl.optimize(
        triage.program(),
        triage.rows(40, 1),
        triage.rows(40, 2),
        testset=triage.rows(40, 3),
        curveset=triage.rows(10, 4),
        reflection_lm=triage.reflector(),
        budget=gl.Budget(proposals=24),
        search=gl.Search(**search),
        run=folder,
    )


class Page(HTMLParser):
    """What a browser would make of a page: its elements, and whether each was closed."""

    VOID = frozenset(["meta", "img", "input", "br", "link", "hr"])

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def check(self) -> None:
        """No script, no handler, nothing from elsewhere, all closed."""
        assert self.open == []
        for element, attributes in self.elements:
            assert element not in ("script", "iframe", "object", "embed", "link", "base", "form"), element
            for name, value in attributes.items():
                assert not name.startswith("on"), (element, name)
                assert name != "style", "an inline style would need a weaker policy"
                if name in ("src", "href", "srcset", "action"):
                    assert value is not None
                    assert value.startswith(("data:image/png;base64,", "#")), value


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "run"
    good_run(folder)
    return folder


def test_the_report_is_one_file_without_scripts_and_begins_with_the_verdict(run: Path) -> None:
    text = gl.report_html(run)
    Page(text).check()
    assert text.index("Verdict: improved") < text.index("Score over cost") < text.index("Settings and fingerprints")
    assert "default-src 'none'" in html.unescape(text)
    assert "http" not in text.replace("http-equiv", ""), "nothing is fetched, nothing is linked"
    for words in ("What changed, seed to winner", "rule refund.", "Lineage", "Candidates and examples", "Advice", "fingerprint", "refined"):
        assert words in text


def test_a_hostile_run_is_shown_as_text(tmp_path: Path) -> None:
    hostile_run(tmp_path / "r")
    text = gl.report_html(tmp_path / "r")
    Page(text).check()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "49" not in re.findall(r"onerror=alert\(1\)&gt; (\d+)", text), "what looks like a template is not run"
    assert "\u202e" not in text
    assert "[U+202E]" in text
    assert "\x1b" not in text
    assert "שלום" in text, "letters that run right to left stay"
    assert len(text.encode()) < 3_000_000, "a line of a megabyte is cut"


def test_a_hostile_run_in_markdown_has_no_markup(tmp_path: Path) -> None:
    hostile_run(tmp_path / "r")
    text = gl.report_markdown(tmp_path / "r")
    outside = re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", text)
    assert "<script" not in outside
    assert not re.search(r"(?<!\\)[@\[]", outside.replace("[-removed-]", ""))


def test_markdown_says_the_verdict_the_figures_and_the_change(run: Path) -> None:
    text = gl.report_markdown(run)
    assert "**Verdict: improved." in text
    assert "| test | " in text
    assert "{+" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1


@pytest.mark.parametrize(("p", "shown"), [(0.00004, "<.0001"), (0.00005, "0.0001"), (0.25, "0.2500")])
def test_a_p_value_is_never_zero_in_any_form(run: Path, monkeypatch: pytest.MonkeyPatch, p: float, shown: str) -> None:
    row = {"name": "test", "before": 0.1, "after": 0.2, "gain": 0.1, "low": 0.0, "high": 0.2, "won": 1, "lost": 0, "n": 9, "p": p}
    monkeypatch.setattr("gepa_lite.report.markdown.comparisons", lambda result: [row])
    monkeypatch.setattr("gepa_lite.report.html.comparisons", lambda result: [row])
    assert f"| {shown} |" in gl.report_markdown(run)
    assert f'<td class="number">{html.escape(shown)}</td></tr>' in gl.report_html(run)


def test_a_run_of_a_thousand_candidates_fits_in_three_megabytes(tmp_path: Path) -> None:
    write_large_run(tmp_path / "r", Size(1_000, 40_000), seed=0)
    text = gl.report_html(tmp_path / "r")
    Page(text).check()
    assert len(text.encode()) < 3_000_000
    assert "850 candidates that did not lead to the front are left out" in text


def test_what_is_not_finished_is_reported_as_it_stands(tmp_path: Path) -> None:
    result = gl.optimize(
        triage.program(),
        triage.rows(10, 1),
        triage.rows(10, 2),
        reflection_lm=triage.reflector(),
        budget=gl.Budget(proposals=1),
        search=gl.Search(fan=1),
        run=tmp_path / "r",
    )
    text = gl.report_html(result)
    Page(text).check()
    assert "Verdict: validated only" in text


@pytest.mark.parametrize(
    "search", [{"merge": "paper", "fan": 1}, {"fan": 1, "window": 3}, {"objective": gl.Objective("minimize", (0, 1))}], ids=str
)
def test_reports_of_other_searches(search: dict[str, Any], tmp_path: Path) -> None:
    good_run(tmp_path / "r", **search)
    Page(gl.report_html(tmp_path / "r")).check()


def test_missing_runs_are_named(tmp_path: Path) -> None:
    with pytest.raises(gl.UsageError, match="There is no run"):
        gl.report_html(tmp_path / "nothing")


# the parts


def test_elements_escape_what_they_are_given() -> None:
    assert str(tag("text", "<b>", title='"&')) == '<text title="&#34;&amp;">&lt;b&gt;</text>'
    assert number(1 / 3) == "0.333"
    assert number(120.0) == "120"


def test_scales_hold_all_values_with_round_ticks() -> None:
    scale = Scale.over([0.2, 0.9], 0, 100)
    assert 0 < scale(0.2) < scale(0.9) < 100
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks())
    flat = Scale.over([0.5, 0.5], 0, 100)
    assert flat(0.5) == pytest.approx(50)
    assert Scale.over([], 0, 1).ticks()


def test_an_axis_of_counts_has_whole_numbers_alone() -> None:
    for values in ([0, 1], [0, 2], [0, 40], [7, 7], [0, 17], [0, 123_456]):
        scale = Scale.over(values, 0, 800, whole=True)
        assert scale.ticks(7), values
        assert all(tick == round(tick) for tick in scale.ticks(7)), values


def test_a_chart_of_one_candidate_shows_no_impossible_numbers(tmp_path: Path) -> None:
    good_run(tmp_path / "source")
    with RunStore.read(tmp_path / "source") as store:
        events = store.events()
    with RunStore.create(tmp_path / "r") as store:
        store.commit(events[:2])
    with Browse(tmp_path / "r") as browse:
        trail = read_trail(browse)
    for axis in ("rollouts", "seconds"):
        chart = str(progress_chart(trail, axis, frozenset({0})))
        ticks = [float(text) for text in re.findall(r'<text class="tick"[^>]*>([^<]*)</text>', chart)]
        assert len(ticks) > 4
        assert min(ticks) >= 0
        if axis == "rollouts":
            across = [float(text) for text in re.findall(r'text-anchor="middle">([\d.]+)</text>', chart)]
            assert across[0] == 0
            assert all(tick == round(tick) for tick in across)
            assert max(across) <= 40


def test_the_tree_of_a_large_run_keeps_the_winners_whole_line(tmp_path: Path) -> None:
    write_large_run(tmp_path / "r", Size(400, 12_000), seed=1)
    with Browse(tmp_path / "r") as browse:
        trail = read_trail(browse)
        look = Look(trail, browse, TextSpace(trail.modules))
        shown = shown_nodes(trail, look.front)
        assert len(shown) == MOST
        assert trail.winner is not None
        assert ancestors_of(trail, trail.winner.index) <= set(shown)
        matrix = matrix_of(trail)
    assert matrix.levels.shape == (400, len(matrix.columns))
    means = np.nanmean(matrix.values, axis=0)
    assert (np.diff(means) <= 1e-12).all(), "the easiest examples come first"
    assert "data:image/png;base64," in matrix_picture(matrix, "all")


def test_the_front_of_a_page_is_the_searchs_own(run: Path) -> None:
    from gepa_lite.insight.stored import read_run

    with Browse(run) as browse:
        trail = read_trail(browse)
        front = Look(trail, browse, TextSpace(trail.modules)).front
    assert sorted(front) == list(read_run(run).result().front)


# the commands


def test_the_commands_write_files(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runner = CliRunner()
    page, image, text = tmp_path / "page.html", tmp_path / "image.png", tmp_path / "text.md"
    assert runner.invoke(app, ["report", str(run), "-o", str(page)]).exit_code == 0
    assert runner.invoke(app, ["report", str(run), "--format", "md", "-o", str(text)]).exit_code == 0
    assert runner.invoke(app, ["report", str(run), "-o", "-"]).stdout.startswith("<!doctype html>")
    assert runner.invoke(app, ["plot", str(run), "-o", str(image), "--over", "seconds"]).exit_code == 0
    Page(page.read_text(encoding="utf-8")).check()
    assert image.read_bytes().startswith(b"\x89PNG")
    assert "Verdict" in text.read_text(encoding="utf-8")
    assert list(tmp_path.glob(".*.part")) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "RUN", "--format", "pdf"],
        ["report", "RUN", "-o", "/nowhere/x.html"],
        ["plot", "RUN", "-o", "x.gif"],
        ["plot", "RUN", "-o", "x.png", "--over", "tea"],
    ],
    ids=" ".join,
)
def test_wrong_arguments_are_refused(arguments: list[str], run: Path) -> None:
    found = CliRunner().invoke(app, [str(run) if word == "RUN" else word for word in arguments])
    assert found.exit_code != 0
    assert "Traceback" not in found.output


def test_labels_of_a_tree_do_not_cover_each_other_and_the_winner_has_one(tmp_path: Path) -> None:
    write_large_run(tmp_path / "large", Size(300, 9_000), 0)
    with Browse(tmp_path / "large") as browse:
        trail = read_trail(browse)
    assert trail.winner is not None
    drawn = str(lineage_chart(trail, {trail.winner.index}))
    labels = re.findall(r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>#(\d+) ', drawn)
    assert str(trail.winner.index) in {index for _, _, index in labels}
    assert 10 < len(labels) < drawn.count("<circle")
    rows: dict[str, list[float]] = {}
    for x, y, _ in labels:
        rows.setdefault(y, []).append(float(x))
    assert min(b - a for row in rows.values() for a, b in itertools.pairwise(sorted(row))) > 60
