"""Containers as plain processes of the machine.

Owns: the launcher and its shims, pod directories, loopback addresses, log files, taking over.
Never: isolation; a process sees the machine's files and network as its user does.
Flow: ``process_runtime.ProcessRuntime`` → launcher (one small process) → forks a shim a run → program.
Concurrency: the runtime lives on the event loop and is woken by the shims' sockets; a shim
    outlives the server, so that a crash of the server costs no pod.
Start reading at: ``shim`` (who owns a program), then ``launcher``, then ``process_runtime``.
"""
