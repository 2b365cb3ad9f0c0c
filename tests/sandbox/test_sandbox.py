"""The sandbox itself: what it reports, what it bounds, what it gives a candidate."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import agentkv
from agentkv.errors import IsolationTooLow, SandboxUnavailable, UsageError
from agentkv.sandbox import linux, processes, sandbox
from agentkv.sandbox.base import Captured, Ending, Isolation, Level, Limits, Policy
from agentkv.sandbox.sandbox import Sandbox, Stream

ANYWHERE = Policy(run=Level.PROCESS, deposit=Level.PROCESS)


def weak() -> Sandbox:
    return Sandbox(policy=ANYWHERE, ceiling=Level.LIMITS)


@pytest.fixture(params=["strong", "weak"])
def either(request: pytest.FixtureRequest) -> Sandbox:
    return weak() if request.param == "weak" else request.getfixturevalue("strong")


def test_levels_have_an_order() -> None:
    assert [level.rank for level in Level] == [0, 1, 2, 3]
    assert Level.BUBBLEWRAP.rank > Level.NAMESPACES.rank > Level.LIMITS.rank > Level.PROCESS.rank


def test_the_report_says_what_was_reached_and_why_not_more() -> None:
    reached = weak().isolation()
    assert reached.level in (Level.PROCESS, Level.LIMITS)
    assert reached.files == "open"
    assert set(reached.not_reached) == {"bubblewrap", "namespaces"}
    assert all("ceiling" in why for why in reached.not_reached.values())


def test_a_strong_report_is_backed_by_the_kernel(strong: Sandbox) -> None:
    reached = strong.isolation()
    assert (reached.descendants, reached.network, reached.files) == ("pid namespace", "none", "read-only selection")
    run = strong.run("import os; os.write(4, b' '.join(os.readlink(f'/proc/self/ns/{n}').encode()"
                     " for n in ('pid', 'net', 'mnt', 'ipc', 'uts')))")  # fmt: skip
    inside = run.answer.decode().split()
    outside = [str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("pid", "net", "mnt", "ipc", "uts")]
    assert len(inside) == 5
    assert set(inside).isdisjoint(outside)
    assert run.isolation == reached


def test_root_without_another_user_to_become_is_no_higher_than_process() -> None:
    run = weak().run("import os; os.write(4, str(os.getuid()).encode())")
    if run.answer == b"0":
        assert run.isolation.level is Level.PROCESS
        assert run.isolation.processes == "watched"
    else:
        assert run.isolation.level is (Level.LIMITS if sys.platform == "linux" else Level.PROCESS)


def test_below_the_policy_nothing_is_run(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    strict = Sandbox(policy=Policy(run=Level.BUBBLEWRAP), ceiling=Level.LIMITS)
    with pytest.raises(IsolationTooLow) as caught:
        strict.run(f"open({str(touched)!r}, 'w')")
    assert caught.value.required == "bubblewrap"
    assert not touched.exists()


def test_a_system_that_can_run_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with pytest.raises(SandboxUnavailable, match="no fork"):
        Sandbox().isolation()


def test_an_interpreter_that_does_not_start_is_reported_for_each_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_FLAGS", ("--no-such-option",))
    with pytest.raises(SandboxUnavailable) as caught:
        Sandbox(policy=ANYWHERE).isolation()
    assert "limits: a trial run ended with exit 2" in caught.value.reason


def test_a_launcher_that_dies_at_once_is_an_error_and_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_BOOT", "raise SystemExit('broken launcher')")
    with pytest.raises(SandboxUnavailable, match="broken launcher"):
        weak().isolation()


def test_a_launcher_that_is_killed_leaves_nothing_and_the_run_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("looks at /proc")
    box, mark = weak(), "mark-of-the-killed"
    box.isolation()
    monkeypatch.setattr("agentkv.sandbox.sandbox.secrets.token_hex", lambda _: mark)
    killer = threading.Thread(target=_kill_launcher, args=(mark,))
    killer.start()
    run = box.run("import time; time.sleep(60)")
    killer.join()
    assert run.ending is Ending.LOST
    assert processes.carrying(mark) == []


def _kill_launcher(mark: str) -> None:
    while not (found := processes.carrying(mark)):
        time.sleep(0.01)
    seen = processes.snapshot()
    os.kill(seen[found[0]].parent, 9)


def test_all_ends_when_the_caller_is_killed(tmp_path: Path, strong: Sandbox) -> None:
    token = str(secrets.randbelow(10**8) + 10**8)  # seconds to sleep: three years and more
    code = (
        "from agentkv.sandbox.sandbox import Sandbox\n"
        f"Sandbox().run('import os, time; os.fork() or os.setsid(); time.sleep({token})')\n"
    )
    caller = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)})
    while not (started := _running(token, caller.pid)):
        assert caller.poll() is None
        time.sleep(0.01)
    caller.kill()
    caller.wait()
    while _alive(started):  # ends, or pytest's timeout ends the test
        time.sleep(0.01)


def _running(token: str, but: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parts = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"-P" in parts and token.encode() in b"".join(parts) and int(place.name) != but:
            found.append(int(place.name))
    return found if len(found) >= 2 else []


def _alive(pids: list[int]) -> list[int]:
    seen = processes.snapshot()
    return [pid for pid in pids if pid in seen and seen[pid].threads]


def test_what_a_candidate_gets_is_bare(either: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hidden")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    script = (
        "import json, os, sys\n"
        "fds = [n for n in range(256) if os.path.exists(f'/proc/self/fd/{n}')]\n"
        "seen = [dict(os.environ), sys.path, fds, sys.stdin.read(), os.getcwd(), sys.flags.no_site]\n"
        "json.dump(seen, os.fdopen(4, 'w'))"
    )
    run = either.run(script, b"payload")
    environment, path, fds, stdin, folder, no_site = json.loads(run.answer)
    assert not {"SECRET_TOKEN", "PYTHONPATH"} & set(environment)
    assert environment["HOME"] == environment["TMPDIR"] == folder
    assert not [entry for entry in path if "site-packages" in entry or entry in ("", folder)]
    assert sorted(set(fds) - {0, 1, 2, 3, 4}) == []
    assert (stdin, no_site) == ("", 1)


def test_the_payload_is_there_whole_and_cannot_be_written(either: Sandbox) -> None:
    payload = bytes(range(256)) * 5000
    script = """
