"""How often does the leak guard refuse an honest prompt, and how often does it find a copy?

Honest: hand-written prompts that name labels, define them and paraphrase rules; and sentences of the same domain that the guard has not seen (the test set's inputs against training and
validation examples alone). Copies: test inputs put into an honest prompt, as they are and lightly edited; answers beside what they answer; made-up personal data and secrets; talk about
prompts. Only counts are printed, never a text. ``-- MODEL`` adds what a real model proposes: rewrites and edits of runs with the guard on "warn".
"""

from __future__ import annotations

import json
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gepa_lite as gl
from benchmarks.guard_sets import Set, data_sets, open_task_gate
from benchmarks.report import Options, Report, Row
from gepa_lite import api
from gepa_lite.core.candidate import Candidate
from gepa_lite.core.example import Example, make_example
from gepa_lite.core.seeds import stream
from gepa_lite.core.sentences import sentences_of
from gepa_lite.demo.task import Fernpost, demo_settings, load_splits
from gepa_lite.guard.words import folded_words
from gepa_lite.lm.resolve import open_lm
from gepa_lite.search.gate import Gate
from gepa_lite.session import Session
from gepa_lite.store.memory import MemoryStore
from gepa_lite.testing import ScriptedLM

PROMPTS: dict[str, list[str]] = json.loads((Path(__file__).parent / "guard_prompts.json").read_text("utf-8"))
COPIES, QUICK_COPIES = 300, 40
REFLECTIONS = 16
SMALL = 50
HONEST = ("trec", "banking77", "facility", "gsm8k", "demo")


def run(options: Options) -> Report:
    """Count."""
    rows: list[Row] = []
    counted = 0
    copies = QUICK_COPIES if options.quick else COPIES
    sets = data_sets()
    for data in sets:
        for measure, flagged, n in (*_honest(data, options), *_left_out(data), *_copied(data, copies)):
            rows.append(_row(f"{data.name}: {measure}", flagged, n))
            counted += n
    for measure, flagged, n in (*_demo(), *_sensitive(sets[0])):
        rows.append(_row(measure, flagged, n))
        counted += n
    for model in options.rest:
        for measure, flagged, n in _reflected(model, sets[0]):
            rows.append(_row(measure, flagged, n))
            counted += n
    rows += _speed(sets)
    return Report(
        "guard",
        rows,
        counted,
        options.seeds,
        extra={"rows_say": "flagged of n; honest ones should be few, copies many", "reflection_models": list(options.rest)},
    )


def _row(measure: str, flagged: int, n: int) -> Row:
    return Row(measure, f"{flagged} of {n} ({100 * flagged / n:.1f} %)" if n else "0 of 0")


def _flags(gate: Gate, text: str, prompt: str, *rules: str) -> bool:
    """Whether the guard refuses a prompt with the text in it, for one of the rules."""
    found = gate.check("step", f"{prompt}\n{text}", Candidate({"step": prompt}))
    return any(not item.rule.startswith("contract:") and (not rules or item.rule in rules) for item in found)


def _honest(data: Set, options: Options) -> Iterable[tuple[str, int, int]]:
    if not data.honest:
        return
    prompts = PROMPTS[data.honest]
    sentences = [sentence.strip() for prompt in prompts for sentence in sentences_of(prompt)]
    for output in data.outputs:
        gate = data.gate(output)
        yield f"honest sentences, {output}", sum(_flags(gate, text, data.prompt) for text in sentences), len(sentences)
        small = [_small(data, output, seed) for seed in options.seeds]
        flagged = sum(_flags(gate, text, data.prompt) for gate in small for text in sentences)
        yield f"honest sentences, {output}, {SMALL} a split", flagged, len(sentences) * len(small)
        yield f"honest prompts, {output}", sum(_flags(gate, text, data.prompt) for text in prompts), len(prompts)
        yield f"all of them as one prompt, {output}", int(_flags(gate, "\n".join(prompts), data.prompt)), 1


def _small(data: Set, output: str, seed: int) -> Gate:
    draw = stream(seed, "small", data.name)
    return data.gate(output, {name: draw.sample(list(found), min(SMALL, len(found))) for name, found in data.splits.items()})


def _left_out(data: Set) -> Iterable[tuple[str, int, int]]:
    """Sentences of the domain that are in no example: the test inputs, the test set not shown to the guard."""
    gate = data.gate(next(iter(data.outputs)), {**data.splits, "test": []})
    texts = [sentence.strip() for example in data.splits["test"] for sentence in sentences_of(str(example[data.text]))]
    yield (
        "unseen sentences of the domain",
        sum(_flags(gate, text, data.prompt, "copied_input", "copied_label") for text in texts),
        len(texts),
    )


