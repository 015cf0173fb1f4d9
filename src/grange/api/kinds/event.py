"""Event: something that happened to an object, for its owner to read; kept for a while only."""

import msgspec

from grange.api.fields import lookup, reader, readers
from grange.api.meta import Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults


class ObjectReference(View, frozen=True):
    """Which object, and which part of it."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSource(View, frozen=True):
    """Which component on which host."""

    component: str = ""
    host: str = ""


class EventSeries(View, frozen=True):
    """How often the event came again."""

    count: int = 0
    last_observed_time: str | None = None


class Event(Resource, frozen=True):
    """A report about another object."""

    involved_object: ObjectReference = msgspec.field(default_factory=ObjectReference)
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    action: str = ""
    series: EventSeries | None = None
    source: EventSource = msgspec.field(default_factory=EventSource)
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    involved = document.get("involvedObject") or {}
    namespace = (document.get("metadata") or {}).get("namespace", "")
    of = involved.get("namespace", "")
    # Events about cluster-scoped objects live in the default namespace.
    if namespace != (of or "default"):
        message = "does not match metadata.namespace"
        faults.invalid("involvedObject.namespace", of, message)
    return faults.causes


def _last_seen(document: Document, now: float) -> cells.Cell:
    for path in ("series.lastObservedTime", "lastTimestamp", "eventTime", "firstTimestamp"):
        if lookup(document, path):
            return cells.age_of(lookup(document, path), now)
    return cells.age(document, now)


def _first_seen(document: Document, now: float) -> cells.Cell:
    return cells.age_of(lookup(document, "firstTimestamp") or lookup(document, "eventTime"), now)


def _object(document: Document, now: float) -> cells.Cell:
    involved = document.get("involvedObject") or {}
    kind, name = str(involved.get("kind") or "").lower(), involved.get("name") or ""
    return f"{kind}/{name}" if name else kind


def _source(document: Document, now: float) -> cells.Cell:
    source = document.get("source") or {}
    component = source.get("component") or document.get("reportingComponent") or ""
    host = source.get("host") or document.get("reportingInstance") or ""
    return f"{component}, {host}" if host else component


def _count(document: Document, now: float) -> cells.Cell:
    series = lookup(document, "series.count")
    return series or document.get("count") or 1


EVENT = KindInfo(
    group="",
    version="v1",
    kind="Event",
    plural="events",
    view=Event,
    schema="io.k8s.api.core.v1.Event",
    short_names=("ev",),
    has_status=False,
    columns=(
        Column("Last Seen", _last_seen, description="When it happened last."),
        Column("Type", cells.text("type", ""), description="Normal or Warning."),
        Column("Reason", cells.text("reason", ""), description="Why, in one word."),
        Column("Object", _object, description="What it is about."),
        Column(
            "Subobject", cells.text("involvedObject.fieldPath", ""), description="Part.", priority=1
        ),
        Column("Source", _source, description="The component that reports it.", priority=1),
        Column("Message", cells.text("message", ""), description="What happened."),
        Column("First Seen", _first_seen, description="When it happened first.", priority=1),
        Column("Count", _count, type="integer", description="How often.", priority=1),
        Column("Name", cells.name, description="Name of the event.", priority=1),
    ),
    fields={
        **readers(
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "type",
        ),
        "source": reader("source.component"),
    },
    validate=_validate,
)
