"""What the leak guard looks for, and what it does about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gepa_lite.errors import UsageError

Span = tuple[str, int, int]
"""What was found (in a few words, such as ``"a passport number"``), its first character, and the character after it."""

Detector = Callable[[str], Iterable[Span]]
"""Finds personal data or secrets of your kind in a text. The same text must give the same spans."""

MODES = ("reject", "warn", "off")


@dataclass(frozen=True, slots=True)
class Guard:
    """The leak guard's options: ``gl.Search(guard=gl.Guard(...))``, or ``Search(guard="warn")`` for the mode alone.

    Attributes:
        mode: ``"reject"``: a proposed text that leaks is asked for once more, then rejected before a rollout is paid for; ``"warn"``: it goes on, and the result lists what was found;
            ``"off"``: nothing is looked for.
        words: words in a row that a prompt may not share with an example; shorter inputs and labels are looked for as a whole.
        copies: whether copied examples are looked for.
        personal: e-mail addresses, phone, card, account and social security numbers.
        secrets: keys, tokens and passwords in URLs.
        meta: the optimizer's own instructions and talk about the prompt.
        allow: texts that may stand in a prompt whatever they are, such as your support address.
        ignore: fields of the examples whose text may stand in prompts, such as a written rule that comes with each example.
        region: two letters, such as ``"US"``: finds phone numbers without a country code too.
        detectors: functions of your own that find further personal data.

    Raises:
        UsageError: an argument is wrong.

    Example:
        >>> Guard(mode="warn", allow=("help@fernpost.com",)).mode
        'warn'
    """

    mode: Literal["reject", "warn", "off"] = "reject"
    words: int = 6
    copies: bool = True
    personal: bool = True
    secrets: bool = True
    meta: bool = True
    allow: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    region: str | None = None
    detectors: tuple[Detector, ...] = ()

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise UsageError(f"Guard(mode={self.mode!r}): 'reject', 'warn' or 'off' is needed.")
        if not isinstance(self.words, int) or isinstance(self.words, bool) or self.words < 3:
            raise UsageError(
                f"Guard(words={self.words!r}): a whole number of at least 3 is needed; fewer words in a row are shared by chance."
            )
        for name in ("allow", "ignore"):
            value = getattr(self, name)
            texts = (value,) if isinstance(value, str) else tuple(value)
            if not all(isinstance(text, str) and text for text in texts):
                raise UsageError(f"Guard({name}={value!r}): texts that are not empty are needed.")
            # frozen: one text and a list are spelled out once, here
            object.__setattr__(self, name, texts)
        object.__setattr__(self, "detectors", tuple(self.detectors))
        if not all(callable(detector) for detector in self.detectors):
            raise UsageError("Guard(detectors=...): functions are needed that take a text and give (what, start, end).")

    def fingerprint(self) -> Mapping[str, Any]:
        """The options as JSON types; detectors by their names."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if item.name != "detectors"}
        names = [f"{getattr(d, '__module__', '')}.{getattr(d, '__qualname__', type(d).__qualname__)}" for d in self.detectors]
        return {**{name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}, "detectors": names}
