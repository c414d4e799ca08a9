"""LangChain's ``ChatPromptTemplate`` as JSON, one file for each module, written and read by ``langchain_core`` itself."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from gepa_lite.core.call import Message
from gepa_lite.core.placeholders import placeholders_of
from gepa_lite.errors import UsageError
from gepa_lite.exports.source import INPUTS, Reading, Source, file_name, filled, prompt_in, system_of
from gepa_lite.ship.atomic import write_atomically

_ENDING = ".langchain.json"
_ROLES = {"system": "system", "human": "user", "ai": "assistant"}


def write_langchain(source: Source, path: Path) -> None:
    """A template of a system and a human message, whose variable ``inputs`` is the user message; of a prompt that is itself a ``str.format`` template, its own variables."""
    core = _core()
    path.mkdir(parents=True, exist_ok=True)
    for module, entry in source.modules.items():
        pairs = [("system", _template(entry)), *([("human", f"{{{INPUTS}}}")] if entry.get("frame") else [])]
        template = core.prompts.ChatPromptTemplate.from_messages(pairs)
        write_atomically(path / file_name(module, _ENDING), core.load.dumps(template, pretty=True) + "\n")


def read_langchain(source: Source, path: Path) -> Reading:
    """By ``langchain_core.load``; the texts by rendering the templates."""
    core = _core()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", core._api.LangChainBetaWarning)  # the loader itself
        files = {module: (path / file_name(module, _ENDING)).read_text("utf-8") for module in source.modules}
        templates = {module: core.load.loads(text, allowed_objects="core") for module, text in files.items()}

    def messages(module: str, user: str) -> list[Message]:
        return [{"role": _ROLES[m.type], "content": m.content} for m in templates[module].invoke({INPUTS: user}).to_messages()]

    texts = {}
    for module, template in templates.items():
        entry = source.modules[module]
        if _is_format_template(entry):
            texts[module] = template.messages[0].prompt.template
        else:
            texts[module] = prompt_in(
                template.invoke(dict.fromkeys(template.input_variables, "")).to_messages()[0].content, entry, str(path)
            )
    return Reading(texts, filled(source, messages))


def _is_format_template(entry: Any) -> bool:
    """A prompt that the user's own code fills in by ``str.format``: LangChain's templates are of the same grammar."""
    wanted = (entry.get("contract") or {}).get("placeholders") or ()
    return (
        entry.get("frame") is None
        and any(item.startswith("{") and not item.startswith("{{") for item in wanted)
        and bool(placeholders_of(entry["prompt"]))
    )


def _template(entry: Any) -> str:
    text = system_of(entry)
    return text if _is_format_template(entry) else text.replace("{", "{{").replace("}", "}}")


def _core() -> Any:
    try:
        import langchain_core.load
        import langchain_core.prompts
    except ImportError:
        raise UsageError("the langchain format needs LangChain: pip install langchain-core.") from None
    return langchain_core
