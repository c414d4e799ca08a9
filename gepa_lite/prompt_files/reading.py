"""``gl.prompts_from``: the texts of prompt files by name, and where each of them stands. A folder needs the standard library alone, since production reads it too."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gepa_lite.core.contract import Contract
from gepa_lite.core.form import Form
from gepa_lite.errors import UsageError

JINJA_ENDINGS = (".j2", ".jinja", ".jinja2")
TEXT_ENDINGS = (".md", ".txt", *JINJA_ENDINGS)
YAML_ENDINGS = (".yaml", ".yml")

Keys = str | Sequence[str] | Mapping[str, str]
"""Where the prompts of a YAML file are: dotted paths, or dotted paths by the prompt's name."""

_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one prompt stands.

    Attributes:
        file: its file.
        keys: the keys that lead to it in a YAML file; empty where the file is the prompt.
        text: the prompt, its lines ended by line feeds, without the line end that the file or the value ends with.
    """

    file: Path
    keys: tuple[str, ...]
    text: str

    def replaced(self, content: str, text: str) -> str:
        """A file's content with another text in this place; everything else is as it was, letter by letter.

        Raises:
            UsageError: a YAML file can't hold it there.
        """
        if self.keys:
            from gepa_lite.prompt_files.yaml_texts import replaced

            return replaced(content, self.keys, text, str(self.file))
        mark = _BOM if content.startswith(_BOM) else ""
        line_end = line_end_of(content)
        ending = line_end if content.endswith(line_end) else ""
        return mark + text.replace("\n", line_end) + ending


class PromptFiles(Mapping[str, str]):
    """Prompts by name as they stand in files, read once; what ``gl.prompts_from`` returns.

    Attributes:
        source: the folder or file.
        contracts: what a file's kind says of its prompt: one in a ``.j2`` file is a Jinja2 template.
        slots: where each prompt stands.
    """

    def __init__(self, source: Path, slots: Mapping[str, Slot], contracts: Mapping[str, Contract]) -> None:
        self.source = source
        self.slots = dict(slots)
        self.contracts = dict(contracts)

    def __getitem__(self, name: str) -> str:
        if name not in self.slots:
            raise KeyError(f"{self.source} has no prompt {name!r}; it has {', '.join(map(repr, self.slots))}")
        return self.slots[name].text

    def __iter__(self) -> Iterator[str]:
        return iter(self.slots)

    def __len__(self) -> int:
        return len(self.slots)

    def __repr__(self) -> str:
        return f"PromptFiles({str(self.source)!r}: {', '.join(self.slots)})"


def prompts_from(path: str | os.PathLike[str], *, keys: Keys | None = None, form: Form | None = None) -> PromptFiles:
    r"""Read the prompts that live in files: ``gl.wrap(fn, prompts=gl.prompts_from("prompts/"))``. ``gl.write_back`` puts optimized ones in their place.

    A prompt's text is what stands in the file without the line end at its end, as Jinja2 renders it.

    Args:
        path: a folder of ``.md``, ``.txt`` and ``.j2`` files, also in folders below it, each named by its path without ending, ``router/classify.md`` as ``router.classify``; hidden files and READMEs
            are left out. Or one such file. Or a ``.yaml`` file.
        keys: of a YAML file: dotted paths to texts, or to mappings of texts; each prompt is named by its last key. ``{"name": "dotted.path"}`` names them otherwise. Without it the whole
            file is a mapping of texts.
        form: what all the prompts are (``gl.Contract(form=)``); without it ``"jinja"`` for ``.j2`` files, and for others what their placeholders say.

    Raises:
        UsageError: it can't be read, holds no prompts, or two of one name.

    Example:
        >>> import gepa_lite as gl
        >>> folder = getfixture("tmp_path")
        >>> _ = (folder / "greet.md").write_text("Greet {name}.\n")
        >>> gl.prompts_from(folder)["greet"]
        'Greet {name}.'
    """
    source = Path(os.fspath(path))
    if not source.exists():
        raise UsageError(f"{source} can't be read: there is no such file or folder. Give a folder of prompt files, or a YAML file.")
    ending = source.suffix.lower()
    if keys is not None and (source.is_dir() or ending not in YAML_ENDINGS):
        raise UsageError(f"prompts_from(keys=...): {source} is no YAML file, so it has no keys.")
    if source.is_dir():
        slots = _from_folder(source)
    elif ending in YAML_ENDINGS:
        from gepa_lite.prompt_files.yaml_texts import texts_at

        slots = {name: Slot(source, place, text) for name, (place, text) in texts_at(read_content(source), keys, str(source)).items()}
    elif ending in TEXT_ENDINGS:
        slots = {source.stem: _whole(source)}
    else:
        raise UsageError(f"{source}: a file that ends in {', '.join((*TEXT_ENDINGS, *YAML_ENDINGS))} is needed, or a folder of such files.")
    if not slots:
        raise UsageError(f"{source} holds no prompts: files that end in {', '.join(TEXT_ENDINGS)} are looked for.")
    return PromptFiles(source, slots, _contracts(slots, form))


def _contracts(slots: Mapping[str, Slot], form: Form | None) -> dict[str, Contract]:
    if form is not None:
        return {name: Contract(form=form) for name in slots}
    return {name: Contract(form="jinja") for name, slot in slots.items() if slot.file.suffix.lower() in JINJA_ENDINGS}


def _from_folder(folder: Path) -> dict[str, Slot]:
    slots: dict[str, Slot] = {}
    for file in sorted(folder.rglob("*")):
        place = file.relative_to(folder)
        hidden = any(part.startswith(".") for part in place.parts)
        if hidden or file.suffix.lower() not in TEXT_ENDINGS or file.stem.lower() == "readme" or not file.is_file():
            continue
        name = ".".join(place.with_suffix("").parts)
        if name in slots:
            raise UsageError(f"{slots[name].file} and {file} are both the prompt {name!r}: rename one of them.")
        slots[name] = _whole(file)
    return slots


def _whole(file: Path) -> Slot:
    content = read_content(file)
    line_end = line_end_of(content)
    return Slot(file, (), content.removeprefix(_BOM).removesuffix(line_end).replace(line_end, "\n"))


def line_end_of(content: str) -> str:
    """Carriage return and line feed where every line ends so, else a line feed."""
    pairs = content.count("\r\n")
    return "\r\n" if pairs and pairs == content.count("\n") else "\n"


def read_content(file: Path) -> str:
    """A file's text with its line ends as they are.

    Raises:
        UsageError: it can't be read, or is no UTF-8.
    """
    try:
        return file.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"{file} can't be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text ({error.reason} at byte {error.start}): save it as UTF-8.") from None
