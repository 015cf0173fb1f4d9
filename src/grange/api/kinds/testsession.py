"""TestSession: a test of several components on reserved machines, with a verdict.

The driver's outcome is the verdict; servers, clients and further roles are its workers. The status
holds what happened to every component, and the events in their order.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from grange.api import names, template_warnings
from grange.api.kinds.testsession_schema import DEFINITIONS, NAME
from grange.api.meta import Condition, Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.session_components import component_lists, template_of
from grange.api.validation.testsessions import check

SESSION_LABEL = "grange.dev/test-session"
"""Label of pods: the name of their session."""

SESSION_UID_LABEL = "grange.dev/test-session-uid"
"""Label of pods: the UID of their session."""

COMPONENT_LABEL = "grange.dev/component"
"""Label of pods: the name of their component, unique in the session."""

ROLE_LABEL = "grange.dev/component-role"
"""Label of pods: driver, server, client, or the name of a further role."""

ATTEMPT_LABEL = "grange.dev/session-attempt"
"""Label of pods: the attempt, from 0, that they belong to."""

REGRESSED_ANNOTATION = "grange.dev/regressed-metrics"
"""Annotation of sessions: the figures, separated by commas, for which a run failed that compared them."""

ACCEPTED_ANNOTATION = "grange.dev/accepted-metrics"
"""Annotation of sessions: the figures, separated by commas, that later runs are compared with from here on."""

SESSION_FINALIZER = "grange.dev/session-tracking"
"""Finalizer of pods: their names stay taken until no late creation can start a program again."""

QUEUED = "Queued"
ACCEPTED = "Accepted"
PROVISIONING = "Provisioning"
RUNNING = "Running"
COLLECTING = "Collecting"
CLEANING = "Cleaning"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
ERRORED = "Errored"
CANCELLED = "Cancelled"
FINAL_PHASES = frozenset({SUCCEEDED, FAILED, ERRORED, CANCELLED})

PASSED = "Passed"
TEST_FAILED = "Failed"
ERROR = "Error"
CANCELED = "Cancelled"
"""What ``status.verdict`` may be; phases Succeeded, Failed, Errored and Cancelled follow from it."""


class SessionComponent(View, frozen=True):
    """One part of a test: ``count`` pods that are alike.

    Either ``template`` gives the pod in full, or the short fields do, as one container ``main``.

    Attributes:
        name: unique in the session; by default its role, with an index where there are several.
        count: pods; each gets a whole machine where a pool is named.
        pool: whose machines; by default the policy's for its role, else none is reserved.
        env: variables that are added to every container.
        port: what the pod listens on for the driver; in the addresses that the driver gets.
        artifacts: glob patterns of files to keep, relative to the directory of artifacts; all of them
            by default.
    """

    name: str = ""
    count: int = 1
    pool: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Document, ...] = ()
    resources: Document = msgspec.field(default_factory=dict)
    readiness_probe: Document | None = None
    port: int = 10000
    artifacts: tuple[str, ...] = ()
    template: Document | None = None


class SessionTimeouts(View, frozen=True):
    """How long each phase may take, in seconds; ``queue`` None: no limit."""

    queue_seconds: int | None = None
    provision_seconds: int = 300
    run_seconds: int = 900
    collect_seconds: int = 60
    cleanup_seconds: int = 120


class SessionConcurrency(View, frozen=True):
    """Sessions of one group exclude each other: a newer one cancels older ones (``Supersede``)."""

    group: str = ""
    policy: str = "Supersede"


class SessionRetries(View, frozen=True):
    """How often an attempt that ended so is repeated: infrastructure errors and test failures."""

    infrastructure: int = 1
    failure: int = 0


class SessionMetric(View, frozen=True):
    """A figure to read from the JSON that the driver reports.

    Attributes:
        name: in the results.
        json_path: where it is, as kubectl's JSONPath: ``{.latency.p99}``.
        unit: for people.
        better: ``Lower``, ``Higher``, or empty where neither is.
        threshold: relative change for the worse that counts as a regression, as 0.1.
    """

    name: str
    json_path: str
    unit: str = ""
    better: str = ""
    threshold: float = 0.1


class SessionEvidence(View, frozen=True):
    """What is kept of a session, and for how long.

    Attributes:
        retention_seconds: of logs, artifacts and reports, counted from the end.
        max_artifact_bytes: of all artifacts of one component; what is beyond is named, not kept.
        result: artifact of the driver that holds its JSON; by default the last line of its log that
            is a JSON object.
        metrics: what to read from it.
    """

    retention_seconds: int = 7 * 24 * 3600
    max_artifact_bytes: int = 256 * 1024 * 1024
    result: str = ""
    metrics: tuple[SessionMetric, ...] = ()


class TestSessionSpec(View, frozen=True):
    """The desired state.

    Attributes:
        driver: decides the verdict; one pod.
        servers: workers that the driver's list of addresses begins with.
        clients: workers that follow them in it.
        roles: further workers, by role.
        scenario: any JSON; given to the driver as it is.
        test_name: by which runs of one test are known, for estimates and series; by default the
            session's name without a generated suffix.
        priority: of its lease.
        semaphores: of its lease.
        cancel: ends the session: ``Collect`` keeps its evidence first, ``Now`` does not.
        ttl_seconds_after_finished: when the object is deleted; None: never.
        cleaning: of its lease.
    """

    # The name is that of the kind; pytest would take the class for a test.
    __test__ = False

    driver: SessionComponent | None = None
    servers: tuple[SessionComponent, ...] = ()
    clients: tuple[SessionComponent, ...] = ()
    roles: dict[str, tuple[SessionComponent, ...]] = msgspec.field(default_factory=dict)
    scenario: Any = None
    test_name: str = ""
    priority: int = 0
    semaphores: tuple[str, ...] = ()
    concurrency: SessionConcurrency | None = None
    timeouts: SessionTimeouts = msgspec.field(default_factory=SessionTimeouts)
    retries: SessionRetries = msgspec.field(default_factory=SessionRetries)
    evidence: SessionEvidence = msgspec.field(default_factory=SessionEvidence)
    cleaning: str = "Automatic"
    cancel: str = ""
    ttl_seconds_after_finished: int | None = None


class SessionEvent(View, frozen=True):
    """One event of a session.

    Attributes:
        type: ``QUEUE``, ``ACCEPT``, ``PROVISION``, ``RUN``, ``INTERNAL_ERROR``, ``RETRY``, ``DONE``,
            ``ERROR``, ``CANCELLED``; the last three are terminal and come once.
        time: RFC 3339 with microseconds.
        reason: one word, as in the status; of ``RETRY`` and the terminal ones.
        message: for people.
        component: whom it is about; empty for the session.
    """

    type: str
    time: str
    reason: str = ""
    message: str = ""
    component: str = ""


class SessionComponentStatus(View, frozen=True):
    """What is known of one pod of the session; kept when the pod is gone.

    Attributes:
        name: of the component; with an index where it has several pods.
        role: driver, server, client or a further one.
        pod: name of the pod of this attempt.
        node: where it runs.
        address: ``host:port`` as the driver gets it.
        health: ``Unknown``, ``Ready``, ``NotReady``, ``Succeeded`` or ``Failed``.
        message: the reason of its health.
    """

    name: str
    role: str = ""
    pod: str = ""
    node: str = ""
    address: str = ""
    health: str = ""
    message: str = ""
    exit_code: int | None = None
    image: str = ""
    started_time: str | None = None
    finished_time: str | None = None


class SessionMetricResult(View, frozen=True):
    """A figure that was read from the driver's JSON."""

    name: str
    value: float
    unit: str = ""
    better: str = ""


