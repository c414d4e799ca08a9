"""Texts within a YAML file: where they stand, and how one is replaced with every other character of the file kept.

PyYAML says where a scalar begins and ends; the text is spelled anew between the two and the file is parsed once more, so that what is written is known to read back as it should.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from gepa_lite.errors import UsageError
from gepa_lite.prompt_files.reading import Keys, line_end_of

Node = yaml.Node

_TEXT = "tag:yaml.org,2002:str"
_WIDE = 1_000_000_000
_LINE_ENDS = re.compile(r"(?:\r?\n *)*\Z")


def texts_at(content: str, keys: Keys | None, where: str) -> dict[str, tuple[tuple[str, ...], str]]:
    """The texts that dotted paths lead to, by name, each with its keys.

    Args:
        content: of the file.
        keys: see ``prompts_from``.
        where: the file's name.

    Raises:
        UsageError: it is no YAML, a path leads nowhere, or to something that is no text.
    """
    root = _composed(content, where)
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    for name, dotted in _named(keys):
        place = tuple(dotted.split(".")) if dotted else ()
        node = _node_at(root, place, where)
        entries = [((*place, key), child) for key, child in _children(node)] if isinstance(node, yaml.MappingNode) else [(place, node)]
        for keys_of, leaf in entries:
            called = name if name is not None and len(entries) == 1 else keys_of[-1]
            if called in found:
                raise UsageError(f'{where}: two prompts are called {called!r}; name them yourself, keys={{"name": "dotted.path"}}.')
            found[called] = keys_of, _text_of(leaf, keys_of, where)
    return found


def replaced(content: str, keys: Sequence[str], text: str, where: str) -> str:
    """The content with another text at the keys, in the style that was there where it can hold it.

    Raises:
        UsageError: the value is shared with another key by an alias, or no spelling of it reads back as it is.
    """
    root = _composed(content, where)
    node, parent = _node_at(root, keys, where), _node_at(root, keys[:-1], where)
    if sum(other is node for other in _walk(root)) > 1:
        raise UsageError(
            f"{where}: {'.'.join(keys)} is shared with another key by an alias, and would change there too: change it by hand."
        )
    value = text + ("\n" if node.value.endswith("\n") else "")
    token = next(item for item in yaml.scan(content) if isinstance(item, yaml.ScalarToken) and item.end_mark.index == node.end_mark.index)
    start, end = token.start_mark.index, token.end_mark.index
    wanted = _plain(root, node, value)
    for spelling in _spellings(content[start:end], token.style, value, parent.start_mark.column, line_end_of(content)):
        changed = content[:start] + spelling + content[end:]
        try:
            if _plain(yaml.compose(changed, Loader=yaml.SafeLoader)) == wanted:
                return changed
        except yaml.YAMLError:
            continue
    raise UsageError(f"{where}: the text of {'.'.join(keys)} can't be written there so that it reads back as it is: change it by hand.")


def _named(keys: Keys | None) -> list[tuple[str | None, str]]:
    if keys is None:
        return [(None, "")]
    if isinstance(keys, str):
        return [(None, keys)]
    return [(name, path) for name, path in keys.items()] if isinstance(keys, Mapping) else [(None, path) for path in keys]


def _composed(content: str, where: str) -> Node:
    try:
        root = yaml.compose(content, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise UsageError(f"{where} is not one YAML document: {' '.join(str(error).split())}") from None
    if not isinstance(root, yaml.MappingNode):
        raise UsageError(f"{where} holds no keys: a YAML mapping is needed.")
    return root


def _children(node: Node) -> list[tuple[str, Node]]:
    if isinstance(node, yaml.MappingNode):
        return [(str(key.value), value) for key, value in node.value]
    if isinstance(node, yaml.SequenceNode):
        return [(str(place), value) for place, value in enumerate(node.value)]
    return []


def _node_at(root: Node, keys: Sequence[str], where: str) -> Node:
    node = root
    for depth, key in enumerate(keys):
        known = dict(_children(node))
        if key not in known:
            raise UsageError(
                f"{where} has no {'.'.join(keys)!r}: at {'.'.join(keys[:depth]) or 'its top'} there is {', '.join(map(repr, known)) or 'no key'}."
            )
        node = known[key]
    return node


def _text_of(node: Node, keys: Sequence[str], where: str) -> str:
    if not isinstance(node, yaml.ScalarNode) or node.tag != _TEXT:
        kind = node.tag.rpartition(":")[2]
        raise UsageError(
            f"{where}: {'.'.join(keys)} is of type {kind}, not a text: say which keys hold prompts, keys=['dotted.path', ...]."
        )
    return str(node.value).removesuffix("\n")


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for _, child in _children(node):
        yield from _walk(child)


def _plain(node: Node | None, changed: Node | None = None, value: str = "") -> Any:
    """What a document says, without styles and layout, with another value for one of its nodes."""
    if node is changed and node is not None:
        return node.tag, value
    if isinstance(node, yaml.MappingNode):
        return node.tag, [(_plain(key, changed, value), _plain(item, changed, value)) for key, item in node.value]
    if isinstance(node, yaml.SequenceNode):
        return node.tag, [_plain(item, changed, value) for item in node.value]
    return None if node is None else (node.tag, node.value)


def _spellings(before: str, style: str | None, value: str, column: int, line_end: str) -> Iterator[str]:
    """Ways to write a value in place of another, the nearest to what was there first."""
    block = style in ("|", ">")
    if not block and "\n" not in value:
        yield _dumped(value, style)
    yield _literal(before if block else "|", value, column, line_end, block)
    yield _dumped(value, '"') + (line_end if block and before.endswith("\n") else "")


def _dumped(value: str, style: str | None) -> str:
    text: str = yaml.safe_dump(value, default_style=style, width=_WIDE, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _literal(before: str, value: str, column: int, line_end: str, block: bool) -> str:
    """A block of lines as they are. A comment behind its header, its indentation and the empty lines after it are those of the block before."""
    head, _, old = before.partition("\n")
    indents = [len(line) - len(line.lstrip(" ")) for line in old.split("\n") if line.strip()]
    indent = min(indents) if indents else column + 2
    kept = len(value) - len(value.rstrip("\n"))
    chomp = "-" if kept == 0 else "" if kept == 1 else "+"
    hint = str(indent - column) if value[:1] in (" ", "\n") else ""
    comment = re.sub(r"^[|>][0-9+-]*", "", head.rstrip("\r"))
    lines = [f"|{hint}{chomp}{comment}", *(f"{' ' * indent}{line}" if line else "" for line in value.removesuffix("\n").split("\n"))]
    after = _LINE_ENDS.search(before) if block and kept < 2 else None
    return line_end.join(lines) + (after[0] if after is not None else line_end if block else "")
