"""The texts of a dspy program that may be rewritten: where they stand, what they are for, and how another one is put in their place.

Instructions of each predictor; on request the descriptions of fields and tools. A classic ReAct keeps its tools' documentation inside its instructions: that part is cut off, kept and put back, so
that no rewrite can lose or bend it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gepa_lite.adapters.dspy import load_dspy
from gepa_lite.adapters.dspy.clone import reachable
from gepa_lite.core.ids import content_hash
from gepa_lite.program.annotation import annotation_text, annotation_words, structure

Kind = Literal["instructions", "field", "tool"]

_OWN_TOOLS = frozenset({"finish", "submit"})
"""Tools that dspy adds itself."""

_BEFORE_TOOLS = re.compile(r"When selecting the next_tool_name[^\n]*\n+\Z")


@dataclass(frozen=True)
class Spot:
    """A place of a text in a program.

    Attributes:
        path: of the part.
        kind: what it is.
        owner: path of the predictor whose calls it shapes; for a tool, of the agent's.
        name: of the field or tool; "" for instructions.
        kept: what follows instructions in the prompt and stays as it is, white space before it included.
    """

    path: str
    kind: Kind
    owner: str
    name: str = ""
    kept: str = ""


@dataclass(frozen=True)
class Layout:
    """What a program's copies have in common.

    Attributes:
        spots: of the texts, in the program's order.
        frozen: paths of predictors that dspy does not list: of compiled submodules, and within nested containers.
    """

    spots: Mapping[str, Spot]
    frozen: tuple[str, ...] = ()


def layout_of(program: Any, *, fields: bool, tools: bool) -> Layout:
    """Where the texts of a program stand.

    Args:
        program: a ``dspy.Module``.
        fields: whether field descriptions are among them.
        tools: whether tool descriptions are among them.
    """
    dspy = load_dspy()
    predictors = dict(program.named_predictors())
    ids = {id(predictor): path for path, predictor in predictors.items()}
    agents = {ids[id(agent.react)]: agent for _, agent in reachable(program) if _is_agent(agent) and id(agent.react) in ids}
    spots: dict[str, Spot] = {}
    for path, predictor in predictors.items():
        spots[path] = Spot(path, "instructions", path, kept=_kept(predictor, agents.get(path)))
        for name in predictor.signature.fields if fields else ():
            spots[f"{path}:{name}"] = Spot(f"{path}:{name}", "field", path, name)
        for tool in _tools(agents.get(path)) if tools else ():
            spots[f"{path}:tool {tool}"] = Spot(f"{path}:tool {tool}", "tool", path, tool)
    frozen = tuple(path for path, value in reachable(program) if isinstance(value, dspy.Predict) and id(value) not in ids)
    return Layout(spots, frozen)


def _is_agent(value: Any) -> bool:
    return type(value).__module__.startswith("dspy.") and hasattr(value, "react") and isinstance(getattr(value, "tools", None), dict)


def agent_of(program: Any, path: str) -> Any:
    """The agent whose predictor has this path, or None."""
    predictor = dict(program.named_predictors())[path]
    return next((value for _, value in reachable(program) if _is_agent(value) and value.react is predictor), None)


def _tools(agent: Any) -> Iterator[str]:
    if agent is not None:
        yield from (name for name in agent.tools if name not in _OWN_TOOLS)


def tool_block(agent: Any) -> str:
    """The documentation of an agent's tools as a classic ReAct writes it into its instructions."""
    return inspect.cleandoc("\n".join(f"({number}) {tool}" for number, tool in enumerate(agent.tools.values(), 1)))


def _kept(predictor: Any, agent: Any) -> str:
    if agent is None:
        return ""
    text, block = predictor.signature.instructions, tool_block(agent)
    start = text.find(block)
    if start < 0:
        return ""
    before = _BEFORE_TOOLS.search(text[:start])
    head = text[: before.start() if before else start].rstrip()
    return str(text[len(head) :])


def spans_to_keep(program: Any, spot: Spot) -> tuple[str, ...]:
    """Lines of tool documentation that stand in instructions in another form than ReAct writes them, as in a state that another optimizer saved."""
    if spot.kind != "instructions" or spot.kept:
        return ()
    agent = agent_of(program, spot.path)
    if agent is None:
        return ()
    text = read_text(program, spot)
    return tuple(line for tool in agent.tools.values() if (line := inspect.cleandoc(str(tool))) in text)


