"""Commands: what they can see and reach, and that nothing of them is left."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.tools import Operation, ToolError, commands, sandbox
from activities.tools.commands import HEAD_BYTES, TAIL_BYTES
from activities.tools.executor import Executor
from activities.tools.shell import SPARE, shell
from tests.isolation import isolation
from workers.checkup import _isolation

pytestmark = isolation
SECRET = "canary-8c2f51"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text(SECRET)
    place = tmp_path / "spaces" / "run"
    place.mkdir(parents=True)
    return place


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that cannot isolate."""
    monkeypatch.setattr(commands, "problem", lambda: "a test says so")
    monkeypatch.setattr(sandbox, "problem", lambda: "a test says so")


def operation(workspace: Path, approved_by: str | None = None, **options: Any) -> Operation:
    return Operation(
        operation_id="run.1:shell:1",
        tool="shell",
        thread="run.1",
        workspace=workspace,
        approved_by=approved_by,
        options=options,
    )


def run(workspace: Path, *argv: str, timeout: int = 20, by: str | None = None, **options: Any) -> str:
    said = shell(argv=list(argv), timeout=timeout, op=operation(workspace, by, **options))
    assert isinstance(said, str)
    return said


def running(mark: str) -> list[str]:
    """The processes of this machine that have `mark` in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if mark in line:
            found.append(line)
    return found


def gone(mark: str) -> bool:
    end = time.monotonic() + 10
    while running(mark) and time.monotonic() < end:
        time.sleep(0.05)
    return not running(mark)


LOOK = """
import os, pathlib, socket, sys
found = []
for path in [sys.argv[1], "../../secret.txt", "link"]:
    try: found.append(pathlib.Path(path).read_text())
    except OSError as error: print(path, error)
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try: found.append(path.read_text())
    except OSError: pass
try: socket.create_connection(("127.0.0.1", int(sys.argv[2])), 5); found.append("connected")
except OSError as error: print(error)
try: pathlib.Path(sys.argv[1]).with_name("made").write_text("x"); found.append("wrote")
except OSError as error: print(error)
print("FOUND", [word for word in ("canary-8c2f51", "canary-environment", "connected", "wrote") if word in str(found)])
"""


@pytest.fixture
def service() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def look(workspace: Path, service: int, **options: Any) -> str:
    (workspace / "link").symlink_to("../../secret.txt")
    (workspace / "look.py").write_text(LOOK)
    return run(workspace, "python", "look.py", str(workspace.parent.parent / "secret.txt"), str(service), **options)


def test_an_isolated_command_sees_no_file_secret_or_service_of_the_machine(
    workspace: Path, service: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-environment")
    assert "FOUND []" in look(workspace, service)


def test_the_same_look_without_isolation_finds_them(
    workspace: Path, service: int, monkeypatch: pytest.MonkeyPatch, alone: None
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-environment")
    said = look(workspace, service, by="alice")
    assert all(word in said.split("FOUND")[1] for word in (SECRET, "connected", "wrote"))
    assert "not isolated" in said


def test_the_machine_cannot_be_written_and_the_workspace_can(workspace: Path) -> None:
    said = run(workspace, "sh", "-c", "touch made /usr/made /etc/made; mount -t tmpfs x /mnt; echo 1 > /proc/sys/vm/x")
    assert (workspace / "made").exists()
    assert not Path("/usr/made").exists()
    assert not Path("/etc/made").exists()
    assert said.count("\n") >= 4, "three refusals"


def test_the_environment_is_a_short_list(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_API_KEY", SECRET)
    monkeypatch.setenv("HARMLESS", "seen")
    assert {line.split("=")[0] for line in run(workspace, "env").splitlines()[1:]} <= {
        *("LANG", "LC_ALL", "TZ", "PATH", "HOME", "TERM", "NO_COLOR", "PWD"),
    }
    assert "HARMLESS=seen" in run(workspace, "env", environment=["HARMLESS"])
    with pytest.raises(ToolError, match="looks like a secret"):
        run(workspace, "env", environment=["TEMPORAL_API_KEY"])


def test_further_folders_are_read_only(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a").write_text("given")
    path = str(tmp_path / "more")
    said = run(workspace, "sh", "-c", f"cat {path}/a; touch {path}/b", paths=[path])
    assert "given" in said
    assert not (tmp_path / "more" / "b").exists()


def test_there_is_no_shell_in_between(workspace: Path) -> None:
    assert run(workspace, "echo", "$HOME; ls | *").endswith("$HOME; ls | *\n")


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        ([], "argv is empty"),
        ([""], "argv is empty"),
        (["a\0b"], "holds a NUL"),
        (["no-such-program"], "no program 'no-such-program'"),
        (["ls -l"], "give the arguments apart"),
        (["echo", "x" * 200_000], "longer than"),
    ],
)
def test_a_command_that_cannot_be_run_says_that_nothing_happened(workspace: Path, argv: list[str], reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        run(workspace, *argv)


def test_a_hundred_megabytes_of_output_keep_their_head_and_tail(workspace: Path) -> None:
    said = run(workspace, "sh", "-c", "echo begin; head -c 100000000 /dev/zero | tr '\\0' x; echo end")
    assert said.startswith("[exit code 0]\nbegin\nxx")
    assert said.endswith("xx" + "end\n")
    assert len(said) < HEAD_BYTES + TAIL_BYTES + 200
    assert "of 100000010 bytes left out" in said


def test_binary_output_is_described(workspace: Path) -> None:
    assert run(workspace, "head", "-c", "5000", "/dev/urandom").endswith("[binary output, 5000 bytes]")
    assert run(workspace, "printf", "\\377\\376 text").endswith(
        "\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} text"
    )


STUBBORN = "trap '' TERM INT HUP; (setsid sh -c \"trap '' TERM; sleep {mark}\" &); echo said; sleep {mark}"


@pytest.mark.parametrize("isolated", [True, False])
async def test_a_command_that_ignores_sigterm_is_gone_at_its_deadline(
    workspace: Path, isolated: bool, request: pytest.FixtureRequest
) -> None:
    mark = f"7{os.getpid()}.{int(isolated)}"
    line = STUBBORN.format(mark=mark) if isolated else f"trap '' TERM; (sleep {mark} &) ; echo said; sleep {mark}"
    environment = {} if isolated else {"PATH": "/nowhere"}
    executor = Executor()
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():  # the tool's process finds no bubblewrap there
            patch.setenv(name, value)
        op = operation(workspace, "alice")
        said = await executor.run(shell, {"argv": ["/bin/sh", "-c", line], "timeout": 1}, op, 30)
    assert time.monotonic() - began < 20
    assert str(said).startswith(f"[killed: it had not ended after 1 s{'' if isolated else '; not isolated'}]\nsaid")
    assert gone(mark)


def test_what_a_command_leaves_running_ends_with_it(workspace: Path) -> None:
    mark = f"8{os.getpid()}"
    assert run(workspace, "sh", "-c", f"(setsid sleep {mark} &) ; sleep {mark} & echo done").endswith("done\n")
    assert gone(mark)


BOMB = """
import os, sys, time
for _ in range(6):  # 64 processes, each in a session of its own
    if os.fork() == 0: os.setsid()
