"""The environment of a verb: clock, kubeconfigs and terminal; ``app`` reads it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client.access import Access, ServiceAccountAccess
from grange.client.transport import Transport


def uninterrupted(_callback: Callable[[], None]) -> AbstractContextManager[None]:
    """No request to end the program is caught."""
    return nullcontext()


def over_http(access: Access, clock: Clock) -> Transport:
    """A transport over HTTP; its library is loaded when the first one is made."""
    from grange.client.transports.http_transport import HTTP

    return HTTP.from_access(access, clock=clock)


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of the command line.

    Attributes:
        clock: time.
        rng: the process's random stream.
        log: logger of the surface.
        kubeconfig: candidate files, in the order of precedence.
        interactive: standard output is a terminal.
        color: colors may be used (a terminal, and ``NO_COLOR`` is not set).
        width: columns of the terminal; 80 where there is none.
        run: runs a coroutine to its end on a fresh loop; KeyboardInterrupt cancels it.
        connect: makes the transport to a cluster.
        account: the service account of the pod that this process runs in; None outside of a cluster.
        interrupts: calls back on each request to end the program (Ctrl-C) while a block runs,
            instead of ending it.
        variables: the environment variables of programs that a verb runs.
    """

    clock: Clock
    rng: Stream
    log: Logger
    kubeconfig: tuple[Path, ...]
    interactive: bool
    color: bool
    width: int
    run: Callable[..., object]
    connect: Callable[[Access, Clock], Transport] = over_http
    account: ServiceAccountAccess | None = None
    interrupts: Callable[[Callable[[], None]], AbstractContextManager[None]] = uninterrupted
    variables: Mapping[str, str] = field(default_factory=dict)

    def access(self, file: Path | None = None, context: str = "") -> Access:
        """How to reach the cluster that is meant.

        Args:
            file: a kubeconfig given on the command line; no other one counts then.
            context: a context given on the command line.

        Raises:
            KubeconfigError: there is no way to a cluster; the message names file and field.
        """
        from grange.client import kubeconfig  # reads YAML, which takes its time

        if file is not None:
            return kubeconfig.load((file,), context)
        return kubeconfig.find(self.kubeconfig, context, self.account)
