"""What a prompt is read as, see ``Contract``."""

from __future__ import annotations

from typing import Literal

Form = Literal["text", "json", "jinja", "format", "template", "python"]
