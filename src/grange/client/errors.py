"""Errors of the client itself, not from an API answer (those are ``api.status``).

::

    GrangeError
    ├── KubeconfigError    the message names the file and the field: correct it, or choose another
    └── ApiError … ServiceUnavailable
        ├── Unreachable    no server answered at that address: start it, or choose another
        └── StreamBroken   a watch or a log that had begun ended early: resume it
"""

from grange.api.status import ServiceUnavailable
from grange.base.errors import GrangeError


class KubeconfigError(GrangeError):
    """A kubeconfig cannot be read, written or used; the message names file, field and remedy."""


class Unreachable(ServiceUnavailable):
    """No connection to the server could be made; the message names its address."""


class StreamBroken(ServiceUnavailable):
    """A stream that the server had begun to send broke off."""
