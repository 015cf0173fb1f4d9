"""Errors of the agent.

::

    GrangeError
    ├── container_runtime.RuntimeFailedError  the runtime could not do it now; retried with backoff
    ├── addresses.NoAddressLeftError          the range of pod addresses is used up
    ├── NotCreatableError                     what the container asks for is missing; retried with backoff
    └── NotWantedError                        the pod was deleted while its container was prepared
"""

from grange.base.errors import GrangeError

CONFIG_ERROR = "CreateContainerConfigError"
CREATE_ERROR = "CreateContainerError"
IMAGE_ERROR = "ImageRuntimeUnavailable"


class NotCreatableError(GrangeError):
    """The container cannot be created as it is written, or not yet.

    Args:
        message: what is missing, by name, and where it was referred to.
        reason: for ``state.waiting.reason``.
        lasting: whether only another pod or another node can help, so that retries may be rare.
    """

    def __init__(self, message: str, reason: str = CONFIG_ERROR, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.lasting = lasting
        self.message = message


class NotWantedError(GrangeError):
    """The pod is to end: its container was prepared, and is not started any more."""
