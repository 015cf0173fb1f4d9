"""Test sessions run by a program: a controller in its process, without the kind TestSession.

Owns: the queue of sessions, the executors, the watcher of their pods, and the records of their events.
Never: stores a session in the API, or gets machine leases; machines are counted in its process.
Flow: ``schedule`` → ``SessionQueue`` (pure) → ``Executor`` → pods → ``Watcher`` → the verdict.
Concurrency: one event loop; at most ``executor_count`` sessions run at a time.
Start reading at: ``session_controller``, then ``pod_executor``.
"""
