"""What any program needs; knows no noun of Kubernetes.

Owns: the clock, named randomness, task ownership, offloading, backoff, errors, logs and metrics.
Never: the API, a socket or a file.
Flow: constructed by ``app`` (or the test loop) and passed down; nothing here is ambient.
Concurrency: pure values and thin async shells; only ``offload`` owns threads.
Start reading at: ``clock``, then ``tasks``.
"""
