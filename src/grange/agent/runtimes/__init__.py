"""What can run containers: one package or module a runtime, strangers to each other.

Owns: the implementations of ``agent.container_runtime.PodRuntime``.
Never: the API, restart policy, probes; a runtime starts, signals, reports and forgets.
Flow: ``prepare`` → ``start`` → (exit noticed, watcher called) → ``remove``.
Concurrency: called on one event loop; blocking file work goes through ``base.offload``.
Start reading at: ``fake`` for the contract in small, ``process`` for the real one.
"""