def _copied(data: Set, copies: int) -> Iterable[tuple[str, int, int]]:
    gate = data.gate(next(iter(data.outputs)))
    everything = [example for split in data.splits.values() for example in split]
    chosen = stream(0, "copies", data.name).sample(everything, min(copies, len(everything)))
    rules = ("copied_input", "copied_label")
    edits: dict[str, Callable[[str, random.Random], str]] = {
        "as it is": lambda text, draw: text,
        "letters alone": lambda text, draw: re.sub(r"[^\w\s]", "", text.lower()),
        "one word in six left out": _without_words,
        "one word in six replaced": _with_other_words,
    }
    for least, most, length in ((1, 5, "up to 5 words"), (6, 9, "6 to 9 words"), (10, 10**9, "10 words up")):
        some = [example for example in chosen if least <= len(re.findall(r"\w+", str(example[data.text]))) <= most]
        if not some:
            continue
        for name, edit in edits.items():
            texts = [edit(str(example[data.text]), stream(0, name, example.id)) for example in some]
            yield f"copied, {length}: {name}", sum(_flags(gate, text, data.prompt, *rules) for text in texts), len(texts)
    yield from _answers(data, gate, chosen)


def _answers(data: Set, gate: Gate, chosen: Sequence[Example]) -> Iterable[tuple[str, int, int]]:
    if data.name == "gsm8k":
        counts = Counter(
            word for split in data.splits.values() for example in split for word in set(folded_words(str(example["question"])))
        )
        table = []
        for example in chosen:
            rare = sorted(set(folded_words(str(example["question"]))), key=lambda word: (counts[word], word))[:3]
            table.append(f"{', '.join(rare)}: {example['answer']}")
        yield "answers beside three rare words of the question", sum(_flags(gate, text, data.prompt) for text in table), len(table)
        alone = [f"The answer is often {example['answer']}." for example in chosen]
        yield "answers alone", sum(_flags(gate, text, data.prompt) for text in alone), len(alone)
    if data.label:
        texts = [str(example[data.label]) for example in chosen]
        yield f"copied answers ({data.label})", sum(_flags(gate, text, data.prompt, "copied_label") for text in texts), len(texts)
    if data.name == "pupa":
        units = list(dict.fromkeys(str(unit) for example in chosen for unit in example["pii_units"] if unit))
        yield "private facts, each alone", sum(_flags(gate, f"Leave out {unit}.", data.prompt) for unit in units), len(units)


