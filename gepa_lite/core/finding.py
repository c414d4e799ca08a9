"""What was found in a proposed prompt: a broken contract, or a leak."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a proposed text broke or gave away. A secret or a person's data is never in it.

    Attributes:
        module: whose text it is.
        rule: of the contract ``contract:length``, ``contract:placeholder``, ``contract:frozen``, ``contract:required``, ``contract:banned``, ``contract:language`` or ``contract:form``; of the leak guard
            ``copied_input``, ``copied_label``, ``personal``, ``secret`` or ``meta``.
        words: what is wrong, for a person and for the reflection model.
        blocks: False where the guard only warns.
        attempt: 0 for the first reply, 1 for the reply to the one question that named the breach.
        split: where the example is that was copied: ``train``, ``validation``, ``test``, ``curve`` or ``pins``; "" where none was.
        example_id: its id, or "".
        start: first character of the place in the text, -1 where it has none.
        end: the character after it.
    """

    module: str
    rule: str
    words: str
    blocks: bool = True
    attempt: int = 0
    split: str = ""
    example_id: str = ""
    start: int = -1
    end: int = -1