import os
data = b""
while chunk := os.read(3, 1 << 16):
    data += chunk
try:
    os.write(3, b"x")
except OSError:
    os.write(4, bytes(str(len(data)), "ascii"))
"""
    assert either.run(script, payload).answer == str(len(payload)).encode()


def test_exit_and_signal_are_distinguished(either: Sandbox) -> None:
    assert (either.run("raise SystemExit(7)").ending, either.run("raise SystemExit(7)").code) == (Ending.EXIT, 7)
    run = either.run("import ctypes; ctypes.string_at(0)")
    assert (run.ending, run.code) == (Ending.SIGNAL, 11)


def test_output_within_the_limit_is_whole(either: Sandbox) -> None:
    run = either.run("import sys; print('a' * 1000); print('b' * 1000, file=sys.stderr)")
    assert run.stdout == Captured(b"a" * 1000 + b"\n", b"", 1001, truncated=False)
    assert run.stderr.text == "b" * 1000 + "\n"
    assert not run.truncated


def test_output_beyond_the_limit_ends_it_and_leaves_head_and_tail(either: Sandbox) -> None:
    script = "for n in range(10**9): print(f'{n:09}')"
    run = either.run(script, limits=Limits(output_bytes=1 << 14, wall_s=20))
    assert run.ending is Ending.OUTPUT
    assert run.truncated
    assert run.stdout.head.startswith(b"000000000\n000000001\n")
    assert len(run.stdout.head) + len(run.stdout.tail) <= 1 << 14
    assert run.stdout.total > 1 << 14
    assert "[…]" in run.stdout.text


def test_an_output_that_fits_exactly_passes_and_one_byte_more_does_not(either: Sandbox) -> None:
    limits = Limits(output_bytes=1 << 12, answer_bytes=1 << 12)
    assert either.run("import os; os.write(1, b'x' * 4096)", limits=limits).ending is Ending.EXIT
    assert either.run("import os; os.write(1, b'x' * 4097)", limits=limits).ending is Ending.OUTPUT
    assert len(either.run("import os; os.write(4, b'x' * 4096)", limits=limits).answer) == 4096
    over = either.run("import os; os.write(4, b'x' * 4097)", limits=limits)
    assert (over.ending, over.answer) == (Ending.ANSWER, b"")


def test_a_script_that_no_command_line_holds_is_refused(either: Sandbox) -> None:
    with pytest.raises(UsageError, match="payload"):
        either.run("#" * 200_000)


def test_runs_of_several_threads_do_not_meet(strong: Sandbox) -> None:
    answers: dict[int, bytes] = {}

    def one(number: int) -> None:
        script = f"import os, time\nopen('/tmp/n', 'x').write('{number}')\ntime.sleep(0.1)\n"
        script += "os.write(4, open('/tmp/n', 'rb').read())"
        answers[number] = strong.run(script).answer

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: str(number).encode() for number in range(4)}


def _descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def test_nothing_stays_in_the_temporary_folder_nor_among_the_descriptors(
    either: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    either.isolation()
    tmp_path.chmod(0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = _descriptors()
    either.run("import os; os.makedirs('a/b'); open('a/b/c', 'w'); os.chmod('a/b', 0); os.chmod('a', 0)")
    either.run("while True: pass", limits=Limits(wall_s=0.2))
    assert list(tmp_path.iterdir()) == []
    assert _descriptors() == before


def test_a_folder_that_is_shown_can_be_read_and_not_written(strong: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("seen")
    tmp_path.chmod(0o755)
    box = Sandbox(readable=[tmp_path])
    script = f"""
