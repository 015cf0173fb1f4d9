"""Test sessions for programs: a library that runs tests of several components on reserved machines.

Owns: the public names of the library; what they mean stands with their definitions.
Never: behaviour.
Flow: ``Controller.schedule`` → the queue, until machines are free → an ``Executor`` → the verdict, as
    the last event of the session in its ``SessionStore``.
Concurrency: one event loop; at most ``ControllerOptions.executor_count`` sessions run at a time.
Start reading at: ``Controller``, then ``PodExecutor``.
"""

from grange.api.kinds.testsession import (
    SessionComponent,
    SessionRetries,
    SessionTimeouts,
    TestSession,
    TestSessionSpec,
)
from grange.controllers.testsession.health import Health, PodDiagnosis, diagnose
from grange.controllers.testsession.library.controller_options import ControllerOptions
from grange.controllers.testsession.library.image_validator import ImageValidator
from grange.controllers.testsession.library.library_errors import (
    ControllerStartError,
    ControllerStoppedError,
    InvalidSessionError,
    SessionExistsError,
    SessionFailedError,
    SessionLibraryError,
    SessionUnknownError,
    StopTimeoutError,
    SubscriptionError,
)
from grange.controllers.testsession.library.pod_executor import PodExecutor
from grange.controllers.testsession.library.pod_subscription import PodSubscription, PodWatchEvent
from grange.controllers.testsession.library.pod_watcher import Watcher, WatcherOptions
from grange.controllers.testsession.library.session_controller import (
    SessionController,
    SessionController as Controller,
)
from grange.controllers.testsession.library.session_executor import ExecutionContext, Executor
from grange.controllers.testsession.library.session_operations import (
    OperationResponse,
    SessionOperation,
    SessionOperations,
)
from grange.controllers.testsession.library.session_records import (
    MemorySessionStore,
    RecordedEvent,
    SessionEventKind,
    SessionStore,
)
from grange.placement.machine_pools import (
    Pool,
    PoolAdder,
    PoolAvailabilityError,
    PoolCapacityError,
    PoolUnknownError,
    ReservationError,
    ReservationManager,
    ReservationTracker,
    find_pools,
)

__all__ = [
    "Controller",
    "ControllerOptions",
    "ControllerStartError",
    "ControllerStoppedError",
    "ExecutionContext",
    "Executor",
    "Health",
    "ImageValidator",
    "InvalidSessionError",
    "MemorySessionStore",
    "OperationResponse",
    "PodDiagnosis",
    "PodExecutor",
    "PodSubscription",
    "PodWatchEvent",
    "Pool",
    "PoolAdder",
    "PoolAvailabilityError",
    "PoolCapacityError",
    "PoolUnknownError",
    "RecordedEvent",
    "ReservationError",
    "ReservationManager",
    "ReservationTracker",
    "SessionComponent",
    "SessionController",
    "SessionEventKind",
    "SessionExistsError",
    "SessionFailedError",
    "SessionLibraryError",
    "SessionOperation",
    "SessionOperations",
    "SessionRetries",
    "SessionStore",
    "SessionTimeouts",
    "SessionUnknownError",
    "StopTimeoutError",
    "SubscriptionError",
    "TestSession",
    "TestSessionSpec",
    "Watcher",
    "WatcherOptions",
    "diagnose",
    "find_pools",
]
