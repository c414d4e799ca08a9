"""``gepa-lite ui`` as a user would start it, and what it takes: part of ``python -m benchmarks ui``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path


class Server:
    """``gepa-lite ui`` in a process of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __enter__(self) -> Server:
        command = [sys.executable, "-m", "gepa_lite", "ui", str(self._root), "--port", "0"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        self.address = line.split("http://", 1)[1].split("/", 1)[0]
        for _ in range(200):
            try:
                self.status("/static/ui.js")
                return self
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"the server did not start: {line}")

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait()

    def status(self, path: str) -> int:
        """Ask for a page."""
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=120) as answer:
            answer.read()
            return int(answer.status)

    def seconds(self, path: str) -> float:
        """How long a page takes."""
        begin = time.perf_counter()
        self.status(path)
        return time.perf_counter() - begin

    def cpu(self) -> float:
        """Seconds of CPU that it has taken; 0 where the system does not say."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """The most it has held, in megabytes; 0 where the system does not say."""
        try:
            text = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        except OSError:
            return 0.0
        return int(text.split("VmHWM:")[1].split()[0]) / 1024
