"""In a checkout: finds the ready-made programs in the top-level folder ``programs/``. The wheel holds the folder itself here (see pyproject.toml)."""

from pathlib import Path

__path__ = [str(Path(__file__).parents[2] / "programs")]