class SessionEvidenceStatus(View, frozen=True):
    """Where the evidence is: the address of the session service, and whether all was kept."""

    url: str = ""
    complete: bool = False
    message: str = ""


class TestSessionStatus(View, frozen=True):
    """What is.

    Attributes:
        phase: of the session; a final one never changes.
        phase_time: when it got there: deadlines count from it.
        verdict: decided at the end of the last attempt's run, before evidence is collected.
        reason: one word: ``TestFailed``, ``WorkerFailed``, ``ProvisionTimeout``, ``RunTimeout``,
            ``QueueTimeout``, ``PoolUnknown``, ``PoolCapacity``, ``MachineLost``, ``Cancelled``,
            ``Superseded`` and the like.
        attempt: the running or last one, from 0.
        failure_retries: how many attempts followed failures of the test; the others followed errors.
        lease: name of the MachineLease; empty where no machines are reserved.
        position: in the queue of leases, from 1; 0 when it does not wait.
    """

    __test__ = False

    observed_generation: int = 0
    phase: str = ""
    phase_time: str | None = None
    verdict: str = ""
    reason: str = ""
    message: str = ""
    attempt: int = 0
    failure_retries: int = 0
    lease: str = ""
    position: int = 0
    expected_start: str | None = None
    start_time: str | None = None
    run_time: str | None = None
    completion_time: str | None = None
    components: tuple[SessionComponentStatus, ...] = ()
    events: tuple[SessionEvent, ...] = ()
    metrics: tuple[SessionMetricResult, ...] = ()
    evidence: SessionEvidenceStatus = msgspec.field(default_factory=SessionEvidenceStatus)
    conditions: tuple[Condition, ...] = ()


