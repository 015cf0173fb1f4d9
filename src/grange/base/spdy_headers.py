"""Header blocks of SPDY/3.1: names and values, compressed in one context for each direction."""

import struct
import zlib
from collections.abc import Mapping

from grange.base.errors import GrangeError

_WORDS = (
    *[
        "options",
        "head",
        "post",
        "put",
        "delete",
        "trace",
        "accept",
        "accept-charset",
        "accept-encoding",
    ],
    *[
        "accept-language",
        "accept-ranges",
        "age",
        "allow",
        "authorization",
        "cache-control",
        "connection",
    ],
    *["content-base", "content-encoding", "content-language", "content-length", "content-location"],
    *[
        "content-md5",
        "content-range",
        "content-type",
        "date",
        "etag",
        "expect",
        "expires",
        "from",
        "host",
        "if-match",
    ],
    *["if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "last-modified"],
    *["location", "max-forwards", "pragma", "proxy-authenticate", "proxy-authorization", "range"],
    *[
        "referer",
        "retry-after",
        "server",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "vary",
    ],
    *("via", "warning", "www-authenticate", "method", "get", "status", "200 OK", "version"),
    *("HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin"),
)
_CODES = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service Unavailable"
)
_TEXTS = (
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, "
    "GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,"
    "text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8"
    "charset=iso-8859-1,utf-,*,enq=0."
)
_NUMBER = struct.Struct(">I")
DICTIONARY = b"".join(
    (
        *(_NUMBER.pack(len(word)) + word.encode() for word in _WORDS),
        _CODES.encode(),
        _TEXTS.encode(),
    )
)
"""What both sides take to have been sent before; part of the protocol."""

BLOCK_MAX_BYTES = 16 * 1024
"""Of a block before its compression: a few bytes can stand for megabytes."""


class SpdyError(GrangeError):
    """The peer does not keep to the protocol."""


class HeaderEncoder:
    """Writes blocks; their order on the connection is that of the calls."""

    def __init__(self) -> None:
        self._zlib = zlib.compressobj(zdict=DICTIONARY)

    def encode(self, headers: Mapping[str, str]) -> bytes:
        """One block."""
        parts = [_NUMBER.pack(len(headers))]
        for name, value in headers.items():
            for text in (name.lower().encode(), value.encode()):
                parts += (_NUMBER.pack(len(text)), text)
        return self._zlib.compress(b"".join(parts)) + self._zlib.flush(zlib.Z_SYNC_FLUSH)


class HeaderDecoder:
    """Reads blocks, each of them and in their order."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(zdict=DICTIONARY)

    def decode(self, block: bytes) -> dict[str, str]:
        """The headers of a block, names in lower case.

        Raises:
            SpdyError: it cannot be read, or is too large.
        """
        try:
            plain = self._zlib.decompress(block, BLOCK_MAX_BYTES)
        except zlib.error as error:
            raise SpdyError(f"cannot decompress headers: {error}") from error
        if self._zlib.unconsumed_tail or self._zlib.unused_data:
            raise SpdyError(f"headers have more than {BLOCK_MAX_BYTES} bytes")
        try:
            return _pairs(plain)
        except (struct.error, UnicodeDecodeError) as error:
            raise SpdyError(f"cannot read headers: {error}") from error


def _pairs(plain: bytes) -> dict[str, str]:
    (count,) = _NUMBER.unpack_from(plain)
    texts, at = [], _NUMBER.size
    for _ in range(2 * count):
        (size,) = _NUMBER.unpack_from(plain, at)
        at += _NUMBER.size
        if at + size > len(plain):
            raise SpdyError("a header is longer than its block")
        texts.append(plain[at : at + size].decode())
        at += size
    return {name.lower(): value for name, value in zip(texts[::2], texts[1::2], strict=True)}
