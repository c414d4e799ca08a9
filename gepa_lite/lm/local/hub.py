"""A file from the Hugging Face hub over HTTP: resumed after a break, and quick to give up where the hub can't be reached."""

from __future__ import annotations

import os
from pathlib import Path

from gepa_lite.lm.local.cache import Advance, FetchError
from gepa_lite.lm.local.catalogue import HubFile

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0


def fetch_from_hub(source: HubFile, partial: Path, advance: Advance) -> None:
    """Bring ``partial`` up to the whole file; what it already holds is not sent again. The server is ``$HF_ENDPOINT`` where that is set.

    Args:
        source: which file.
        partial: the bytes so far; created where it is missing, kept after a break.
        advance: told of the bytes that were already there, then of each block.

    Raises:
        FetchError: the hub can't be reached, broke off, or does not have the file.
    """
    import httpx

    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    url = f"{endpoint}/{source.repo}/resolve/{source.revision}/{source.file}"
    have = partial.stat().st_size if partial.exists() else 0
    timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
    headers = {"Range": f"bytes={have}-"} if have else {}
    try:
        with httpx.stream("GET", url, headers=headers, timeout=timeout, follow_redirects=True) as reply:
            if reply.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                return  # all of it is here already, or it is another file: the hash will tell
            reply.raise_for_status()
            resumed = reply.status_code == httpx.codes.PARTIAL_CONTENT
            advance(have if resumed else 0)
            with partial.open("ab" if resumed else "wb") as file:
                for block in reply.iter_bytes():
                    file.write(block)
                    advance(len(block))
    except httpx.HTTPStatusError as error:
        raise FetchError(f"it answered {error.response.status_code}") from error
    except httpx.ConnectError as error:
        raise FetchError("it can't be reached from here") from error
    except httpx.HTTPError as error:
        raise FetchError(f"the connection failed ({type(error).__name__}); what has come is kept") from error
