"""What a program asks of a runtime, and what makes one; a runtime may import both.

They are apart from ``runtime_table``, which imports the runtimes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from grange.agent.node_runtime import NodeRuntime
from grange.agent.runtime_choices import NO_ISOLATION, SHARED
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Offload

NO_SOCKET = "none"


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """What a program asks of the runtime that it opens.

    Attributes:
        data_dir: the runtime keeps its data below it.
        isolation: one of ``ISOLATION``.
        network: one of ``NETWORKS``.
        shown: directories that isolated pods see where they are, also below ``/tmp``.
        hidden: files of the user that isolated pods may not see.
        cri_socket: of the machine's container runtime; ``NO_SOCKET`` for none; empty: the first of
            ``runtime_table.SOCKETS`` that there is.
    """

    data_dir: Path
    isolation: str = NO_ISOLATION
    network: str = SHARED
    shown: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    cri_socket: str = ""


class RuntimeFactory(Protocol):
    """Makes a runtime; opening it is up to the caller."""

    def __call__(
        self, options: RuntimeOptions, *, clock: Clock, log: Logger, offload: Offload
    ) -> NodeRuntime:
        """A runtime that does what the options ask for, or refuses to be opened."""
