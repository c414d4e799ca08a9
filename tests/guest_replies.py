"""A scripted reflection model for the optimizers of other packages: it answers each in its own form, and adds the first rule that the text before it names and the prompt lacks."""

from __future__ import annotations

import json
import re

import gepa_lite as gl
from tests.triage import RULES


def reply(request: gl.Request) -> str:
    """Tell by its form which package asks."""
    text = "\n".join(str(message["content"]) for message in request.messages)
    if "`new_instruction`" in text:
        return json.dumps({"new_instruction": improved(text.split("[[ ## current_instruction ## ]]")[-1].split("[[ ##")[0].strip(), text)})
    if field := re.search(r"starting with the field `\[\[ ## (\w+) ## \]\]`", text):
        names = sorted(RULES)
        place = len(text) % len(names)
        words = f"Decide how urgent it is. rule {names[place]}. rule {names[place - 1]}."
        return f"[[ ## {field[1]} ## ]]\n{words}\n\n[[ ## completed ## ]]"
    if "<IMPROVED_VARIABLE>" in text:
        current = text.split("<VARIABLE> ")[-1].split(" </VARIABLE>")[0]
        return f"<IMPROVED_VARIABLE>{improved(current, text)}</IMPROVED_VARIABLE>"
    if prompt := re.search(r"prompt_route0=(.*)", text):
        return json.dumps({"reasoning": "", "answer": "", "suggestion": {"prompt_route0": improved(prompt[1].strip(), text)}})
    # a textual gradient hands the feedback on
    return "Mind this: " + " ".join(f"RULE:{kind}" for kind in sorted(set(re.findall(r"RULE:(\w+)", text))))


def improved(current: str, text: str) -> str:
    """A prompt with one more rule."""
    new = [kind for kind in re.findall(r"RULE:(\w+)", text) if f"rule {kind}" not in current]
    return f"{current} rule {new[0]}." if new else current
