"""A folder of Markdown files, one for each prompt, and of Python files, one for each step that is code; and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gepa_lite.bundle import Prompts, load_prompts
from gepa_lite.errors import UsageError
from gepa_lite.exports.source import Reading, Source, file_name, is_code, path_of
from gepa_lite.ship.atomic import write_atomically
from gepa_lite.ship.bundle import bundle_text

BUNDLE = "bundle.prompts.json"
_PROMPT, _CODE = ".md", ".py"


def write_folder(source: Source, path: Path) -> None:
    """Each prompt in a file of its own, with one line end after it; beside them the bundle, so that a change comes back with its contract and signatures."""
    for module, text in source.prompts.items():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"the prompt of {module!r} holds half of a character (a lone surrogate), which no text file can: use 'py', 'messages' or the bundle as it is."
            ) from None
    path.mkdir(parents=True, exist_ok=True)
    for module, text in source.prompts.items():
        write_atomically(path / file_name(module, _CODE if module in source.code else _PROMPT), text + "\n")
    write_atomically(path / BUNDLE, bundle_text(source.prompts.data))


def read_folder(source: Source, path: Path) -> Reading:
    """The texts as they stand in the files."""
    return Reading(dict(_merged(path)["texts"]))


def import_prompts(folder: str | os.PathLike[str], bundle: str | os.PathLike[str] | None = None) -> Prompts:
    """Read a folder of Markdown files back: the bundle that lies in it with the texts of the files.

    Args:
        folder: what ``gl.export(..., "markdown", folder)`` wrote.
        bundle: where to write the new bundle; None writes nothing.

    Returns:
        The prompts, held to their contract. Where texts were edited, ``data["edited"]`` names their modules: the scores in the bundle are not theirs. ``gl.recheck`` measures them.

    Raises:
        UsageError: a file is missing, unknown or unreadable, or a text breaks its contract.

    Example:
        >>> prompts = import_prompts("prompts/", "triage.prompts.json")  # doctest: +SKIP
    """
    path = Path(os.fspath(folder))
    found = _merged(path)
    data: dict[str, Any] = found["data"]
    edited = [module for module, text in found["texts"].items() if text != data["modules"][module]["prompt"]]
    modules = {module: {**entry, "prompt": found["texts"][module]} for module, entry in data["modules"].items()}
    merged = {**data, "modules": modules}
    if edited or data.get("edited"):
        merged["edited"] = sorted({*edited, *data.get("edited", ())})
    prompts = Prompts(merged, str(path))
    if broken := prompts.breaches():
        raise UsageError(f"{path}: the edited prompts break their contract: {'; '.join(broken)}. Restore what they lost.")
    if bundle is not None:
        return load_prompts(write_atomically(Path(os.fspath(bundle)), bundle_text(merged)))
    return prompts


def _merged(path: Path) -> dict[str, Any]:
    """The bundle's data and the texts of the files, which must be of the same modules."""
    data = dict(load_prompts(path / BUNDLE).data)
    files = {path / file_name(module, _CODE if is_code(entry) else _PROMPT): module for module, entry in data["modules"].items()}
    for file, module in files.items():
        if not file.exists():
            raise UsageError(f"{file} is missing: the bundle beside it has the module {module!r}.")
    for file in sorted(path.iterdir()):
        if file.suffix in (_PROMPT, _CODE) and file not in files:
            module = path_of(file.name, file.suffix)
            if module in data["modules"]:
                raise UsageError(
                    f"{file} is not read: {module!r} is {'code' if file.suffix == _PROMPT else 'a prompt'}, and lies in another file. Delete it."
                )
            raise UsageError(f"{file} is of no module of the bundle beside it, which has {', '.join(map(repr, data['modules']))}.")
    try:
        return {"data": data, "texts": {module: _text(file) for file, module in files.items()}}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: a prompt can't be read as UTF-8 text: {error}.") from None


def _text(file: Path) -> str:
    # as bytes, so that line ends stay as they are; the one at the end is the file's
    return file.read_bytes().decode("utf-8").removesuffix("\n")