def read_text(program: Any, spot: Spot) -> str:
    """The text at a spot."""
    predictor = dict(program.named_predictors())[spot.owner]
    if spot.kind == "instructions":
        text = str(predictor.signature.instructions)
        return text[: len(text) - len(spot.kept)] if spot.kept else text
    if spot.kind == "field":
        return description_of(predictor.signature, spot.name)
    return str(agent_of(program, spot.owner).tools[spot.name].desc or "")


def description_of(signature: Any, name: str) -> str:
    """A field's description; "" where there is only dspy's placeholder."""
    text = (signature.fields[name].json_schema_extra or {}).get("desc") or ""
    return "" if text == f"${{{name}}}" else str(text)


def write_texts(program: Any, spots: Mapping[str, Spot], texts: Mapping[str, str]) -> None:
    """Put texts in their places. Signatures are bound anew and never changed, since programs share them.

    Args:
        program: a copy of ours.
        spots: all spots of the program.
        texts: by path; what stands there already is left alone.
    """
    predictors = dict(program.named_predictors())
    changed = {path: text for path, text in texts.items() if read_text(program, spots[path]) != text}
    blocks: dict[str, tuple[str, str]] = {}
    for path, text in changed.items():
        spot = spots[path]
        if spot.kind == "tool":
            agent = agent_of(program, spot.owner)
            before = blocks.get(spot.owner, (tool_block(agent), ""))[0]
            agent.tools[spot.name].desc = text
            blocks[spot.owner] = (before, tool_block(agent))
        elif spot.kind == "field":
            predictor = predictors[spot.owner]
            predictor.signature = predictor.signature.with_updated_fields(spot.name, desc=text or f"${{{spot.name}}}")
    for path, predictor in predictors.items():
        if path in changed or path in blocks:
            text = texts.get(path, read_text(program, spots[path]))
            kept = spots[path].kept
            old, new = blocks.get(path, ("", ""))
            kept = kept.replace(old, new) if old else kept
            predictor.signature = predictor.signature.with_instructions(text + kept)


def signature_line(signature: Any) -> str:
    """A signature in one line: names and types."""

    def side(fields: Mapping[str, Any]) -> str:
        return ", ".join(name if info.annotation is str else f"{name}: {_type_text(info.annotation)}" for name, info in fields.items())

    return f"{side(signature.input_fields)} -> {side(signature.output_fields)}"


def _type_text(annotation: Any) -> str:
    try:
        return annotation_text(annotation)
    except Exception:  # dspy's own types are objects of any make
        return getattr(annotation, "__name__", str(annotation))


def type_words(annotation: Any) -> str:
    """A type in words; its own name where it is none that we know."""
    try:
        return annotation_words(annotation)
    except Exception:
        return _type_text(annotation)


def fingerprint_of(signature: Any) -> str:
    """A hash of names, types and direction of a signature's fields."""

    def shape(annotation: Any) -> Any:
        try:
            return structure(annotation)
        except Exception:
            return str(annotation)

    sides = (signature.input_fields, signature.output_fields)
    return content_hash([[[name, shape(info.annotation)] for name, info in side.items()] for side in sides])


def words_of(program: Any, spot: Spot) -> str:
    """What a text is for, in words for the reflection model."""
    signature = dict(program.named_predictors())[spot.owner].signature
    lines = ["Inputs:", *_field_lines(signature, signature.input_fields), "Outputs:", *_field_lines(signature, signature.output_fields)]
    if spot.kind == "field":
        side = "input" if spot.name in signature.input_fields else "output"
        lines.insert(
            0,
            f"The text is the description of the {side} field {spot.name!r} alone, shown to the model beside the field's name. The step has these fields.",
        )
    elif spot.kind == "tool":
        tool = agent_of(program, spot.owner).tools[spot.name]
        lines.insert(
            0,
            f"The text is the description of the tool {spot.name!r} alone, by which an agent chooses and calls it. It takes {tool.args}. The agent has these fields.",
        )
    else:
        lines.append("The form of the answer is explained to the model after the prompt.")
        if spot.kept:
            lines += ["These words follow the prompt in any case; leave them out of it:", spot.kept.strip()]
    return "\n".join(lines)


def _field_lines(signature: Any, fields: Mapping[str, Any]) -> Iterator[str]:
    for name, info in fields.items():
        text = " ".join(description_of(signature, name).split())
        yield f"- {name} ({type_words(info.annotation)})" + (f": {text}" if text else "")
