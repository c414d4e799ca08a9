"""What a prompt must keep to before a rollout is paid for (design decision 10)."""

from __future__ import annotations

from dataclasses import dataclass, replace

_CHARACTERS_PER_TOKEN = 4
_SHOWN = 120


@dataclass(frozen=True, slots=True)
class Contract:
    """Bounds on one module's text.

    Attributes:
        max_tokens: length in tokens, estimated at four characters each.
        frozen: spans that must stand in the text, letter by letter.
    """

    max_tokens: int = 2_000
    frozen: tuple[str, ...] = ()

    def within(self, max_tokens: int) -> Contract:
        """The same under another bound of the length."""
        return replace(self, max_tokens=max_tokens)

    def breach(self, text: str) -> str | None:
        """What the text breaks, in words, or None."""
        tokens = -(-len(text) // _CHARACTERS_PER_TOKEN)
        if tokens > self.max_tokens:
            return f"the prompt has about {tokens:,} tokens; at most {self.max_tokens:,} are allowed (Search(max_prompt_tokens=))"
        for span in self.frozen:
            if span not in text:
                shown = span if len(span) <= _SHOWN else span[:_SHOWN] + "..."
                return f"the prompt lost a part that must stay as it is, letter by letter: {shown}"
        return None
