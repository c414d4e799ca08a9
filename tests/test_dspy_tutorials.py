"""Public shapes of dspy programs, optimized without a change to their code; the scripted model does what its prompt tells it."""

from __future__ import annotations

import json
import re
from typing import Any

import gepa_lite as gl
from gepa_lite.testing import ScriptedLM
from tests.dspy_task import dspy, serving
from tests.dspy_tutorials import CORPUS, QUESTIONS, Hop, Person, agent, extractor, lookup

NAMES = re.compile(r"[A-Z]\w+ [A-Z]\w+")


def hop(system: str, fields: dict[str, str]) -> Any:
    """Asks for the colleague in the second hop only where the prompt says to read the notes."""
    if "context" in fields:
        return {"reasoning": "noted", "new_notes": json.dumps(articles(fields["context"]))}
    if "query" in system.partition("Your output fields")[2].partition("All interactions")[0]:
        named = NAMES.findall(fields["question"])
        noted = NAMES.findall(fields["notes"])
        return {"reasoning": "look", "query": (noted or named)[-1] if "notes" in task_of(system) else named[-1]}
    return {"answer": next((place for place in ("London", "Hoboken", "Chelsea", "Frankfurt") if place in fields["notes"]), "unknown")}


def articles(context: str) -> list[str]:
    return [text for text in CORPUS.values() if text in context]


def task_of(system: str) -> str:
    """The instructions alone, as dspy's chat adapter writes them."""
    return system.partition("your objective is:")[2].replace("`notes`", "")


def test_the_multi_hop_shape_is_optimized_as_it_is() -> None:
    def metric(example: Any, pred: Any, trace: Any = None) -> Any:
        good = pred.answer == example.place
        return dspy.Prediction(score=float(good), feedback="Right." if good else f"The notes had to name {example.colleague}.")

    reflection = ScriptedLM("<prompt>Search for the person in the notes if there is one.</prompt>")
    with serving(hop):
        result = gl.optimize(Hop(), QUESTIONS[:2], QUESTIONS[2:], feedback=metric, reflection_lm=reflection, budget=gl.Budget(rollouts=60))
        assert (result.validation.before, result.validation.after) == (0.0, 1.0)
        assert list(result.prompts) == ["generate_query.predict", "append_notes.predict", "answer"]
        assert result.program(question=QUESTIONS[0].question).answer == "London"
    changed = [path for path, text in result.prompts.items() if text != result.seed_prompts[path]]
    assert "generate_query.predict" in changed
    shown = reflection.requests[0].messages[0]["content"]
    assert "Answer a question that needs several articles." in shown


def test_the_extraction_shape_is_optimized_as_it_is() -> None:
    def answer(system: str, fields: dict[str, str]) -> Any:
        people = [{"name": name, "role": "scientist"} for name in NAMES.findall(fields["text"])]
        if "every person" not in system:
            people = people[:1]
        return {"reasoning": "read", "people": json.dumps(people)}

    def metric(example: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
        found = {person.name for person in pred.people}
        missed = {person.name for person in example.people} - found
        score = 1 - len(missed) / len(example.people)
        if pred_name is None:
            return score
        return dspy.Prediction(score=score, feedback=f"{pred_name} missed {', '.join(sorted(missed)) or 'nobody'}.")

    texts = [f"{a} met {b} in Vienna." for a in list(CORPUS)[:3] for b in list(CORPUS)[4:6]]
    rows = [
        dspy.Example(text=text, people=[Person(name=name, role="scientist") for name in NAMES.findall(text)]).with_inputs("text")
        for text in texts
    ]
    reflection = ScriptedLM("<prompt>Extract every person that a text names.</prompt>")
    with serving(answer):
        result = gl.optimize(extractor(), rows[:3], rows[3:], feedback=metric, reflection_lm=reflection, budget=gl.Budget(rollouts=60))
        assert (result.validation.before, result.validation.after) == (0.5, 1.0)
        people = result.program(text="Ada Lovelace met Otto Hahn.").people
    assert people == [Person(name="Ada Lovelace", role="scientist"), Person(name="Otto Hahn", role="scientist")]
    assert "predict missed" in reflection.requests[0].messages[0]["content"]


def act(system: str, fields: dict[str, str]) -> Any:
    """An agent that reads the colleague's article too only where its prompt says to go on."""
    trajectory = fields[""]
    if "place" in system.partition("Your output fields")[2].partition("All interactions")[0]:
        place = re.findall(r"born in (\w+)", trajectory)
        return {"reasoning": "read", "place": place[-1] if place else "unknown"}
    seen = [title for title in CORPUS if CORPUS[title] in trajectory]
    title = NAMES.findall(fields["question"])[0] if not seen else CORPUS[seen[-1]].split(" with ")[-1].rstrip(".")
    if seen and ("second article" not in system or len(seen) > 1):
        return {"next_thought": "done", "next_tool_name": "finish", "next_tool_args": "{}"}
    return {"next_thought": "read", "next_tool_name": "lookup", "next_tool_args": json.dumps({"title": title})}


def test_the_agent_shape_is_optimized_and_its_tool_docs_reach_every_request() -> None:
    def metric(example: Any, pred: Any, trace: Any = None) -> tuple[bool, str]:
        return pred.place == example.place, f"Two articles are needed, the second of {example.colleague}."

    reflection = ScriptedLM("<prompt>Read a second article: that of the colleague.</prompt>")
    with serving(act) as (server, _):
        result = gl.optimize(
            agent(), QUESTIONS[:2], QUESTIONS[2:], feedback=metric, reflection_lm=reflection, budget=gl.Budget(rollouts=60)
        )
        assert (result.validation.before, result.validation.after) == (0.0, 1.0)
        assert result.program(question=QUESTIONS[0].question).place == "London"
        systems = [request["messages"][0]["content"] for request in server.requests]
    docs = str(dspy.Tool(lookup))
    acting = [system for system in systems if "next_tool_name" in system.partition("All interactions")[0]]
    assert len(acting) > 20
    assert all(docs in " ".join(system.split()) or docs in system for system in acting)
    assert docs in result.program.react.signature.instructions
    assert "lookup" not in result.prompts["react"]
