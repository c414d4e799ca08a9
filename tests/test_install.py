"""Both forms of install: the wheel in an empty folder with a decoy ``feedback.py``, and the checkout."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from gepa_lite import catalog
from gepa_lite.errors import UsageError

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=110)
    (built,) = folder.glob("gepa_lite-*.whl")
    return built


def test_the_wheel_holds_only_gepa_lite(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in files} == {"gepa_lite", next(n.split("/")[0] for n in files if ".dist-info" in n)}
    assert {"gepa_lite/py.typed", "gepa_lite/programs/classification.py", "gepa_lite/feedback/match.py"} <= set(files)
    assert {"gepa_lite/search/templates/reflect.j2", "gepa_lite/demo/data/train.jsonl"} <= set(files)


def test_the_wheel_works_beside_a_decoy_feedback(wheel: Path, tmp_path: Path) -> None:
    """The dependencies are this environment's, seen by a path file; gepa_lite itself is the wheel's."""
    environment = tmp_path / "env"
    venv.create(environment, with_pip=False)
    site = next((environment / "lib").glob("python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site)
    here = next(Path(p) for p in sys.path if p.endswith("site-packages"))
    (site / "dependencies.pth").write_text(str(here))
    work = tmp_path / "work"
    work.mkdir()
    (work / "feedback.py").write_text("raise RuntimeError('the decoy was imported')")
    code = (
        "import gepa_lite, gepa_lite.catalog as c; print(gepa_lite.__file__);"
        "print(c.names('feedback'), c.load('feedback', 'match:exact_match')('a').__name__, c.load('programs', 'classification:Classification').__name__)"
    )
    done = subprocess.run([environment / "bin" / "python", "-c", code], cwd=work, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    where, found = done.stdout.splitlines()
    assert Path(where).is_relative_to(environment)
    assert "'match'" in found
    assert found.endswith("] feedback Classification")


def test_the_checkout_finds_the_same(tmp_path: Path) -> None:
    assert catalog.load("feedback", "match:exact_match")
    assert "classification" in catalog.names("programs")
    with pytest.raises(UsageError, match="Did you mean match"):
        catalog.load("feedback", "mach:exact")
