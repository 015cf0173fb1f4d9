"""The whole control plane inside a test: ``from grange.testing import cluster``.

Owns: starting and stopping an embedded control plane on a separate thread, a small blocking
    surface over its API, and test sessions as tests.
Never: fakes; what runs here is what ``grange up`` runs.
Flow: ``with cluster() as c`` → API server, scheduler, controllers and agents on loopback → tests
    talk to ``c`` or, with ``c.kubeconfig``, through any Kubernetes client.
Concurrency: the control plane has its own thread and loop; ``Cluster`` may be used from any thread.
Start reading at: ``embedded``.
"""

from typing import Any

__all__ = [
    "Cluster",
    "SessionFailed",
    "SessionResult",
    "WaitFailed",
    "cluster",
    "run_session",
]

_SESSIONS = frozenset({"SessionFailed", "SessionResult", "run_session"})


def __getattr__(name: str) -> Any:
    """Import on use, so that having Grange installed does not slow down other people's pytest."""
    if name in _SESSIONS:
        from grange.testing import session_runs

        return getattr(session_runs, name)
    if name in __all__:
        from grange.testing import embedded

        return getattr(embedded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