import os
os.write(4, open("{tmp_path}/data", "rb").read())
open("{tmp_path}/data", "w")
"""
    run = box.run(script)
    assert run.answer == b"seen"
    assert b"Read-only file system" in run.stderr.head or b"Permission denied" in run.stderr.head
    assert (tmp_path / "data").read_text() == "seen"
    assert b"No such file" in strong.run(script).stderr.head


def test_the_root_and_the_system_are_read_only(strong: Sandbox) -> None:
    script = """
import os
for place in ("/", "/usr", "/etc", "/dev", "/proc", "/proc/self", os.path.dirname(os.__file__)):
    try:
        open(place + "/planted", "w")
    except OSError:
        continue
    os.write(4, place.encode())
"""
    run = strong.run(script)
    assert (run.answer, run.code) == (b"", 0)


def test_users_files_are_not_there(strong: Sandbox) -> None:
    hidden = [
        str(Path.home() / ".ssh"),
        "/root/.bashrc",
        "/home",
        "/etc/passwd",
        "/etc/shadow",
        "/var",
        "/sys",
        "/boot",
    ]
    run = strong.run(f"import os; os.write(4, repr([p for p in {hidden} if os.path.exists(p)]).encode())")
    assert run.answer == b"[]"


def test_a_bounded_stream_keeps_both_ends() -> None:
    reading, writing = os.pipe()
    stream = Stream(reading, keep=10)
    for chunk in (b"abc", b"defgh", b"ijklmnop", b"q"):
        os.write(writing, chunk)
        stream.read()
    assert stream.captured(more=False) == Captured(b"abcde", b"mnopq", 17, truncated=True)
    os.close(writing)
    assert stream.read() == 0
    assert stream.ended
    os.close(reading)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("signals", [True, False])
def test_the_filter_refuses_what_it_names_and_lets_pass_the_rest(
    machine: str, signals: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    program = linux.filter_program(signals=signals)
    assert program is not None
    column = ["x86_64", "aarch64"].index(machine)
    arch = [0xC000003E, 0xC00000B7][column]

    def verdict(number: int, argument: int = 0, arch: int = arch) -> int:
        return _interpreted(program, number, arch, argument)

    allow, eperm, enosys, no_family = 0x7FFF0000, 0x50001, 0x50026, 0x50061
    for name, numbers in {
        "ptrace": (101, 117), "unshare": (272, 97), "mount": (165, 40), "bpf": (321, 280), "personality": (135, 92)
    }.items():  # fmt: skip
        assert verdict(numbers[column]) == eperm, name
    clone, socket, read, kill = ((56, 220), (41, 198), (0, 63), (62, 129))
    assert verdict(clone[column], 17) == allow
    assert verdict(clone[column], 0x10000000 | 17) == eperm
    assert verdict(435) == enosys
    assert verdict(read[column]) == allow
    assert [verdict(socket[column], family) for family in (2, 10, 16, 40)] == [no_family] * 4
    assert verdict(socket[column], 1) == (allow if signals else no_family)
    assert verdict(kill[column]) == (allow if signals else eperm)
    assert verdict(read[column], arch=0x40000003) == eperm
    if machine == "x86_64":
        assert verdict(0x40000000 | 101) == enosys


def test_a_machine_that_the_filter_does_not_know_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert linux.filter_program(signals=True) is None


def _interpreted(program: bytes, number: int, arch: int, argument: int) -> int:
    """What the kernel's machine would return."""
    import struct

    data = struct.pack("=IIQ6Q", number, arch, 0, argument, 0, 0, 0, 0, 0)
    at, accumulator = 0, 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("=HBBI", program, 8 * at)
        at += 1
        if code == 0x20:
            accumulator = struct.unpack_from("=I", data, value)[0]
        elif code == 0x06:
            return int(value)
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[code]
            at += if_true if holds else if_false


def test_bubblewrap_where_it_is_installed() -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bwrap is not installed")
    if os.geteuid() == 0:
        reached = Sandbox().isolation()
        assert "as root" in reached.not_reached["bubblewrap"]
        return
    reached = Sandbox().isolation()
    assert reached.level is Level.BUBBLEWRAP, reached.not_reached


def test_importing_the_launcher_loads_nothing_heavy() -> None:
    root = str(Path(agentkv.__file__).parents[1])
    code = (
        "import sys; sys.path.append(sys.argv[1]); import agentkv.sandbox.launcher;"
        "print(sorted({'pydantic', 'dataclasses', 'subprocess', 'numpy', 'orjson'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, root], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_record_of_isolation_survives_its_json() -> None:
    reached = weak().isolation()
    assert Isolation.model_validate_json(reached.model_dump_json()) == reached
