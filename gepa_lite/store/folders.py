"""Where runs live: each in a folder of its own, by name under one root, or wherever a path says."""

from __future__ import annotations

import difflib
import os
import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gepa_lite.errors import UsageError
from gepa_lite.store.schema import FILE_NAME

ROOT_VARIABLE = "GEPA_LITE_RUNS"
_ROOT_NAME = "gepa_runs"
TRAINING_SAMPLES = Path("training") / "samples"
"""Where a run that trains weights keeps the tokens that it sampled until it needs them no more, in its folder."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def runs_root() -> Path:
    """The folder of the runs that are known by name: ``GEPA_LITE_RUNS``, or ``gepa_runs`` where the program runs."""
    return Path(os.environ.get(ROOT_VARIABLE) or _ROOT_NAME).expanduser()


def run_folder(run: str | Path | None, program_name: str) -> Path:
    """The folder for a run, new or to be resumed.

    Args:
        run: a bare name, for a folder under the root; a path (a ``Path``, or a text with a separator), taken as it is; None for a new
            folder under the root, named after the program and the time (UTC), made at once so that no other process gets the same.
        program_name: for the automatic name.

    Raises:
        UsageError: the name has characters that may trouble a file system or a shell, or the root can't be made.

    Example:
        >>> run_folder("runs/triage-1", "Triage").as_posix()
        'runs/triage-1'
    """
    if run is None:
        return _new_folder(program_name)
    path = _as_path(run)
    if path is not None:
        return path
    return _made_root() / _checked(str(run))


def find_run(run: str | Path) -> Path:
    """The folder of a run that is there.

    Args:
        run: a name under the root, the path of a folder, or of its ``run.db``.

    Raises:
        UsageError: there is none; names the nearest ones.
    """
    path = _as_path(run)
    folder = runs_root() / _checked(str(run)) if path is None else path.parent if path.name == FILE_NAME else path
    if (folder / FILE_NAME).is_file():
        return folder
    root = runs_root() if path is None else folder.parent
    names = [known.name for known in list_runs(root)]
    near = difflib.get_close_matches(folder.name, names, n=3, cutoff=0.5)
    hint = (
        f"Did you mean {', '.join(map(repr, near))}?"
        if near
        else f"The newest there: {', '.join(map(repr, names[:3]))}."
        if names
        else f"There are no runs in {root}; {ROOT_VARIABLE} says where they are looked for."
    )
    raise UsageError(f"There is no run {str(run)!r} in {root}. {hint}")


def list_runs(root: Path | None = None) -> list[Path]:
    """The folders of the runs directly under a root, the one written last first.

    Args:
        root: None for ``runs_root()``.
    """
    dated: list[tuple[float, str, Path]] = []
    with suppress(OSError):
        for folder in (runs_root() if root is None else root).iterdir():
            with suppress(OSError):
                if (folder / FILE_NAME).is_file():
                    dated.append((_written(folder), folder.name, folder))
    return [folder for _, _, folder in sorted(dated, reverse=True)]


def _written(folder: Path) -> float:
    """When a run was written last: new rows are in the log until it is folded into the file."""
    file, log = folder / FILE_NAME, folder / f"{FILE_NAME}-wal"
    return max(file.stat().st_mtime, log.stat().st_mtime if log.exists() else 0.0)


def _as_path(run: str | Path) -> Path | None:
    """The path that is meant, or None for a bare name.

    A bare name is a path only if a run is there: ``run="docs"`` must not write into ``./docs``.
    """
    separated = isinstance(run, Path) or any(separator in run for separator in (os.sep, os.altsep) if separator)
    path = Path(run).expanduser()
    return path if separated or (str(run) and (path / FILE_NAME).is_file()) else None


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"run={name!r}: a name has letters, digits, '.', '_' and '-', does not start with '.' or '-', and is at most 100 long; "
            f"a path has a '{os.sep}'."
        )
    return name


def _made_root() -> Path:
    root = runs_root()
    try:
        if not root.is_dir():
            root.mkdir(parents=True, exist_ok=True)
            # what users ran on may be private: it is not committed by accident
            (root / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"Can't make the folder of runs {root}: {error.strerror}. Set {ROOT_VARIABLE} to one that you may write to."
        ) from error
    return root


def _new_folder(program_name: str) -> Path:
    root = _made_root()
    stem = re.sub(r"[^A-Za-z0-9_]+", "-", program_name)[:60].strip("-") or "run"
    stamp = f"{stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    number = 1
    while True:
        folder = root / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1
        except OSError as error:
            raise UsageError(
                f"Can't make the run's folder {folder}: {error.strerror}. Set {ROOT_VARIABLE} to a folder you may write to."
            ) from error
