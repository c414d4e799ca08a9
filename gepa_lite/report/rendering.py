"""The template engine of all pages: everything is escaped, and texts are cleaned and cut on the way."""

from __future__ import annotations

from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gepa_lite.report.safe_text import cut, shown
from gepa_lite.ship.report_text import p_text


@cache
def environment() -> Environment:
    """The engine, made once."""
    engine = Environment(
        loader=PackageLoader("gepa_lite.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.do"],
    )
    engine.filters |= {"cut": cut, "shown": shown, "p_text": p_text}
    return engine


@cache
def style_sheet() -> str:
    """The style of all pages, with the colours of the matrix."""
    from gepa_lite.report.matrix import ramp

    text = resources.files("gepa_lite.report").joinpath("templates/style.css").read_text(encoding="utf-8")
    return text + "".join(f"svg .{name} {{ fill: {colour}; }}\n" for name, colour in ramp())


def style_markup() -> Markup:
    """The style sheet for a style element; it is ours, and holds nothing from a run."""
    return Markup(style_sheet())
