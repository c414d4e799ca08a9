"""One llama.cpp server in a process of its own: started, spoken to over the loopback interface, and ended with its owner."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gepa_lite.errors import ModelConnectionError, ModelError, ModelTimeoutError, UsageError
from gepa_lite.lm.local.options import LocalOptions
from gepa_lite.lm.local.slots import Lease, SlotPool

_START_SECONDS = 600.0
_SNAPSHOT_BYTES = 512 << 20
_LOG_TAIL = 600


def require_extra() -> None:
    """Refuse to go on without llama.cpp.

    Raises:
        UsageError: the extra isn't installed; the message says how.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise UsageError("A local model needs llama.cpp, which isn't installed. Run: pip install 'gepa-lite[local]'")


class LlamaServer:
    """A running server with one model loaded. Safe to use from many threads.

    The process ends when ``stop`` is called and when this process ends, even if that is killed: it waits on a pipe that closes then.
    """

    def __init__(self, name: str, model: Path, options: LocalOptions) -> None:
        """Start it and wait until the model is loaded.

        Raises:
            UsageError: the extra isn't installed.
            ModelError: llama.cpp could not load the model; the message has its own words.
        """
        require_extra()
        import httpx

        self._name = name
        self._folder = Path(tempfile.mkdtemp(prefix="gepa_lite_"))
        self._snapshots = self._folder / "snapshots"
        self._snapshots.mkdir()
        key = secrets.token_hex(16)
        try:
            self._process = self._spawn(model, options, key)
            url = self._wait_for_url()
        except BaseException:
            self._clean_up()
            raise
        self.slots = SlotPool(options.slots, _SNAPSHOT_BYTES)
        # trust_env: a proxy from the environment has no business between a process and its child
        self._client = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(options.timeout, connect=10.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=options.slots),
            trust_env=False,
        )

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Send one request and wait for the reply.

        Returns:
            The HTTP status and the decoded body.

        Raises:
            ModelTimeoutError: no reply within the time-out; the server drops the request.
            ModelConnectionError: the process died, or the reply is not JSON.
        """
        import httpx

        try:
            reply = self._client.post(path, json=body)
            return reply.status_code, reply.json()
        except httpx.TimeoutException as error:
            raise ModelTimeoutError(
                f"{self._name}: no full reply within {self._client.timeout.read:.0f} s. Lower max_tokens, or raise timeout in open_local."
            ) from error
        except (httpx.HTTPError, RuntimeError, ValueError) as error:
            # a connection breaks a moment before its process counts as ended
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)
            state = "the connection to it failed" if self.alive else f"its process ended with status {self._process.returncode}"
            raise ModelConnectionError(f"{self._name}: {state} ({type(error).__name__}). {self._log_tail()}") from error

    def restore(self, lease: Lease) -> bool:
        """Load a lease's snapshot into its slot. Returns whether that worked."""
        status, _ = self.post(f"/slots/{lease.slot}?action=restore", {"filename": lease.restore})
        return status == 200

    def save(self, lease: Lease) -> int | None:
        """Save a lease's slot as its snapshot. Returns its bytes, or None where that failed."""
        status, reply = self.post(f"/slots/{lease.slot}?action=save", {"filename": lease.save})
        return int(reply["n_written"]) if status == 200 else None

    def drop(self, snapshots: list[str]) -> None:
        """Delete snapshots."""
        for name in snapshots:
            (self._snapshots / name).unlink(missing_ok=True)

    def stop(self) -> None:
        """End the process and delete its temporary files. Requests that are still running fail."""
        self._client.close()
        self._clean_up()

    def _spawn(self, model: Path, options: LocalOptions, key: str) -> subprocess.Popen[bytes]:
        config = {
            "path": sys.path,
            "model": str(model),
            "key": key,
            "folder": str(self._folder),
            "slots": options.slots,
            "context": options.context,
            "threads": options.threads,
            "batch": options.batch,
        }
        # threads that spin for long while they wait stall once anything else wants the cores; ones that never spin lose a fifth on idle cores
        environment = {"GOMP_SPINCOUNT": "10000", **os.environ}
        with (self._folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__).with_name("child.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(config).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once: reading its answer says so
        return process

    def _wait_for_url(self) -> str:
        stdout = self._process.stdout
        assert stdout is not None
        ready, _, _ = select.select([stdout], [], [], _START_SECONDS)
        if not ready:
            raise ModelTimeoutError(f"{self._name}: llama.cpp did not load the model within {_START_SECONDS:.0f} s. {self._log_tail()}")
        line = stdout.readline()
        answer = json.loads(line) if line.strip() else {"error": f"the process ended with status {self._process.wait()}"}
        if "url" not in answer:
            raise ModelError(f"{self._name}: llama.cpp could not load the model: {answer['error']}. {self._log_tail()}")
        return str(answer["url"])

    def _log_tail(self) -> str:
        try:
            text = (self._folder / "log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        text = " ".join(text.split())[-_LOG_TAIL:]
        return f"Its last words: {text}" if text else ""

    def _clean_up(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        shutil.rmtree(self._folder, ignore_errors=True)
