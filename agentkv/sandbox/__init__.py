"""Running an untrusted Python program (the *candidate*), and reporting how far it was isolated.

```
sandbox.py       Sandbox: one run, from outside                          <- what callers use
├── base.py          levels, limits, policy, the record of a run
└── launcher.py      between agentkv and the candidate: starts, watches, ends all of it
    ├── namespaces.py    namespaces of its own (Linux, with and without root, or made by bwrap)
    ├── candidate.py     the last steps before the candidate: limits, user, descriptors
    ├── processes.py     looking at processes, and ending them
    └── linux.py         system calls that Python 3.11 has no name for; the filter of system calls
```
The launcher imports nothing but these and the standard library: it starts for every run.

What holds at which level; the record of each run (:class:`~agentkv.sandbox.base.Isolation`) says which it reached:

| | process | limits | namespaces, bubblewrap |
|---|---|---|---|
| process, folder and environment of its own, empty standard input | yes | yes | yes |
| wall time; output and answer bounded while it runs | yes | yes | yes |
| memory a process, file size, open files | where the system has the limit | yes | yes |
| processes; CPU and memory of all together | watched, every 50 ms, on Linux | bound, watched | bound, watched |
| no descendant is left | by ancestry (Linux), by process group (macOS) | found by ancestry | ended by the kernel |
| no network | by the filter, on x86-64 and AArch64 | by the filter | no interface, and the filter |
| files | whatever the user may read and write | the same | reads system and interpreter, writes 64 MB in memory |
| other processes out of sight and reach | no | signals are refused by the filter | yes |
| a user of its own | no | if root starts it and others can read the interpreter | yes |

**Not prevented, at any level**: a fault of the kernel that a candidate may use (a virtual machine would be needed);
what can be learned from timing, from the system's files, from ``/proc`` of its own namespace (kernel version, CPU,
memory, load); using all that the limits allow, on all cores at once; memory in pipes and socket buffers, some MB.
Limits that are watched can be passed for up to 50 ms.

**Not prevented below ``namespaces``**: reading any file that the user may read and changing any that the user may
write, the store, the verifier's own code and the interpreter among them; reading the memory of the user's other
processes, the verifier's too, where the system lets a user do that; leaving files; filling the disk with many
files. A process that leaves its ancestors, kills the launcher and starts a program with another environment can
outlive the run. So a verdict made there can be forged, and by default no deposit accepts one
(:class:`~agentkv.sandbox.base.Policy`); by default nothing at all is run at level ``process``.

On Linux without user namespaces (or where they are restricted) and without root, the level is ``limits``; on macOS
``process``; on Windows nothing is run (SandboxUnavailable).
"""
