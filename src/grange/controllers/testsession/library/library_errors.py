"""Errors of the library of sessions.

::

    GrangeError
    └── SessionLibraryError
        ├── InvalidSessionError        the session cannot run as it is written
        ├── SessionExistsError         the name is taken
        ├── SessionUnknownError        no session has this name
        ├── ControllerStoppedError     it was not started, or was stopped
        ├── ControllerStartError       nodes or pods cannot be read; ``start`` may be repeated
        ├── StopTimeoutError           sessions were still running
        ├── SubscriptionError          a session has a subscriber, or has none
        └── SessionFailedError         the verdict on a session is not that it passed
"""

from collections.abc import Mapping

from grange.base.errors import GrangeError


class SessionLibraryError(GrangeError):
    """Base of the errors of the library."""


class InvalidSessionError(SessionLibraryError):
    """The session cannot run as it is written; the message begins with the field."""


class SessionExistsError(SessionLibraryError):
    """A session has this name already."""


class SessionUnknownError(SessionLibraryError):
    """No session has this name."""


class ControllerStoppedError(SessionLibraryError):
    """The controller was not started, or was stopped."""


class ControllerStartError(SessionLibraryError):
    """The controller or its watcher could not start; it is stopped, and may be started again."""


class StopTimeoutError(SessionLibraryError):
    """Sessions were still running when the time to stop was over; they go on."""


class SubscriptionError(SessionLibraryError):
    """A session has exactly one subscriber, and it has one already, or has none."""


class SessionFailedError(SessionLibraryError):
    """A session did not pass.

    Args:
        message: why; it names the phase where time ran out.
        component: whose failure it is; empty for the session.
        is_infrastructure: the test has no result: machines, images or the API failed.
        logs: output by component.
    """

    def __init__(
        self,
        message: str,
        *,
        component: str = "",
        is_infrastructure: bool = False,
        logs: Mapping[str, bytes] | None = None,
    ) -> None:
        super().__init__(message)
        self.component = component
        self.is_infrastructure = is_infrastructure
        self.logs = dict(logs or {})
