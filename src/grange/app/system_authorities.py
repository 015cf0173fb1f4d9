"""Imports without the certificates of the system's authorities.

aiohttp reads them when it is imported, for connections that come without a TLS context. Agents and control
planes give each of their connections one. Reading those of the system would be a fifth of what an agent
takes to start, and 1.5 MB of what a control plane keeps.
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
