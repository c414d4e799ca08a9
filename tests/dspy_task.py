"""What the dspy tests share: a server that answers in dspy's chat form, and small programs."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

# before dspy is imported: its cache is a folder in the user's home otherwise
os.environ.setdefault("DSPY_CACHEDIR", tempfile.mkdtemp(prefix="dspy-cache-"))
dspy: Any = pytest.importorskip("dspy")

from gepa_lite.testing import OpenAIServer, Reply  # noqa: E402

Messages = list[dict[str, Any]]
Answer = Mapping[str, Any] | str | Reply

_FIELD = re.compile(r"\[\[ ## (\w+) ## \]\]\n(.*?)(?=\n\n\[\[ ## |\n\nRespond with|\Z)", re.DOTALL)


def fields_of(messages: Messages) -> dict[str, str]:
    """The input fields of a chat request in dspy's form, and under ``""`` the whole message."""
    text = messages[-1]["content"]
    return {**dict(_FIELD.findall(text)), "": text}


def chat(**fields: Any) -> str:
    """A reply in dspy's chat form."""
    return "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in fields.items()) + "\n\n[[ ## completed ## ]]"


@contextmanager
def serving(answer: Callable[[str, dict[str, str]], Answer], **options: Any) -> Iterator[tuple[OpenAIServer, Any]]:
    """A local server that answers ``answer(system message, input fields)``, and a ``dspy.LM`` on it, set for the block alone."""

    def script(messages: Messages) -> Any:
        value = answer(messages[0]["content"], fields_of(messages))
        return chat(**value) if isinstance(value, Mapping) else value

    with OpenAIServer(script) as server:
        lm = dspy.LM("openai/gpt-4.1-mini", **{"api_base": server.base_url, "api_key": "sk-test", "num_retries": 0, **options})
        with dspy.context(lm=lm):
            yield server, lm


class Shout(dspy.Module):  # type: ignore[misc]
    """Shout a word."""

    def __init__(self) -> None:
        super().__init__()
        self.say = dspy.Predict("word -> reply")

    def forward(self, word: str) -> Any:
        return self.say(word=word)


def shout(system: str, fields: dict[str, str]) -> Answer:
    """Repeats the word; in capital letters where the prompt says so."""
    return {"reply": fields["word"].upper() if "capital" in system else fields["word"]}


def words(*names: str) -> list[Any]:
    """Examples of ``Shout``."""
    return [dspy.Example(word=name, want=name.upper()).with_inputs("word") for name in names]


TRAIN, VALIDATION = words("red", "green", "blue", "white"), words("black", "brown", "pink", "gold")
BETTER = "<prompt>Repeat the word in capital letters.</prompt>"


def right(example: Any, pred: Any, trace: Any = None) -> Any:
    """A dspy metric with words."""
    return dspy.Prediction(score=float(pred.reply == example.want), feedback="Answer in capital letters.")
