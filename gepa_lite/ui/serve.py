"""Starting the server."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from gepa_lite.errors import UsageError


def serve(root: Path, host: str, port: int, token: str | None, say: Callable[[str], None]) -> None:
    """Serve the pages until Ctrl-C.

    Args:
        root: the folder of the runs.
        host: address to listen on; one that others can reach needs a token, and gets one where none is given.
        port: 0 takes a free one.
        token: what a visitor must bring.
        say: told the address.

    Raises:
        UsageError: the packages are not installed, the folder is not there, or the port is taken.
    """
    # threads of the linear algebra spin between two products: they would take twice the CPU for pages, from the runs that are looked at
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    try:
        import uvicorn

        from gepa_lite.ui.app import make_app
        from gepa_lite.ui.guard import is_loopback
    except ImportError as error:
        raise UsageError(f"the live pages need a web server: pip install 'gepa-lite[ui]' ({error})") from error
    if not root.is_dir():
        raise UsageError(f"{root} is not a folder. Start a run first, or name the folder that the runs are in.")
    if token is not None and (len(token) < 16 or not token.isascii()):
        raise UsageError("--token: at least 16 plain characters are needed; without it one is made.")
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UsageError(f"can't listen on {host} port {port}: {error.strerror or error}. Take another --port.") from error
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listener.getsockname()[1]}/{f'?token={token}' if token else ''}"
    say(f"Runs in {root}: {address}  (Ctrl-C ends it)")
    config = uvicorn.Config(make_app(root, token), log_level="warning", access_log=False, server_header=False)
    with listener:
        uvicorn.Server(config).run(sockets=[listener])