time.sleep(600)
"""


def test_processes_that_multiply_are_all_gone_at_the_deadline(workspace: Path) -> None:
    mark = f"bomb-{os.getpid()}.py"
    (workspace / mark).write_text(BOMB)
    began = time.monotonic()
    assert run(workspace, "python", mark, timeout=2).startswith("[killed")
    assert gone(mark)
    assert time.monotonic() - began < 20


def test_a_clock_that_jumps_moves_no_deadline(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = iter(range(0, 10**9, 86_400))
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    assert run(workspace, "sh", "-c", "sleep 0.3; echo done").endswith("done\n")
    began = time.monotonic()
    assert run(workspace, "sleep", "60", timeout=1).startswith("[killed")
    assert time.monotonic() - began < 15


def test_without_isolation_a_person_is_asked_and_without_a_yes_nothing_runs(workspace: Path, alone: None) -> None:
    assert shell.guard is not None
    assert "not isolated on this worker: a test says so" in (shell.guard({}, {}) or "")
    with pytest.raises(ToolError, match="nobody approved"):
        run(workspace, "touch", "made")
    assert not (workspace / "made").exists()


async def test_doctor_says_whether_commands_are_isolated(alone: None) -> None:
    found = await _isolation()
    assert [(each.state, "a test says so" in each.said) for each in found] == [("warn", True)]
    assert "bubblewrap" in found[0].remedy


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"network": True}, "can reach Temporal"), ({"netwrok": True}, "netwrok"), ({"paths": ["/"]}, "no absolute path")],
)
def test_options_that_open_the_isolation_ask(options: dict[str, Any], reason: str) -> None:
    assert shell.guard is not None
    assert reason in (shell.guard({}, options) or "")
    assert shell.guard({}, {"paths": ["/opt/tools"]}) is None


def test_a_call_lasts_as_long_as_it_asks_for() -> None:
    assert shell.seconds(shell.canonical({"argv": ["true"]})) == 60 + SPARE
    assert shell.seconds(shell.canonical({"argv": ["true"], "timeout": 3600})) == shell.timeout
