"""The data sets that the leak guard is tried on, and the gate of a run on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import gepa_lite as gl
from benchmarks.data_sets import data_folder, read
from gepa_lite.adapters.native import NativeProgram
from gepa_lite.core.contract import Contracts
from gepa_lite.core.example import Example, make_example
from gepa_lite.search.gate import Gate, open_gate
from gepa_lite.testing import ScriptedLM

Splits = Mapping[str, Sequence[Example]]


@dataclass(frozen=True)
class Set:
    """A data set, and the programs that it is tried with.

    Attributes:
        name: its name.
        splits: ``train``, ``validation`` and ``test``.
        text: the input field.
        prompt: the seed prompt.
        outputs: output fields by what is tried with them.
        honest: names the honest prompts of ``guard_prompts.json``; "" where there are none.
        label: a field of answers that are texts; "" where there is none.
    """

    name: str
    splits: Splits
    text: str
    prompt: str
    outputs: Mapping[str, str]
    honest: str = ""
    label: str = ""

    def gate(self, output: str, splits: Splits | None = None) -> Gate:
        """The gate of a run on this set."""

        class Task(gl.Program):
            step = gl.Module(f"{self.text} -> {self.outputs[output]}", self.prompt)

        return open_task_gate(Task(ScriptedLM("x")), splits or self.splits)


def open_task_gate(program: gl.Program, splits: Splits) -> Gate:
    """The gate of a run of a program."""
    native = NativeProgram(program)
    told = [native.purpose, *(part.words for part in native.parts.values())]
    return open_gate(Contracts(), gl.Search(), splits, native.prompts, told)


def _splits(file: str, text: str, labels: Sequence[str]) -> Splits:
    found: dict[str, list[Example]] = {"train": [], "validation": [], "test": []}
    for row in read(file):
        split = {"val": "validation"}.get(row["split"], row["split"])
        if split in found:
            found[split].append(make_example({name: row[name] for name in (text, *labels)}, [text], [], file))
    if not found["validation"]:
        half = len(found["train"]) // 2
        found["train"], found["validation"] = found["train"][:half], found["train"][half:]
    return found


def data_sets() -> list[Set]:
    """All of them; the rules of the guard were made with the first five at hand, and tried on the others afterwards."""
    outputs = {name: _classes(name) for name in ("trec", "banking77", "agnews", "sst5")}
    baseline = (data_folder() / "facility/baseline_prompt.txt").read_text("utf-8")
    solved = _splits("math/gsm8k.jsonl.gz", "question", ["solution", "answer"])
    private = _splits("pupa/pupa.jsonl.gz", "user_query", ["pii_units", "target_response"])
    talks = _splits("gen/samsum.jsonl.gz", "dialogue", ["summary"])
    posts = _splits("facility/facility_support.jsonl", "input", ["urgency", "sentiment", "categories"])
    choose = "Choose the label that fits the text."
    return [
        Set("trec", _splits("cls/trec.jsonl", "text", ["label"]), "text", choose, outputs["trec"], "trec"),
        Set("banking77", _splits("cls/banking77.jsonl", "text", ["label"]), "text", choose, outputs["banking77"], "banking77"),
        Set("facility", posts, "input", baseline, {"the source's prompt": "answer"}, "facility"),
        Set("gsm8k", solved, "question", "Solve the problem.", {"a number": "answer: float"}, "gsm8k", "solution"),
        Set("pupa", private, "user_query", "Write a request without private facts.", {"a text": "request"}, "pupa"),
        Set("agnews", _splits("cls/agnews.jsonl.gz", "text", ["label"]), "text", choose, outputs["agnews"]),
        Set("sst5", _splits("cls/sst5.jsonl", "text", ["label"]), "text", choose, outputs["sst5"]),
        Set("samsum", talks, "dialogue", "Sum up the dialogue.", {"a text": "summary"}, "", "summary"),
    ]


def _classes(name: str) -> dict[str, str]:
    file = next(path for path in (data_folder() / "cls").iterdir() if path.name.startswith(f"{name}.jsonl"))
    labels = sorted({row["label"] for row in read(f"cls/{file.name}")})
    return {"labels as a type": f"label: Literal[{', '.join(map(repr, labels))}]", "labels unnamed": "label"}
