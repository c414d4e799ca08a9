"""The sandbox holds: with and without walls, and the walls also where the hook that gives them words is passed by."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gepa_lite.errors import RolloutError, UsageError
from gepa_lite.sandbox import walls
from gepa_lite.sandbox.sandbox import Call, Check, Sandbox

WALLED = walls.walled_command() is not None
needs_walls = pytest.mark.skipif(not WALLED, reason="this machine has no bubblewrap that works")


@pytest.fixture(params=["walled", "unconfined"])
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    if request.param == "unconfined":
        monkeypatch.setattr(walls, "walled_command", lambda: None)
        return Sandbox(seconds=30, unconfined=True)
    if not WALLED:
        pytest.skip("this machine has no bubblewrap that works")
    return Sandbox(seconds=30)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("open('/etc/gepa_lite_was_here', 'w')", "write", "it tried to write to '/etc/gepa_lite_was_here'"),
        ("try:\n    open('/etc/gepa_lite_was_here', 'w')\nexcept BaseException:\n    pass", "write", "only its working folder"),
        ("import os\nos.remove('/usr/bin/env')", "write", "tried to change '/usr/bin/env' (os.remove)"),
        ("import os\nos.fork()", "process", "another process"),
        ("import subprocess\nsubprocess.run(['ls'])", "process", "another process"),
        ("import multiprocessing\nmultiprocessing.Process(target=print).start()", "process", "another process"),
        ("import socket\nsocket.socket()", "socket", "network socket"),
        ("import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9')", "socket", "network socket"),
        ("import ctypes", "native", "ctypes"),
        ("import os\nos.kill(1, 9)", "native", "os.kill"),
        ("import time\ntime.sleep(60)", "timeout", "longer than 1.5 s"),
        ("text = 'a' * 10**9", "memory", "more than 256 MB"),
        ("kept = []\nwhile True:\n    kept.append(bytearray(10**7))", "memory", "more than 256 MB"),
        ("import os\nos.abort()", "crash", "SIGABRT"),
        ("raise SystemExit(0)", "exception", "SystemExit"),
        ("def f(:", "exception", "SyntaxError"),
        ("x = 1\ny = x / 0", "exception", "ZeroDivisionError: division by zero (line 2: y = x / 0)"),
        ("def f():\n    f()\nf()", "exception", "RecursionError"),
    ],
)
def test_what_breaks_out_or_fails_is_stopped_and_named(sandbox: Sandbox, code: str, kind: str, words: str) -> None:
    ran = (replace(sandbox, seconds=1.5) if kind == "timeout" else sandbox).run(code)
    assert ran.kind == kind
    assert words in ran.words
    assert not Path("/etc/gepa_lite_was_here").exists()


def test_values_errors_and_prints_come_back(sandbox: Sandbox) -> None:
    code = "print('loading')\ndef half(n):\n    return {'half': 10 / n}\ndef odd():\n    return {1, 2}"
    steps = [
        Call("half", (5,)),
        Call("half", (0,)),
        Call("odd"),
        Call("absent"),
        Check("assert half(5)['half'] == 2"),
        Check("assert half(5) == 1, 'no'"),
    ]
    ran = sandbox.run(code, steps)
    assert (ran.kind, ran.printed) == (None, "loading\n")
    assert [step.value for step in ran.steps] == [{"half": 2.0}, None, None, None, None, None]
    errors = [step.error or "" for step in ran.steps]
    assert errors[0] == errors[4] == ""
    for error, words in zip(
        errors[1:4], ("line 3: return {'half': 10 / n}", "a set that has no JSON form", "no function 'absent'"), strict=True
    ):
        assert words in error
    assert "AssertionError: no" in errors[5]
    assert sandbox.call(code, "half", 5) == {"half": 2.0}
    with pytest.raises(RolloutError, match="ZeroDivisionError") as caught:
        sandbox.call(code, "half", 0)
    assert (caught.value.kind, caught.value.fault) == ("sandbox", "candidate")


def test_it_may_use_its_own_folder_and_threads(sandbox: Sandbox) -> None:
    code = "import threading\ndef f():\n    open('a.txt', 'w').write('b')\n    t = threading.Thread(target=print)\n    t.start(); t.join()\n    return open('a.txt').read()"
    assert sandbox.call(code, "f") == "b"


def test_it_sees_no_key_no_package_and_prints_no_more_than_allowed(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "secret")
    ran = sandbox.run("import os\nprint('MY_API_KEY' in os.environ)\nprint('x' * 50_000)\nimport pydantic")
    assert ran.printed.startswith("False")
    assert len(ran.printed) == 10_000
    assert "No module named 'pydantic'" in ran.words


def test_the_same_code_gives_the_same_order_of_sets(sandbox: Sandbox) -> None:
    code = "def f():\n    return list({str(n) for n in range(50)})"
    assert sandbox.call(code, "f") == sandbox.call(code, "f")


@needs_walls
@pytest.mark.parametrize(
    ("code", "came"),
    [
        ("import os; os.fork()", "PermissionError"),
        ("import socket; socket.socket()", "PermissionError"),
        ("import subprocess; subprocess.run(['/bin/ls'])", "PermissionError"),
        ("import ctypes; l = ctypes.CDLL(None, use_errno=True); print(l.syscall(57), ctypes.get_errno())", "-1 1"),
        ("open('/usr/x', 'w')", "Read-only file system"),
        ("open('/x', 'w')", "Read-only file system"),
        ("open('/dev/shm/x', 'w')", "Read-only file system"),
        ("open('/proc/sys/kernel/hostname', 'w').write('x')", "Errno"),
        (
            "import os; print(sorted(set(os.listdir('/')) - {'bin', 'dev', 'etc', 'lib', 'lib32', 'lib64', 'proc', 'sbin', 'tmp', 'usr'}))",
            "harness.py",
        ),
        ("[open(f'f{n}', 'wb').write(bytes(10**6)) for n in range(30)]", "No space left"),
        ("import os; print([p for p in os.listdir('/proc') if p.isdigit()])", "'1', '2'"),
        (
            "import os; os.mount if hasattr(os, 'mount') else os.unshare(0x10000000) if hasattr(os, 'unshare') else os.fork()",
            "PermissionError",
        ),
    ],
)
def test_the_walls_hold_without_the_hook(code: str, came: str) -> None:
    command = walls.walled_command()
    assert command is not None
    done = walls.run_filtered((*command[:-1], "-c", code), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
    assert came in done.stdout.decode()


@needs_walls
def test_nothing_is_left_running_after_a_time_out() -> None:
    ran = Sandbox(seconds=0.6).run(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(987654,)).start()\ntime.sleep(987654)"
    )
    assert ran.kind == "timeout"
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            assert b"/harness.py" not in words or (folder / "stat").read_text().split()[2] == "Z" or _parent_is_another_test(folder)


def _parent_is_another_test(folder: Path) -> bool:
    """Another test process may run its own sandbox at this moment; ours is gone once it has no parent of ours."""
    try:
        number = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return True
    return number != os.getpid()


def test_without_walls_code_runs_only_where_it_is_allowed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walls, "walled_command", lambda: None)
    with pytest.raises(UsageError, match=r"apt install bubblewrap.*Sandbox\(unconfined=True\)"):
        Sandbox().run("x = 1")
    assert Sandbox(unconfined=True).run("x = 1").kind is None


def test_where_bubblewrap_does_not_work_there_are_no_walls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    for found in (str(broken), None):
        monkeypatch.setattr(shutil, "which", lambda name, found=found: found)
        walls.walled_command.cache_clear()
        assert walls.walled_command() is None
    monkeypatch.undo()
    walls.walled_command.cache_clear()


def test_the_filter_is_made_for_the_machines_we_know() -> None:
    assert walls.filter_program("riscv64") == b""
    for machine in ("x86_64", "aarch64"):
        program = walls.filter_program(machine)
        assert len(program) % 8 == 0
        assert len(program) // 8 < 4096


@pytest.mark.parametrize("options", [{"seconds": 0}, {"memory_mb": 8}, {"output_chars": -1}])
def test_impossible_limits_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Sandbox(**options)


def test_arguments_must_have_a_json_form() -> None:
    with pytest.raises(UsageError, match="JSON"):
        Sandbox(unconfined=True).call("def f(x): return x", "f", {1})
    assert json.dumps(Sandbox(unconfined=True).call("def f(x): return x", "f", {"a": [1, None]})) == '{"a": [1, null]}'
