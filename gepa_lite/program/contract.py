"""What a prompt must keep to before a rollout is paid for (design decision 10)."""

from __future__ import annotations

from dataclasses import dataclass

_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Contract:
    """Bounds on one module's text.

    Attributes:
        max_tokens: length in tokens, estimated at four characters each.
    """

    max_tokens: int = 2_000

    def breach(self, text: str) -> str | None:
        """What the text breaks, in words, or None."""
        tokens = -(-len(text) // _CHARACTERS_PER_TOKEN)
        if tokens > self.max_tokens:
            return f"the prompt has about {tokens:,} tokens; at most {self.max_tokens:,} are allowed (Search(max_prompt_tokens=))"
        return None
