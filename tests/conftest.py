"""Shared fixtures. No test can reach a paid model or a network by accident: keys are removed and only loopback sockets open."""

from __future__ import annotations

import os
import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

os.environ["GEPA_LITE_PROGRESS"] = "0"
# what a test holds does not depend on how busy the machine is
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
for name in list(os.environ):
    if name.endswith("_API_KEY"):
        del os.environ[name]

_connect = socket.socket.connect


class BlockedNetworkError(OSError):
    """A test tried to leave this machine. An OSError, so that code with a fallback takes it, as it would on a machine without a network."""


def _loopback_only(self: socket.socket, address: Any) -> None:
    if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise BlockedNetworkError(f"a test tried to reach {address[0]}")
    _connect(self, address)


socket.socket.connect = _loopback_only  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def _runs_in_tmp(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs without a path land in the test's own folder."""
    monkeypatch.setenv("GEPA_LITE_RUNS", str(tmp_path / "runs"))
