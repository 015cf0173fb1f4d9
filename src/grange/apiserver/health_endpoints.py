"""Whether the server lives and is ready: named checks, as text."""

from collections.abc import Callable, Mapping
from functools import partial

from grange.api.http import Response
from grange.api.status import NotFound
from grange.store.errors import StoreError
from grange.store.interface import Store

Check = Callable[[], str]
"""What is wrong; empty when nothing is."""

Checks = Callable[[], Mapping[str, str]]
"""What is wrong by name, where the names change."""

_TEXT = "text/plain; charset=utf-8"
_ALIVE = frozenset({"ping"})


class HealthEndpoints:
    """``/livez``, ``/readyz``, ``/healthz``, each with ``?verbose`` and single checks below.

    Args:
        store: must be readable for readiness.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.bootstrapped = False
        self._checks: dict[str, Check] = {
            "ping": lambda: "",
            "store": self._check_store,
            "bootstrap": self._check_bootstrap,
        }
        self._groups: list[Checks] = []

    def add_group(self, checks: Checks) -> None:
        """Make ``/readyz`` depend on things whose names change; ``/healthz`` and ``/livez`` do not."""
        self._groups.append(checks)

    def _check_store(self) -> str:
        try:
            self._store.get("/core/namespaces/default")
        except StoreError as error:
            return str(error)
        return ""

    def _check_bootstrap(self) -> str:
        return "" if self.bootstrapped else "the built-in namespaces are not there yet"

    def serve(self, path: str, query: Mapping[str, str]) -> Response | None:
        """The answer for a health path; None for any other path.

        Raises:
            NotFound: there is no such check.
        """
        root, _, single = path.strip("/").partition("/")
        if root not in {"livez", "readyz", "healthz"}:
            return None
        checks = {n: c for n, c in self._checks.items() if root != "livez" or n in _ALIVE}
        if root == "readyz":
            for group in self._groups:
                checks.update({name: partial(str, why) for name, why in group().items()})
        names = [*checks]
        if single:
            if single not in names:
                raise NotFound(f"no check {single} in /{root}, which has {', '.join(names)}")
            names = [single]
        left_out = {item.strip() for item in (query.get("exclude") or "").split(",")}
        faults = {name: checks[name]() for name in names if name not in left_out}
        failed = any(faults.values())
        if not failed and "verbose" not in query:
            return Response(200, b"ok", _TEXT)
        lines = [
            f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in faults.items()
        ]
        lines.append(f"{root} check {'failed' if failed else 'passed'}")
        return Response(500 if failed else 200, ("\n".join(lines) + "\n").encode(), _TEXT)