class TestSession(Resource, frozen=True):
    """A test of several components on reserved machines, with its verdict."""

    __test__ = False

    spec: TestSessionSpec = msgspec.field(default_factory=TestSessionSpec)
    status: TestSessionStatus = msgspec.field(default_factory=TestSessionStatus)


def components(spec: TestSessionSpec) -> Iterator[tuple[str, str, SessionComponent]]:
    """Role, name and component of every component: servers, clients, further roles, the driver.

    The order is that in which the driver's list of addresses has them. Names that were left out are
    the role's, with an index where the role has several components.
    """
    listed = [("server", spec.servers), ("client", spec.clients), *sorted(spec.roles.items())]
    for role, found in listed:
        for index, item in enumerate(found):
            usual = role if len(found) == 1 else f"{role}-{index}"
            yield role, item.name or usual, item
    if spec.driver is not None:
        yield "driver", spec.driver.name or "driver", spec.driver


def pod_names(session: str, component: str, count: int) -> list[str]:
    """Names of the pods of a component; the index is left out where there is one."""
    if count == 1:
        return [f"{session}-{component}"]
    return [f"{session}-{component}-{index}" for index in range(count)]


def _review(document: Document, old: Document | None, now: datetime) -> Iterator[str]:
    def templates(of: Document | None) -> dict[str, Document]:
        found = component_lists((of or {}).get("spec") or {})
        return {path: {"template": template_of(item)} for path, item in found}

    yield from template_warnings.warnings("spec", templates(document), templates(old))


TESTSESSION = KindInfo(
    group="grange.dev",
    version="v1alpha1",
    kind="TestSession",
    plural="testsessions",
    view=TestSession,
    schema=NAME,
    definitions=DEFINITIONS,
    short_names=("ts",),
    categories=("all", "grange"),
    columns=(
        Column("Phase", cells.text("status.phase", QUEUED), description="How far it is."),
        Column("Verdict", cells.text("status.verdict"), description="The outcome of the test."),
        Column("Reason", cells.text("status.reason"), description="Why, as one word."),
        Column(
            "Attempt",
            cells.integer("status.attempt"),
            type="integer",
            description="The running or last one, from 0.",
            priority=1,
        ),
        Column("Message", cells.text("status.message"), description="Why.", priority=1),
    ),
    validate=check,
    review=_review,
    name_rule=names.check_dns_1035_label,
)
