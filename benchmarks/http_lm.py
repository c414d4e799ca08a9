"""A light client of the OpenAI chat protocol: what a call costs where the client costs next to nothing."""

from __future__ import annotations

import http.client
import json
import threading
from urllib.parse import urlsplit

from gepa_lite.core.call import Usage
from gepa_lite.errors import ModelConnectionError, ServerError
from gepa_lite.lm.protocol import Completion, LMInfo, Request


class HttpLM:
    """An LM over one keep-alive connection a thread; no retries, and any fault is an outage.

    Args:
        base_url: ``http://host:port/v1``.
        model: sent as the model's name.
        timeout: seconds to wait for the socket.
    """

    def __init__(self, base_url: str, model: str, timeout: float = 30.0) -> None:
        self._url = urlsplit(base_url)
        self._model = model
        self._timeout = timeout
        self._local = threading.local()

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_local"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._local = threading.local()

    def describe(self) -> LMInfo:
        """Free of charge; the port is left out, so that a server that comes back elsewhere is the same model."""
        return LMInfo(self._model, usd_per_input_token=0.0, usd_per_output_token=0.0)

    def complete(self, request: Request) -> Completion:
        """Send one request.

        Raises:
            ModelConnectionError: no full reply of the protocol.
            ServerError: a status other than 200.
        """
        body = json.dumps({"model": self._model, "messages": list(request.messages), "max_tokens": request.params.max_tokens})
        connection = getattr(self._local, "connection", None) or http.client.HTTPConnection(self._url.netloc, timeout=self._timeout)
        self._local.connection = None
        try:
            connection.request("POST", f"{self._url.path}/chat/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            data = response.read()
            if response.status != 200:
                raise ServerError(f"{self._model} answered {response.status}", status=response.status)
            reply = json.loads(data)
            text, usage = reply["choices"][0]["message"]["content"], reply["usage"]
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            connection.close()
            raise ModelConnectionError(f"{self._model}: {type(error).__name__}: {error}") from error
        self._local.connection = connection
        return Completion(text, usage=Usage(1, usage["prompt_tokens"], usage["completion_tokens"], 0.0), model=self._model)
