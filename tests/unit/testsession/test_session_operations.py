"""Sessions as operations (O1-O8), and the images that they may run (V1-V2)."""

from datetime import UTC, datetime, timedelta

import pytest

import grange
from grange.api.kinds.testsession import SessionComponent, TestSession, TestSessionSpec
from grange.api.meta import ObjectMeta
from grange.base.clock import Clock
from grange.controllers.testsession.library.image_validator import ImageValidator
from grange.controllers.testsession.library.library_errors import (
    ControllerStoppedError,
    InvalidSessionError,
    SessionExistsError,
    SessionUnknownError,
)
from grange.controllers.testsession.library.session_operations import (
    OperationResponse,
    SessionOperation,
    SessionOperations,
)
from grange.controllers.testsession.library.session_records import (
    MemorySessionStore,
    RecordedEvent,
    SessionEventKind,
)

Kind = SessionEventKind


def session(name: str = "a", *, driver: str = "reg/x", **images: str) -> TestSession:
    parts = {role: (SessionComponent(image=image),) for role, image in images.items()}
    spec = TestSessionSpec(
        driver=SessionComponent(image=driver),
        servers=parts.get("server", ()),
        clients=parts.get("client", ()) + parts.get("other", ()),
    )
    return TestSession(metadata=ObjectMeta(name=name), spec=spec)


class Scheduler:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls: list[str] = []

    def schedule(self, session: TestSession | None) -> None:
        assert session is not None
        self.calls.append(session.metadata.name)
        if self.error is not None:
            raise self.error


class ServiceWorld:
    """A service over a store whose events the test writes."""

    def __init__(self, clock: Clock, error: Exception | None = None) -> None:
        self.clock, self.store, self.scheduler = clock, MemorySessionStore(), Scheduler(error)
        self.service = SessionOperations(self.scheduler, self.store, clock=clock)

    def after(self, kind: SessionEventKind, seconds: float = 0.0) -> SessionOperation:
        """The operation once its session has such an event, so many seconds from now."""
        time = self.clock.now() + timedelta(seconds=seconds)
        self.store.store_event(RecordedEvent("a", kind, time, "100%s", {"driver": b"out"}))
        return self.service.get_operation("operations/a")


@pytest.mark.parametrize("name", ["a", "op/a", "operations/b", "operations/", ""])
async def test_o1_unknown_operation_is_refused(clock: Clock, name: str) -> None:
    w = ServiceWorld(clock)
    w.service.start_test_session(session())
    with pytest.raises(SessionUnknownError, match="is not known; a name is operations/<session>"):
        w.service.get_operation(name)


async def test_o2_operation_is_not_done_before_the_end(clock: Clock) -> None:
    w = ServiceWorld(clock)
    operation = w.service.start_test_session(session())
    assert (operation.name, operation.is_done, operation.latest_event) == (
        "operations/a",
        False,
        None,
    )
    for kind in (Kind.QUEUE, Kind.ACCEPT, Kind.PROVISION, Kind.RUN, Kind.RETRY):
        operation = w.after(kind)
        assert (operation.is_done, operation.code, operation.response) == (False, "", None)


async def test_o3_passed_session_has_a_response(clock: Clock) -> None:
    w = ServiceWorld(clock)
    w.service.start_test_session(session())
    operation = w.after(Kind.DONE, 12.5)
    assert (operation.is_done, operation.code) == (True, "")
    assert operation.response == OperationResponse(b"out", 12.5)


async def test_o4_failed_session_is_unknown_to_operations(clock: Clock) -> None:
    w = ServiceWorld(clock)
    w.service.start_test_session(session())
    operation = w.after(Kind.ERROR)
    assert (operation.is_done, operation.code, operation.message) == (True, "UNKNOWN", "100%s")
    assert operation.response is None


async def test_o4_cancelled_session_has_its_code(clock: Clock) -> None:
    w = ServiceWorld(clock)
    w.service.start_test_session(session())
    operation = w.after(Kind.CANCELLED)
    assert (operation.is_done, operation.code) == (True, "CANCELLED")


async def test_o5_internal_error_is_not_the_end(clock: Clock) -> None:
    """The original ends here, and a client that polls misses the verdict that follows."""
    w = ServiceWorld(clock)
    w.service.start_test_session(session())
    assert not w.after(Kind.INTERNAL_ERROR).is_done
    assert w.after(Kind.DONE).is_done


async def test_o6_metadata_has_version_and_latest_event(clock: Clock) -> None:
    w = ServiceWorld(clock)
    w.service.start_test_session(session())
    w.after(Kind.QUEUE)
    operation = w.after(Kind.ACCEPT)
    assert operation.version == grange.__version__
    assert operation.latest_event is w.store.latest_event("a")


async def test_o7_session_that_is_not_scheduled_is_not_stored(clock: Clock) -> None:
    w = ServiceWorld(clock, ControllerStoppedError("stopped"))
    with pytest.raises(ControllerStoppedError):
        w.service.start_test_session(session())
    assert w.scheduler.calls == ["a"]
    assert w.store.get_session("a") is None


async def test_o8_duplicate_session_is_not_scheduled(clock: Clock) -> None:
    w = ServiceWorld(clock)
    w.service.start_test_session(session())
    with pytest.raises(SessionExistsError):
        w.service.start_test_session(session())
    assert w.scheduler.calls == ["a"]
    assert w.store.get_session("a") is not None


async def test_time_of_creation_is_kept(clock: Clock) -> None:
    w = ServiceWorld(clock)
    created = datetime(2026, 1, 1, tzinfo=UTC)
    meta = ObjectMeta(name="a", creation_timestamp="2026-01-01T00:00:00Z")
    w.service.start_test_session(TestSession(metadata=meta))
    operation = w.after(Kind.DONE)
    assert operation.response is not None
    elapsed = (clock.now() - created).total_seconds()
    assert operation.response.elapsed_s == max(0.0, elapsed)


def test_v1_missing_driver_is_refused() -> None:
    with pytest.raises(InvalidSessionError, match="driver: is missing"):
        ImageValidator().validate(TestSession(metadata=ObjectMeta(name="a")))


@pytest.mark.parametrize(
    ("field", "images"),
    [
        ("spec.driver", {"driver": "evil/x"}),
        ("spec.servers[0]", {"server": "evil/x"}),
        ("spec.clients[0]", {"client": "evil/x"}),
        ("spec.clients[1]", {"client": "reg/x", "other": "evil/x"}),
    ],
)
def test_v2_image_of_another_registry_is_refused(field: str, images: dict[str, str]) -> None:
    with pytest.raises(InvalidSessionError) as caught:
        ImageValidator("reg/").validate(session(**images))
    message = f'{field}.image: "evil/x" does not begin with "reg/"; use an image of this registry'
    assert str(caught.value) == message


def test_v2_matching_images_are_accepted() -> None:
    found = session(server="reg/a", client="reg/b", other="reg/c")
    ImageValidator("reg/").validate(found)
    ImageValidator().validate(found)


def test_v2_images_of_templates_are_checked() -> None:
    containers = [{"name": "main", "image": "reg/a"}, {"name": "proxy", "image": "evil/b"}]
    driver = SessionComponent(template={"spec": {"containers": containers}})
    found = TestSession(metadata=ObjectMeta(name="a"), spec=TestSessionSpec(driver=driver))
    with pytest.raises(InvalidSessionError, match="evil/b"):
        ImageValidator("reg/").validate(found)
