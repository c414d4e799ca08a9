"""The process that runs llama.cpp: started by ``server.py`` as a script, and gone when its parent is.

It imports nothing of gepa_lite. Its first line on stdin is a JSON object of options; its only line on the stdout it was given is
``{"url": ...}`` or ``{"error": ...}``. All that llama.cpp itself prints goes to stderr, which the parent points at a log file.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from typing import Any


def start_server(options: dict[str, Any]) -> Any:
    """Load the model and open the HTTP server on a free port of the loopback interface."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options["model"]
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [options["key"]]
    params.ui = False
    params.n_parallel = options["slots"]
    params.n_threads_http = options["slots"] + 2
    params.n_ctx = options["slots"] * options["context"]
    params.kv_unified = False
    params.n_batch = options["batch"]
    params.n_ubatch = options["batch"]
    params.cpuparams.n_threads = options["threads"]
    params.cpuparams_batch.n_threads = options["threads"]
    params.slot_save_path = f"{options['folder']}/snapshots/"
    # prefixes are shared through snapshots (see slots.py); llama.cpp's own store of old prompts would grow to 8 GB
    params.cache_ram_mib = 0
    # a prompt that does not fit must be an error, never a prompt with a hole in it
    params.ctx_shift = False
    params.fit_params = False
    params.verbosity = 1
    return xllamacpp.Server(params)


def main() -> None:
    """Serve until stdin ends, which it does however the parent ends."""
    # Ctrl-C in the terminal is the parent's to handle
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = json.loads(sys.stdin.readline())
    sys.path[:] = options["path"]
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        server = start_server(options)
    except Exception as error:  # whatever it is, the parent has to hear of it
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=report, flush=True)
        os._exit(1)
    print(json.dumps({"url": server.listening_address}), file=report, flush=True)
    sys.stdin.read()
    # a parent that was killed could not delete it
    shutil.rmtree(options["folder"], ignore_errors=True)
    # llama.cpp's own clean-up can hang on a request that is still running
    os._exit(0)


if __name__ == "__main__":
    main()
