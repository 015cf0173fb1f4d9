"""Where a container's output comes from: the seam that ``app`` fills with the nodes' agents."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from grange.api.meta import Document


@dataclass(frozen=True, slots=True)
class PodLogOptions:
    """Which part of the output.

    Attributes:
        container: its name; never empty here.
        follow: go on until the container ends or the caller closes.
        previous: the instance before the current one.
        since_seconds: only what is younger.
        since_time: only what is not older than this RFC 3339 instant.
        tail_lines: only so many last lines; None is all.
        timestamps: put an RFC 3339 instant before each line.
        limit_bytes: end after so many bytes; None is no limit.
    """

    container: str
    follow: bool = False
    previous: bool = False
    since_seconds: int | None = None
    since_time: str = ""
    tail_lines: int | None = None
    timestamps: bool = False
    limit_bytes: int | None = None


class LogSource(Protocol):
    """Reads the output of pods."""

    def read(self, pod: Document, options: PodLogOptions) -> AsyncGenerator[bytes, None]:
        """The output in pieces; the caller must ``aclose()``.

        A source that follows should first yield an empty piece once the log is open, so that the
        caller can distinguish a silent log from one that cannot be read.

        Raises:
            ApiError: on the first step, when the output cannot be had.
        """