def _without_words(text: str, draw: random.Random) -> str:
    words = text.split()
    for _ in range(max(1, len(words) // 6)):
        del words[draw.randrange(len(words))]
    return " ".join(words)


def _with_other_words(text: str, draw: random.Random) -> str:
    words = text.split()
    for place in draw.sample(range(len(words)), max(1, len(words) // 6)):
        words[place] = "thing"
    return " ".join(words)


def _demo() -> Iterable[tuple[str, int, int]]:
    names = ("train", "validation", "test")
    splits = {name: [make_example(row, ["message"], [], name) for row in rows] for name, rows in zip(names, load_splits(), strict=True)}
    gate = open_task_gate(Fernpost(ScriptedLM("x")), splits)
    seed = Fernpost(ScriptedLM("x")).prompts
    sentences = [sentence.strip() for prompt in PROMPTS["demo"] for sentence in sentences_of(prompt)]
    flagged = sum(bool(gate.check("topic", f"{seed['topic']}\n{text}", Candidate(seed))) for text in sentences)
    yield "demo: honest sentences, house rules included", flagged, len(sentences)
    messages = [str(example["message"]) for examples in splits.values() for example in examples]
    flagged = sum(bool(gate.check("topic", f"{seed['topic']}\n{text}", Candidate(seed))) for text in messages)
    yield "demo: copied messages", flagged, len(messages)


def _reflected(model: str, data: Set) -> Iterable[tuple[str, int, int]]:
    """What a model writes when it reflects on wrong answers."""
    lm = open_lm(model)
    train, validation, _ = load_splits()
    small = [[dict(example) for example in data.splits[split][:SMALL]] for split in ("train", "validation")]

    class Task(gl.Program):
        """Classify a question."""

        step = gl.Module(f"text -> {data.outputs['labels as a type']}", data.prompt)

        def forward(self, text: str) -> gl.Outputs:
            return self.step(text=text)

        def feedback(self, example: Example, output: gl.Outputs) -> gl.Feedback:
            return gl.Feedback(output.label == example["label"], f"The label should be {example['label']}, and it was {output.label}.")

    tasks: list[tuple[str, gl.Program, list[list[dict[str, Any]]], gl.Search]] = [
        ("demo, edits", Fernpost(ScriptedLM(_guess)), [train, validation], replace(demo_settings(0)[1], guard="warn")),
        (
            f"{data.name}, rewrites",
            Task(ScriptedLM(_guess)),
            small,
            gl.Search.paper(guard="warn", minibatch=4, reflection_tokens=400),
        ),
    ]
    for name, program, (learn, compare), search in tasks:
        budget = gl.Budget(rollouts=10_000, proposals=REFLECTIONS)
        prepared = api.prepare(program, learn, compare, reflection_lm=lm, budget=budget, search=search, workers=1)
        state = Session(prepared.spec, MemoryStore()).run().state
        written = [proposal for proposal in state.proposals if proposal.texts]
        for rules, words in (
            (("copied_input", "copied_label"), "copies"),
            (("meta",), "talk about prompts"),
            (("personal", "secret"), "sensitive"),
        ):
            flagged = sum(any(found.rule in rules for found in proposal.findings) for proposal in written)
            yield f"{name} by {model}: {words}", flagged, len(written)


def _guess(request: gl.Request) -> str:
    """In place of a task model: one of the labels that its prompt names, whatever the text says."""
    text = "\n".join(message["content"] for message in request.messages)
    named = re.findall(r"'([\w ]+)'|\b(plants|delivery|payment|subscription|gift|other|fern|moss|ivy|sage|palm)\b", text)
    words = [first or second for first, second in named] or re.findall(r"\b[A-Z][a-z]+\b", text)
    return str(random.Random(text).choice(words))


def _sensitive(data: Set) -> Iterable[tuple[str, int, int]]:
    gate = data.gate(next(iter(data.outputs)))
    yield (
        "look-alikes of personal data and secrets",
        sum(_flags(gate, text, data.prompt) for text in PROMPTS["look_alikes"]),
        len(PROMPTS["look_alikes"]),
    )
    honest = [text for name in HONEST for text in PROMPTS[name]]
    yield "honest prompts, as talk about prompts", sum(_flags(gate, text, data.prompt, "meta") for text in honest), len(honest)
    yield "talk about prompts", sum(_flags(gate, text, data.prompt, "meta") for text in PROMPTS["meta"]), len(PROMPTS["meta"])
    for kind, rule, texts in (("personal data", "personal", made_up_personal()), ("secrets", "secret", made_up_secrets())):
        yield f"made-up {kind}", sum(_flags(gate, f"Mind {text} here.", data.prompt, rule) for text in texts), len(texts)


def made_up_personal() -> list[str]:
    """Personal data with valid forms and check digits that are nobody's: reserved, or of the schemes' own documentation."""
    people = [
        f"{first}.{last}@{host}"
        for first in ("ada", "grace", "alan")
        for last in ("king", "hill")
        for host in ("mailbox.org", "uni-mail.de")
    ]
    phones = ["+44 20 7946 0018", "+1 (212) 555-0142", "+49 30 901820", "+33 1 42 68 53 00"]
    cards = ["4111 1111 1111 1111", "5500-0000-0000-0004", "340000000000009", "6011000000000004"]
    accounts = ["DE89 3704 0044 0532 0130 00", "GB29NWBK60161331926819", "FR14 2004 1010 0505 0001 3M02 606"]
    return [*people, *phones, *cards, *accounts, "536-90-4399"]


def made_up_secrets() -> list[str]:
    """Keys of the usual forms, put together here so that no scanner takes this file for a leak."""
    draw = stream(0, "secrets")
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

    def text(count: int) -> str:
        return "".join(draw.choice(letters) for _ in range(count))

    def upper(count: int) -> str:
        return "".join(draw.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") for _ in range(count))

    kinds: list[Callable[[], str]] = [
        lambda: "AK" + "IA" + upper(16),
        lambda: "gh" + "p_" + text(36),
        lambda: "sk" + "_live_" + text(24),
        lambda: "sk-" + text(20) + "T3Blbk" + "FJ" + text(20),
        lambda: "sk-ant-api03-" + text(40) + "1a2",
        lambda: "xo" + "xb-" + "123456789012-1234567890123-" + text(24),
        lambda: "gl" + "pat-" + text(20),
        lambda: "np" + "m_" + text(36),
        lambda: "SG" + "." + text(22) + "." + text(43),
        lambda: "https://admin:" + text(12) + "@db.internal/x",
        lambda: "-----BEGIN RSA " + "PRIVATE KEY-----",
    ]
    return [kind() for kind in kinds for _ in range(4)]


def _speed(sets: Sequence[Set]) -> list[Row]:
    """A prompt of 2,000 tokens against 1,000 examples."""
    data = sets[1]
    splits = {"train": data.splits["train"][:400], "validation": data.splits["validation"][:300], "test": data.splits["test"][:300]}
    start = time.process_time()
    gate = data.gate("labels as a type", splits)
    built = time.process_time() - start
    text = " ".join(PROMPTS["banking77"] * 3)[:8_000]
    taken = []
    for _ in range(31):
        start = time.process_time()
        gate.check("step", text, Candidate({"step": text[:6_000]}))
        taken.append(time.process_time() - start)
    return [
        Row("the index of 1,000 examples, ms of CPU", 1_000 * built),
        Row(
            "a look: 2,000 tokens, 1,000 examples, ms of CPU (median of 31)",
            1_000 * statistics.median(taken),
            goal="< 100",
            met=statistics.median(taken) < 0.1,
        ),
    ]
