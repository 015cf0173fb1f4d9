"""Documents of any kind, made from the schemas that the server publishes, with extreme values."""

from typing import Any

from hypothesis import strategies as st

from grange.api.kinds import BUILT_IN, POD
from grange.api.meta import Document
from grange.api.schema import check
from grange.api.schema.definitions import META, Schema, builtin
from grange.api.scheme import AnyKind

NODE_NAME, NAMESPACE = "n1", "default"
TIMES = (
    "2026-01-01T00:00:00Z",
    "2025-12-31T23:59:59.999999999+05:45",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59.9-23:59",
    "1969-12-31T00:00:00Z",
)
MICRO_TIMES = ("2026-01-01T00:00:00.000001Z", "0001-01-01T00:00:00.000000+23:59")
TEXTS = (
    "",
    "a",
    NODE_NAME,
    NAMESPACE,
    "0",
    "-1",
    "1e309",
    "NaN",
    "100%",
    "-5%",
    "99999999999999999999",
    "True",
    "Always",
    "Exists",
    "Running",
    "Foreground",
    "v1",
    "Pod",
    "a/b=c,d",
    "{",
    "\x00",
    "é" * 300,
    "2026-11-22T15:00:00+0000",
)
KEYS = (
    "a",
    "app",
    "kubernetes.io/hostname",
    "cpu",
    "memory",
    "pods",
    "nvidia.com/gpu",
    "grange.dev/owner",
    "grange.dev/transfer",
    "grange.dev/gang",
    "",
)
QUANTITIES = (0, -1, 2**63 - 1, 0.1, "1", "500m", "-3Ki", "1E", "9" * 40, "x", "", "1e99")
INT32 = (0, 1, -1, 3, 2**31 - 1, -(2**31))
INT64 = (*INT32, 300, 2**63 - 1, -(2**63))
DEPTH = 9
# What decides who looks at an object is drawn more often, and mostly from what means something.
OFTEN = {
    "nodeName",
    "ownerReferences",
    "finalizers",
    "deletionTimestamp",
    "conditions",
    "template",
    "nodeTransfer",
    "annotations",
    "labels",
    "lastTimestamp",
    "activeDeadlineSeconds",
    "startTime",
}
WORDS: dict[str, tuple[str, ...]] = {
    "nodeName": (NODE_NAME, NODE_NAME, "", "gone"),
    "schedulerName": ("grange", "default-scheduler", "other"),
    "phase": ("Pending", "Running", "Failed", "x", "Starting", "Progressing"),
    "restartPolicy": ("Always", "Never", "OnFailure", "x"),
    "uid": ("uid-pods-x0", "uid-pods-x1", "uid-replicationcontrollers-x0", "uid-nodes-x0", "none"),
    "operator": ("In", "Exists", "Gt", "x"),
    "effect": ("NoSchedule", "NoExecute", "x"),
    "kind": ("Pod", "ReplicationController", "Node", "Nothing"),
    "type": ("Ready", "Available", "PodScheduled", "DiskPressure", ""),
    "status": ("True", "False", "Unknown", "x"),
}

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "integer": st.sampled_from(INT64),
    "int32": st.sampled_from(INT32),
    "int64": st.sampled_from(INT64),
    "number": st.sampled_from((0.5, -1, 1e308)),
    "boolean": st.booleans(),
    "date-time": st.sampled_from(TIMES),
    "int-or-string": st.sampled_from((*INT32, "25%", "x", "", "-1%")),
    "quantity": st.sampled_from(QUANTITIES),
}


@st.composite
def fitting(draw: st.DrawFn, part: Schema, depth: int = 0) -> Any:
    """A value that fits a schema, or nearly: bounds and patterns are left to the check."""
    if str(part.get("$ref", "")).endswith(f"{META}.MicroTime"):
        return draw(st.sampled_from(MICRO_TIMES))
    part = builtin().resolve(part)
    if "enum" in part:
        return draw(st.sampled_from(part["enum"]))
    if part.get("type") == "array":
        items = fitting(part["items"], depth + 1)
        return draw(st.lists(items, min_size=part.get("minItems", 0), max_size=2))
    if part.get("type") != "object":
        return draw(_scalar(part))
    if "properties" in part:
        names: list[str] = []
        if depth < DEPTH:
            every = sorted(part["properties"])
            names = draw(st.lists(st.sampled_from(every), max_size=5, unique=True))
            names += [name for name in every if name in OFTEN and draw(st.booleans())]
        wanted = dict.fromkeys([*part.get("required", ()), *names])
        return {name: draw(_member(part["properties"][name], name, depth)) for name in wanted}
    values = part.get("additionalProperties", {"type": "string"})
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=3, unique=True))
    return {key: draw(fitting(values, depth + 1)) for key in keys}


def _scalar(part: Schema) -> st.SearchStrategy[Any]:
    form = str(part.get("format", part.get("type")))
    found = SCALARS.get(form)
    if form in {"integer", "int32", "int64", "number"}:
        low, high = part.get("minimum", -(2**63)), part.get("maximum", 2**63 - 1)
        inside = [number for number in INT64 if low <= number <= high]
        if form == "int32":
            inside = [number for number in inside if number in INT32]
        return st.sampled_from(inside or [low])
    if found is not None:
        return found
    if "pattern" in part:
        return st.from_regex(part["pattern"]).map(lambda text: text[: part.get("maxLength", 50)])
    least, most = part.get("minLength", 0), part.get("maxLength", 1000)
    return st.sampled_from([text for text in TEXTS if least <= len(text) <= most])


def _member(part: Schema, name: str, depth: int) -> st.SearchStrategy[Any]:
    if name in WORDS and part.get("type") == "string" and "enum" not in part:
        return st.sampled_from(WORDS[name])
    return fitting(part, depth + 1)


@st.composite
def documents(draw: st.DrawFn, info: AnyKind, name: str) -> Document | None:
    """A document of a kind that its schema accepts, with the identity of what is stored under a name.

    None where the check found something after all.
    """
    parts = (builtin().get(info.schema) or {})["properties"]
    drawn = {
        part: draw(fitting(schema, 1))
        for part, schema in parts.items()
        if part not in {"apiVersion", "kind", "metadata"} and draw(st.integers(0, 5))
    }
    metadata = draw(fitting(parts["metadata"], 2))
    identity = {"name": name, "uid": f"uid-{info.plural}-{name}"}
    if info.namespaced:
        identity["namespace"] = NAMESPACE
    else:
        metadata.pop("namespace", None)
    metadata |= {"creationTimestamp": TIMES[0], **identity}
    document = {"apiVersion": info.api_version, "kind": info.kind, "metadata": metadata, **drawn}
    return None if check(document, info) else document


def collections() -> st.SearchStrategy[list[tuple[AnyKind, Document]]]:
    """A few documents of kinds drawn from all."""

    def made(drawn: tuple[AnyKind, int]) -> st.SearchStrategy[tuple[AnyKind, Document] | None]:
        info, number = drawn
        return documents(info, f"x{number}").map(lambda d: None if d is None else (info, d))

    kinds = st.tuples(st.sampled_from((*BUILT_IN, POD, POD)), st.integers(0, 3)).flatmap(made)
    return st.lists(kinds, min_size=1, max_size=12).map(
        lambda found: [item for item in found if item is not None]
    )
