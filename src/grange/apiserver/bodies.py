"""Bodies of requests as they arrive: bounded each by itself, in time, and all of them together."""

import zlib

from aiohttp import web

from grange.api.status import BadRequest, Timeout, TooLarge, TooManyRequests, UnsupportedMediaType
from grange.apiserver.protocol import MALFORMED
from grange.base.clock import Clock

_RETRY_AFTER_S = 1
_WINDOWS = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}


class BodyBudget:
    """The bytes of unfinished and unanswered bodies that all connections may hold together.

    Args:
        most: how many bytes.

    Attributes:
        held: how many there are now.
        inflated: bytes made by decompression so far (a work counter).
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0
        self.inflated = 0

    def take(self, count: int) -> None:
        """Hold so many more bytes.

        Raises:
            TooManyRequests: there is no room for them now.
        """
        if self.held + count > self._most:
            raise TooManyRequests(
                f"the server holds {self.held} bytes of other requests, at most {self._most} are "
                "held at once; send the request again",
                retry_after_s=_RETRY_AFTER_S,
            )
        self.held += count

    def give_back(self, count: int) -> None:
        """The bytes are let go."""
        self.held -= count


class Body:
    """The body of one request; a context that gives its share of the budget back at the end.

    Args:
        incoming: the request.
        budget: what all bodies share.
        limit: most bytes of one body.
        within_s: seconds until it must be complete.
        clock: measures the seconds.
    """

    def __init__(
        self,
        incoming: web.BaseRequest,
        budget: BodyBudget,
        *,
        limit: int,
        within_s: float,
        clock: Clock,
    ) -> None:
        self._incoming = incoming
        self._budget = budget
        self._limit = limit
        self._within_s = within_s
        self._clock = clock
        self._held = 0

    def __enter__(self) -> "Body":
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.give_back(self._held)

    @property
    def is_here(self) -> bool:
        """Whether it came with the head, as small bodies do."""
        return self._incoming.content.is_eof()

    def read_nowait(self) -> bytes:
        """A body that came with the head.

        Raises:
            TooLarge: it has more bytes than the limit.
            BadRequest: it cannot be decoded.
        """
        try:
            body = self._incoming.content.read_nowait()
        except MALFORMED as error:
            raise _malformed(error) from error
        if len(body) > self._limit:
            raise self._too_large()
        return self._decompressed(body)

    async def read(self) -> bytes:
        """A body that is still on its way.

        Raises:
            TooLarge: it has more bytes than the limit.
            TooManyRequests: with the other bodies it has more than the server holds.
            BadRequest: it cannot be decoded.
            Timeout: it was not complete in time.
            ConnectionError: the client went away.
        """
        incoming = self._incoming
        if (incoming.content_length or 0) > self._limit:
            raise self._too_large()
        if incoming.headers.get("expect", "").lower() == "100-continue" and incoming.transport:
            incoming.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        pieces: list[bytes] = []
        try:
            async with self._clock.timeout(self._within_s):
                while piece := await incoming.content.readany():
                    self._budget.take(len(piece))
                    self._held += len(piece)
                    if self._held > self._limit:
                        raise self._too_large()
                    pieces.append(piece)
        except MALFORMED as error:
            raise _malformed(error) from error
        except TimeoutError:
            raise Timeout(
                f"the body did not arrive within {self._within_s:g} s; nothing was done"
            ) from None
        return self._decompressed(b"".join(pieces))

    def _decompressed(self, body: bytes) -> bytes:
        """The body without its content coding; no more of it is made than a body may have."""
        coding = self._incoming.headers.get("content-encoding", "").strip().lower()
        if not body or coding in ("", "identity"):
            return body
        window = _WINDOWS.get(coding)
        if window is None:
            raise UnsupportedMediaType(
                f'the content coding "{coding[:64]}" is not read here; send the body as it is or '
                f"as one of {', '.join(sorted(_WINDOWS))}"
            )
        inflater = zlib.decompressobj(window)
        try:
            plain = inflater.decompress(body, self._limit + 1)
        except zlib.error as error:
            raise _malformed(error) from error
        self._budget.inflated += len(plain)
        if len(plain) > self._limit:
            raise self._too_large()
        if not inflater.eof or inflater.unused_data:
            raise BadRequest(f"cannot read the body of the request: it is not one {coding} stream")
        return plain

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"the body of the request is too large: at most {self._limit} bytes are taken"
        )


def _malformed(error: Exception) -> BadRequest:
    lines = str(error).strip().splitlines()
    return BadRequest(
        f"cannot read the body of the request: {lines[0][:200] if lines else error!r}"
    )
