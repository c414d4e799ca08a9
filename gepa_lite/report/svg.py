"""Charts as SVG, made here rather than by a script in the page: they print, need no JavaScript, and hold no text that was not escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape


def tag(name: str, *children: str | Markup, **attributes: str | float | None) -> Markup:
    """An element; attribute names have ``_`` for ``-`` and a trailing one dropped; None leaves an attribute out. Children that are not markup are escaped.

    >>> tag("text", "a < b", class_="label", x=1.50)
    Markup('<text class="label" x="1.5">a &lt; b</text>')
    """
    pairs = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    words = "".join(f' {key}="{number(value) if isinstance(value, (int, float)) else escape(value)}"' for key, value in pairs)
    body = "".join(escape(child) for child in children)
    return Markup(f"<{name}{words}>{body}</{name}>" if body else f"<{name}{words}/>")


def number(value: float) -> str:
    """A coordinate, to a tenth of a pixel or three digits."""
    text = f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def tip(text: str) -> Markup:
    """What is shown on hovering, and read by a screen reader."""
    return tag("title", text)


@dataclass(frozen=True)
class Scale:
    """Values to pixels.

    Attributes:
        low: least value.
        high: largest; above ``low``.
        start: pixel of ``low``.
        end: pixel of ``high``.
        whole: the values are counts: so are the ticks.
    """

    low: float
    high: float
    start: float
    end: float
    whole: bool = False

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float, pad: float = 0.05, *, whole: bool = False) -> Scale:
        """A scale that holds all values, with some room at both ends."""
        known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(known), max(known)
        if high - low < 1e-12:
            low, high = low - 0.5, high + 0.5
        room = (high - low) * pad
        return cls(low - room, high + room, start, end, whole)

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values within the scale, at most about ``most``."""
        raw = (self.high - self.low) / max(1, most)
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw)
        if self.whole:
            step = max(1.0, math.ceil(step))
        first = math.ceil(self.low / step)
        return [round(place * step, 12) for place in range(first, math.floor(self.high / step) + 1)]


@dataclass(frozen=True)
class Frame:
    """A chart's plotting area.

    Attributes:
        width: of the whole picture.
        height: of it.
        x: horizontal scale.
        y: vertical scale, upwards.
        x_label: what the horizontal axis shows.
        y_label: the vertical one.
    """

    width: float
    height: float
    x: Scale
    y: Scale
    x_label: str
    y_label: str

    @classmethod
    def around(
        cls,
        xs: Iterable[float],
        ys: Iterable[float],
        labels: tuple[str, str],
        size: tuple[float, float] = (860, 320),
        *,
        x_pad: float = 0.02,
        counts: bool = False,
    ) -> Frame:
        """A frame that holds all points; with ``counts`` the horizontal axis has whole numbers alone."""
        width, height = size
        return cls(width, height, Scale.over(xs, 66, width - 12, x_pad, whole=counts), Scale.over(ys, height - 40, 12), *labels)

    def axes(self) -> Markup:
        """Grid, numbers and labels."""
        parts = []
        bottom, left, right = self.y.start, self.x.start, self.x.end
        for value in self.y.ticks():
            y = self.y(value)
            parts.append(tag("line", class_="grid", x1=left, x2=right, y1=y, y2=y))
            parts.append(tag("text", short(value), class_="tick", x=left - 6, y=y + 4, text_anchor="end"))
        for value in self.x.ticks(7):
            x = self.x(value)
            parts.append(tag("line", class_="mark", x1=x, x2=x, y1=bottom, y2=bottom + 4))
            parts.append(tag("text", short(value), class_="tick", x=x, y=bottom + 16, text_anchor="middle"))
        parts.append(tag("line", class_="axis", x1=left, x2=right, y1=bottom, y2=bottom))
        parts.append(tag("text", self.x_label, class_="label", x=(left + right) / 2, y=self.height - 6, text_anchor="middle"))
        middle = (self.y.start + self.y.end) / 2
        parts.append(
            tag("text", self.y_label, class_="label", transform=f"translate(12 {number(middle)}) rotate(-90)", text_anchor="middle")
        )
        return Markup("").join(parts)

    def line(self, points: Sequence[tuple[float, float]], kind: str, *, steps: bool = False) -> Markup:
        """A line through points; with ``steps`` it stays level up to the next one."""
        return path([(self.x(x), self.y(y)) for x, y in points], kind, steps=steps)

    def dot(self, x: float, y: float, kind: str, words: str, radius: float = 3.0) -> Markup:
        """A point."""
        return tag("circle", tip(words), class_=kind, cx=self.x(x), cy=self.y(y), r=radius)

    def picture(self, words: str, *parts: Markup) -> Markup:
        """The whole chart; ``words`` say what it shows to who can't see it."""
        return picture(self.width, self.height, words, self.axes(), *parts)


def path(points: Sequence[tuple[float, float]], kind: str, *, steps: bool = False) -> Markup:
    """A line through pixels."""
    if not points:
        return Markup("")
    words = [f"M{number(points[0][0])} {number(points[0][1])}"]
    for x, y in points[1:]:
        words.append(f"H{number(x)}V{number(y)}" if steps else f"L{number(x)} {number(y)}")
    return tag("path", class_=kind, d="".join(words), fill="none")


def picture(width: float, height: float, words: str, *parts: Markup, role: str = "img") -> Markup:
    """An SVG of a size that shrinks with the page; with links in it, its role is ``"group"``."""
    label = {"aria_label": words}
    return tag(
        "svg", *parts, role=role, viewBox=f"0 0 {number(width)} {number(height)}", width=width, height=height, class_="chart", **label
    )


def short(value: float) -> str:
    """A number on an axis.

    >>> short(12000), short(0.25), short(2500000), short(0)
    ('12k', '0.25', '2.5M', '0')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (1 if unit != "k" else 10):
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


def thin(items: Sequence[object], most: int) -> list[int]:
    """Places of at most ``most`` items, evenly spread, the first and the last among them.

    >>> thin("abcdefg", 3)
    [0, 3, 6]
    """
    count = len(items)
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})
