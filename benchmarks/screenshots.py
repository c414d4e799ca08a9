"""``python -m benchmarks screenshots -- RUNS NAME``: the pictures in the docs, taken by a real browser of the report and the live pages of one run, light and dark, on a desk and on a phone.

RUNS is a folder of runs and NAME a finished one of them; nothing in it is changed. ``--quick`` takes the first picture of each screen alone. Needs Playwright, Pillow and Debian's Chromium.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gepa_lite as gl
from benchmarks.report import Options, Report, Row
from benchmarks.ui_server import Server
from gepa_lite.errors import UsageError
from gepa_lite.insight.stored import read_run

IMAGES = Path(__file__).parent.parent / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
SCREENS: Mapping[str, tuple[int, int]] = {"desk": (1_100, 860), "phone": (375, 740)}
"""Width and height in CSS pixels."""
VIEWS: Mapping[str, tuple[str, str]] = {
    "ui-overview": ("", ""),
    "ui-candidate": ("/candidate/{winner}", "Against the seed"),
    "ui-lineage": ("/lineage", ""),
    "ui-measures": ("/measures", ""),
}
"""By picture the page of the run, and the heading that its picture begins at; the top of the page for none."""
_COLOURS = 200


def run(options: Options) -> Report:
    """Take every picture anew."""
    from playwright.sync_api import sync_playwright

    if len(options.rest) != 2:
        raise UsageError("screenshots needs a folder of runs and the name of one: python -m benchmarks screenshots -- RUNS NAME")
    root, name = Path(options.rest[0]), options.rest[1]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright, Server(root) as server:
        file = Path(folder) / "report.html"
        file.write_text(gl.report_html(root / name), encoding="utf-8")
        pages = {"report": (file.as_uri(), "")}
        winner = read_run(root / name).result().winner_index
        for picture, (path, heading) in VIEWS.items():
            pages[picture] = (f"http://{server.address}/run/{name}{path.format(winner=winner)}", heading)
        while server.status(f"/run/{name}") == 202:
            time.sleep(0.05)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        rows = [Row(f"{path.name}, kB", path.stat().st_size / 1_000) for path in _pictures(browser, pages, options.quick)]
        browser.close()
    return Report("screenshots", rows, n=len(rows), extra={"run": name})


def _pictures(browser: Any, pages: Mapping[str, tuple[str, str]], quick: bool) -> Iterator[Path]:
    """Each page on each screen in each scheme, written; their files."""
    for screen, (width, height) in SCREENS.items():
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=1.5)
            page = context.new_page()
            for picture, (address, heading) in list(pages.items())[: 1 if quick else None]:
                page.goto(address)
                if heading:
                    page.get_by_role("heading", name=heading).evaluate("found => found.scrollIntoView()")
                path = IMAGES / f"{picture}-{screen}-{scheme}.png"
                path.write_bytes(_small(page.screenshot()))
                yield path
            context.close()


def _small(picture: bytes) -> bytes:
    """The picture in the colours that it has most of: panels, lines and dots keep theirs exactly, and the edges of letters come near. The repository is not for pictures."""
    from PIL import Image

    with Image.open(io.BytesIO(picture)) as found, io.BytesIO() as out:
        whole = found.convert("RGB")
        counts: list[tuple[int, Any]] = whole.getcolors(whole.width * whole.height) or []
        most = [colour for _, colour in sorted(counts, reverse=True)[:_COLOURS]]
        palette = Image.new("P", (1, 1))
        palette.putpalette([part for colour in most for part in colour])
        whole.quantize(palette=palette, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
        return out.getvalue()
