"""Imports without the certificates of the system's authorities.

aiohttp reads them when it is imported, for connections that come without a TLS context. An agent gives
each of its connections one, which trusts the authority of its control plane; reading those of the system
would be a fifth of what it takes to start.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NONE = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}


@contextmanager
def skipped() -> Iterator[None]:
    """Have OpenSSL find no authorities of the system; for imports before there are threads or tasks."""
    before = {name: os.environ.get(name) for name in _NONE}
    os.environ.update(_NONE)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
