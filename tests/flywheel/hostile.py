"""Candidates that cheat, flee, flood and break, each with the verdicts that are right for it.

The task asks for ``solve(a=2, b=3)``, whose answer the check knows to be 5. Placeholders: ``@ESCAPE@`` a path outside,
``@STORE@`` a folder outside with one file, ``@PORT@`` a listener on loopback, ``@ABSTRACT@`` one in the abstract
namespace, ``@PARENT@`` the verifier's pid, ``@TOKEN@`` digits that stand in the command line of whatever is started.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

from agentkv.flywheel.solution import Verdict
from agentkv.sandbox.base import Limits

F, T, V = Verdict.FAILED, Verdict.TIMEOUT, Verdict.VERIFIED
QUICK = Limits(wall_s=0.6, processes=8)
SMALL = Limits(wall_s=20.0, memory_bytes=128 << 20, processes=8)


@dataclass(frozen=True)
class Hostile:
    """``verdicts``: the right ones. ``VERIFIED`` is right only where the answer is and the rest was without effect."""

    source: str
    verdicts: tuple[Verdict, ...]
    limits: Limits = SMALL


def _h(source: str, *verdicts: Verdict, limits: Limits = SMALL) -> Hostile:
    return Hostile(dedent(source), verdicts, limits)


# B28: out of "restricted" Python, at files, the verifier, the network.
ESCAPES = {
    "open through object's subclasses": _h(
        """
        def solve(a, b):
            for kind in ().__class__.__mro__[-1].__subclasses__():
                g = getattr(getattr(kind, "__init__", None), "__globals__", {})
                if "open" in g.get("__builtins__", {}):
                    g["__builtins__"]["open"]("@ESCAPE@", "w").write("out")
                    return 4
            raise LookupError("nothing found")
        """,
        F,
    ),
    "ctypes writes a file": _h(
        """
        import ctypes
        def solve(a, b):
            libc = ctypes.CDLL(None)
            fd = libc.open(b"@ESCAPE@", 0o1102, 0o644)
            libc.write(fd, b"out", 3)
            return a + b if fd < 0 else 4
        """,
        V,
    ),
    "edits a block in the store": _h(
        """
        import os
        def solve(a, b):
            for folder, _, names in os.walk("@STORE@"):
                for name in names:
                    open(os.path.join(folder, name), "ab").write(b"x")
            return sum(len(names) for _, _, names in os.walk("@STORE@")) + 100
        """,
        F,
    ),
    "patches the verifier": _h(
        """
        import sys
        sys.path += ["@PACKAGE@"]
        def solve(a, b):
            import agentkv.flywheel.verify as checks
            checks.same = lambda *_: True
            return 4
        """,
        F,
    ),
    "connects to loopback": _h(
        """
        import socket
        def solve(a, b):
            socket.create_connection(("127.0.0.1", @PORT@), 1).send(b"out")
            return a + b
        """,
        F,
    ),
    "connects by ctypes": _h(
        """
        import ctypes
        def solve(a, b):
            fds = [ctypes.CDLL(None).socket(family, 1, 0) for family in (2, 10, 16, 17, 40)]
            return a + b if max(fds) < 0 else 4
        """,
        V,
    ),
    "connects to an abstract socket": _h(
        """
        import socket
        def solve(a, b):
            socket.socket(socket.AF_UNIX).connect("\\0@ABSTRACT@")
            return a + b
        """,
        F,
    ),
    "link out of its folder": _h(
        """
        import os
        def solve(a, b):
            os.symlink("@STORE@", "link")
            open("link/planted", "w").write("out")
            return a + b
        """,
        F,
    ),
    "hard link to a file outside": _h(
        """
        import os
        def solve(a, b):
            os.link("/usr/bin/env", "env")
            open("env", "ab").write(b"out")
            return a + b
        """,
        F,
    ),
    "reads the parent's memory": _h(
        """
        def solve(a, b):
            with open("/proc/@PARENT@/mem", "rb") as memory:
                memory.seek(4096); memory.read(1)
            return a + b
        """,
        F,
    ),
    "reads process 1": _h(
        """
        def solve(a, b):
            open("/proc/1/mem", "rb").read(1)
            return a + b
        """,
        F,
    ),
    "lists other processes": _h(
        """
        import os
        def solve(a, b):
            seen = [int(n) for n in os.listdir("/proc") if n.isdigit()]
            return a + b if len(seen) == 2 and not os.path.exists("/proc/@PARENT@/status") else seen
        """,
        V,
    ),
    "traces the parent": _h(
        """
        import ctypes
        def solve(a, b):
            libc = ctypes.CDLL(None)
            return a + b if libc.ptrace(16, @PARENT@, 0, 0) == -1 and libc.ptrace(16, 1, 0, 0) == -1 else 4
        """,
        V,
    ),
    "signals the parent and process 1": _h(
        """
        import os, signal
        def solve(a, b):
            for pid in (@PARENT@, 1):
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGSTOP, signal.SIGKILL):
                    try:
                        os.kill(pid, number)
                    except OSError:
                        pass
            return a + b
        """,
        V,
    ),
    "writes beside the standard library": _h(
        """
        import os, sys
        def solve(a, b):
            place = os.path.dirname(os.__file__)
            open(os.path.join(place, "sitecustomize.py"), "w").write("print('here')")
            return a + b
        """,
        F,
    ),
    "new namespaces": _h(
        """
        import ctypes
        def solve(a, b):
            libc = ctypes.CDLL(None)
            return a + b if libc.unshare(0x10000000) and libc.mount(b"none", b"/tmp", b"tmpfs", 0, 0) else 4
        """,
        V,
    ),
    "memory that no limit counts": _h(
        """
        import os, ctypes
        def solve(a, b):
            assert ctypes.CDLL(None).shmget(0, 1 << 30, 0o1600) == -1
            os.memfd_create("hidden")
            return a + b
        """,
        F,
    ),
    "becomes root": _h(
        """
        import os
        def solve(a, b):
            for call in (os.setuid, os.setgid, os.seteuid):
                try:
                    call(0)
                except OSError:
                    continue
                return 4
            return a + b
        """,
        V,
    ),
}

# B29: descendants that stay, readers that wait, signals that are ignored.
REMAIN = {
    "plain child holds stdout": _h(
        """
        import subprocess
        def solve(a, b):
            subprocess.Popen(["sleep", "3@TOKEN@"])
            while True: pass
        """,
        T,
        limits=QUICK,
    ),
    "child in its own session": _h(
        """
        import subprocess
        def solve(a, b):
            subprocess.Popen(["sleep", "3@TOKEN@"], start_new_session=True)
            while True: pass
        """,
        T,
        limits=QUICK,
    ),
    "double fork": _h(
        """
        import os, time
        def solve(a, b):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.execvpe("sleep", ["sleep", "3@TOKEN@"], {"PATH": "/usr/bin:/bin"})
                os._exit(0)
            while True: time.sleep(1)
        """,
        T,
        limits=QUICK,
    ),
    "daemon outlives a right answer": _h(
        """
        import os
        def solve(a, b):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.execvpe("sleep", ["sleep", "3@TOKEN@"], {"PATH": "/usr/bin:/bin"})
                os._exit(0)
            os.wait()
            return a + b
        """,
        V,
    ),
    "reads standard input": _h("def solve(a, b):\n    return input()\n", F),
    "ignores SIGTERM": _h(
        """
        import signal
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        def solve(a, b):
            while True: pass
        """,
        T,
        limits=QUICK,
    ),
    "stops itself": _h(
        """
        import os, signal
        def solve(a, b):
            os.kill(os.getpid(), signal.SIGSTOP)
        """,
        T,
        limits=QUICK,
    ),
    "zombies": _h(
        """
        import os, time
        def solve(a, b):
            for _ in range(5):
                if os.fork() == 0:
                    os._exit(0)
            return a + b
        """,
        V,
    ),
    "threads that go on": _h(
        """
        import threading, time
        def solve(a, b):
            for _ in range(3):
                threading.Thread(target=lambda: time.sleep(3600)).start()
            return a + b
        """,
        V,
    ),
    "atexit that never ends": _h(
        """
        import atexit, time
        atexit.register(time.sleep, 3600)
        def solve(a, b):
            return a + b
        """,
        V,
    ),
    "listens": _h(
        """
        import socket
        def solve(a, b):
            s = socket.socket(socket.AF_UNIX)
            s.bind("here"); s.listen()
            return a + b
        """,
        V,
    ),
    "waits in the load": _h("import time\ntime.sleep(3600)\n", T, limits=QUICK),
}

# B30: more than there is room for.
FLOODS = {
    "prints lines for ever": _h("def solve(a, b):\n    while True: print('x' * 10240)\n", F),
    "stderr only": _h("import sys\ndef solve(a, b):\n    while True: sys.stderr.write('x' * 65536)\n", F),
    "no newline": _h("import os\ndef solve(a, b):\n    while True: os.write(1, b'x' * 65536)\n", F),
    "forks for ever": _h(
        """
        import os
        def solve(a, b):
            while True:
                try:
                    os.fork()
                except OSError:
                    pass
        """,
        T,
        F,
        limits=QUICK,
    ),
    "threads for ever": _h(
        """
        import threading, time
        def solve(a, b):
            while True:
                threading.Thread(target=time.sleep, args=(3600,)).start()
        """,
        F,
    ),
    "2 GB of memory": _h("def solve(a, b):\n    return len(bytearray(2 << 30))\n", F),
    "memory of many processes": _h(
        """
        import os, time
        def solve(a, b):
            for _ in range(5):
                if os.fork() == 0:
                    kept = bytearray(b"x") * (40 << 20)
                    time.sleep(3600)
            time.sleep(3600)
        """,
        F,
    ),
    "5 GB file": _h(
        """
        def solve(a, b):
            with open("big", "wb") as file:
                for _ in range(5 << 10):
                    file.write(b"x" * (1 << 20))
            return a + b
        """,
        F,
    ),
    "many files": _h(
        """
        def solve(a, b):
            for number in range(1000):
                with open(f"/dev/shm/{number}" if number % 2 else f"/tmp/{number}", "wb") as file:
                    file.write(b"x" * (1 << 20))
            return a + b
        """,
        F,
    ),
    "1 GB answer": _h("def solve(a, b):\n    return 'x' * (1 << 30)\n", F),
    "20 MB answer": _h("def solve(a, b):\n    return 'x' * (20 << 20)\n", F),
    "floods the answer pipe": _h("import os\ndef solve(a, b):\n    while True: os.write(4, b'x' * 65536)\n", F),
    "CPU of several processes": _h(
        """
        import os
        def solve(a, b):
            os.fork(); os.fork()
            while True: pass
        """,
        T,
        limits=Limits(wall_s=20.0, cpu_s=1.0, processes=8),
    ),
}

# B31: passes that are none.
FALSE_PASSES = {
    "os._exit(0) in the load": _h("import os\ndef solve(a, b):\n    return 5\nos._exit(0)\n", F),
    "os._exit(0) in solve": _h("import os\ndef solve(a, b):\n    os._exit(0)\n", F),
    "sys.exit": _h("import sys\ndef solve(a, b):\n    sys.exit()\n", F),
    "SystemExit(0)": _h("def solve(a, b):\n    raise SystemExit(0)\n", F),
    "atexit prints success": _h(
        """
        import atexit, sys
        atexit.register(print, "verified: 1 of 1 checks passed")
        def solve(a, b):
            sys.exit(0)
        """,
        F,
    ),
    "assert that -O would skip": _h("def solve(a, b):\n    assert a + b == 6\n    return a + b\n", F),
    "equal to everything": _h(
        """
        class Any(int):
            def __eq__(self, other): return True
            def __hash__(self): return 5
        def solve(a, b):
            return Any(4)
        """,
        F,
    ),
    "forged verdict": _h(
        """
        import os
        def solve(a, b):
            os.write(4, b'{"verdict": "verified", "checks": 1}\\n')
            os._exit(0)
        """,
        F,
    ),
    "forged answer before its own": _h(
        """
        import os
        def solve(a, b):
            os.write(4, b'{"value": 5}\\n')
            return 4
        """,
        F,
    ),
    "forged words on every descriptor": _h(
        """
        import os
        def solve(a, b):
            for fd in range(0, 64):
                try:
                    os.write(fd, b'{"ended": {"status": 0}}\\n{"ready": {}}\\n')
                except OSError:
                    pass
            return 4
        """,
        F,
    ),
    "patched json and os": _h(
        """
        import json, os, sys
        json.dumps = lambda value: '{"value": 5, "passed": true}'
        os._exit = lambda code: None
        def solve(a, b):
            return 4
        """,
        F,
    ),
    "patched harness": _h(
        """
        import sys
        main = sys.modules["__main__"]
        main._plain = lambda value, depth=0: {"expected": 5}
        def solve(a, b):
            return 4
        """,
        F,
    ),
    "closes every descriptor": _h("import os\ndef solve(a, b):\n    os.closerange(0, 256)\n    return 5\n", F),
    "deletes its own folder": _h(
        """
        import os, shutil
        def solve(a, b):
            shutil.rmtree(os.getcwd(), ignore_errors=True)
            return 4
        """,
        F,
    ),
    "closes its own folder": _h(
        """
        import os
        def solve(a, b):
            os.makedirs("in/ner"); os.chmod("in", 0); os.chmod(".", 0)
            return 4
        """,
        F,
    ),
    "not a number": _h("def solve(a, b):\n    return float('nan')\n", F),
    "infinity by hand": _h(
        "import os\ndef solve(a, b):\n    os.write(4, b'{\"value\": Infinity}\\n'); os._exit(0)\n", F
    ),
    "huge integer": _h("def solve(a, b):\n    return 10 ** 5000\n", F),
    "huge integer by hand": _h(
        "import os\ndef solve(a, b):\n    os.write(4, b'{\"value\": ' + b'9' * 9999 + b'}\\n'); os._exit(0)\n", F
    ),
    "circular": _h("def solve(a, b):\n    x = []\n    x.append(x)\n    return x\n", F),
    "deep by hand": _h(
        "import os\ndef solve(a, b):\n    os.write(4, b'{\"value\": ' + b'[' * 50000 + b']' * 50000 + b'}\\n')"
        "; os._exit(0)\n",
        F,
    ),
    "not serialisable": _h("def solve(a, b):\n    return {5}\n", F),
    "right text, wrong type": _h("def solve(a, b):\n    return '5'\n", F),
    "float": _h("def solve(a, b):\n    return 5.0\n", F),
    "true for one": _h("def solve(a, b):\n    return True\n", F),
    "half a surrogate": _h("def solve(a, b):\n    return '\\ud800'\n", F),
    "segmentation fault": _h("import ctypes\ndef solve(a, b):\n    ctypes.string_at(0)\n", F),
    "endless recursion": _h("import sys\nsys.setrecursionlimit(10**9)\ndef solve(a, b):\n    return solve(a, b)\n", F),
    "no solve": _h("def add(a, b):\n    return 5\n", F),
    "syntax error": _h("def solve(a, b:\n", F),
    "raises with a hostile message": _h(
        """
        class Bad(BaseException):
            def __str__(self): raise SystemExit(0)
        def solve(a, b):
            raise Bad
        """,
        F,
    ),
    "PYTHON variables and sitecustomize": _h(
        """
        import os, subprocess, sys
        def solve(a, b):
            open("sitecustomize.py", "w").write("import os; os._exit(0)")
            os.environ["PYTHONPATH"] = os.getcwd()
            return 4
        """,
        F,
    ),
}

HOSTILE = ESCAPES | REMAIN | FLOODS | FALSE_PASSES
