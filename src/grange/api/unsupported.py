"""What a pod spec asks for and does not get, by the table of ``pod_fields``."""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple, TypeAlias

from grange.api import codec, timestamps
from grange.api.meta import Document, View
from grange.api.pod_fields import FIELDS, Feature, Field, Support
from grange.api.runtime_classes import CRI_CLASS, allow_images
from grange.base.bounded import BoundedDict
from grange.base.first_few import first_few

CONDITION = "grange.dev/UnsupportedFields"
"""Type of the pod condition that lists them."""
REASON = "FieldsNotHonoured"

_ON_NODE = "no effect on this node: "
_PATHS_SHOWN = 4  # of one cause in a warning
_LISTED = 16  # in the condition
_REMEMBERED = 256
_REMEMBERED_BYTES = 8_192  # with the number of specs: at most 2 MiB, and their reports

_Node: TypeAlias = "dict[str, _Node] | Field"


def _tree() -> dict[str, _Node]:
    """The entries that warn, by the names on the way to them: all else need not be looked at."""
    root: dict[str, _Node] = {}
    for field in FIELDS.values():
        if field.support not in (Support.WARNED, Support.BY_NODE) or field.covered_by:
            continue
        node = root
        *way, last = field.path.replace("[]", "").split(".")
        for name in way:
            below = node.setdefault(name, {})
            if isinstance(below, Field):
                raise TypeError(
                    f"{field.path} lies below {below.path}, which is warned about whole"
                )
            node = below
        node[last] = field
    return root


_TREE = _tree()
_READ = {*_TREE, "nodeSelector", "runtimeClassName"}


def find(spec: Document, path: str) -> list[tuple[str, Field]]:
    """The fields of a pod spec that have no effect, with their paths.

    Those that have one on some nodes are among them, unless the pod goes to such nodes only.

    Args:
        spec: has passed its schema.
        path: of the spec in its document.
    """
    found = _visit(spec, _TREE)
    given = _given(spec) if found else ()
    return [(f"{path}{below}", field) for below, field in found if field.needs not in given]


def _given(spec: Document) -> Collection[Feature]:
    """What every node has for the pod that it may go to: a container runtime has all of it."""
    selector = spec.get("nodeSelector") or {}
    found = {item for item in Feature if selector.get(item.value[0]) == item.value[1]}
    if not _uses_images(spec):
        return found - {Feature.IMAGES}
    wants_images = Feature.IMAGES in found or spec.get("runtimeClassName") == CRI_CLASS
    return frozenset(Feature) if wants_images else found


def _uses_images(spec: Document) -> bool:
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return allow_images((item.get("image") for item in containers), spec.get("runtimeClassName"))


def on_node(spec: View, features: Collection[Feature]) -> str:
    """The fields that have an effect on some nodes and not on one; empty for none.

    Args:
        spec: of a pod.
        features: of the node.
    """
    found = [
        f"spec{below}"
        for below, field in _visit(codec.decode_any(codec.encode_any(spec)), _TREE)
        if field.needs is not None and field.needs not in features
    ]
    return f"{_ON_NODE}{first_few(found, _LISTED)}" if found else ""


def message_on_node(message: str, here: str) -> str:
    """The condition's message on a node: what has no effect anywhere, and what has none there.

    Args:
        message: of the condition as it is, with or without what an agent has added.
        here: from ``on_node``.
    """
    anywhere = "" if message.startswith(_ON_NODE) else message.partition(f"; {_ON_NODE}")[0]
    return "; ".join(filter(None, (anywhere, here)))


def _visit(holder: Document, nodes: dict[str, _Node]) -> list[tuple[str, Field]]:
    """What is found below an object, with paths from there; paths are made of what is found only."""
    found: list[tuple[str, Field]] = []
    for name in holder:
        node = nodes.get(name)
        if node is None:
            continue
        value = holder[name]
        if type(node) is Field:
            if value is not None and (node.quiet is None or not node.quiet(value, holder)):
                found.append((f".{name}", node))
        elif type(value) is list:
            for index, item in enumerate(value):
                if below := _visit(item, node):  # type: ignore[arg-type] # no Field
                    found += [(f".{name}[{index}]{path}", field) for path, field in below]
        elif value and (below := _visit(value, node)):  # type: ignore[arg-type] # no Field
            found += [(f".{name}{path}", field) for path, field in below]
    return found


def warnings(found: list[tuple[str, Field]]) -> tuple[str, ...]:
    """One warning for each cause, with the fields that it concerns."""
    paths: dict[str, list[str]] = {}
    for path, field in found:
        paths.setdefault(field.warning, []).append(path)
    return tuple(
        f"{first_few(concerned, _PATHS_SHOWN)}: {note}" for note, concerned in paths.items()
    )


_CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
_WAITS = (
    "the container waits with ImageRuntimeUnavailable; name a program of the machine in command"
)
_NEEDS_IMAGES = (
    f"needed where images are not run: on a node without {Feature.IMAGES.selector} {_WAITS}, or add "
    "the label to nodeSelector"
)
_NEEDS_COMMAND = (
    "needed: the pod runs as processes of its node, because of its runtimeClassName or because a "
    f"container names no image, so {_WAITS}"
)


def image_only(spec: Document) -> list[tuple[str, Document]]:
    """The containers that name an image and no command, which are no processes of a node.

    Args:
        spec: of a pod; need not have passed its schema.

    Returns:
        Each with the path of the missing field from the spec.
    """
    found = []
    for part in _CONTAINER_LISTS:
        containers = spec.get(part)
        for index, container in enumerate(containers if isinstance(containers, list) else ()):
            if not isinstance(container, dict) or container.get("command"):
                continue
            if container.get("image"):
                found.append((f"{part}[{index}].command", container))
    return found


def command_warnings(spec: Document, path: str) -> tuple[str, ...]:
    """One warning about all containers that need a command; none if there are no such."""
    paths = [f"{path}.{field}" for field, _ in image_only(spec)]
    if not paths or Feature.IMAGES in _given(spec):
        return ()
    why = _NEEDS_IMAGES if _uses_images(spec) else _NEEDS_COMMAND
    return (f"{first_few(paths, _PATHS_SHOWN)}: {why}",)


class FieldReport(NamedTuple):
    """The unsupported fields of a pod.

    Attributes:
        warnings: one for each cause, and one about containers that need a command.
        message: of the condition; empty if there is no cause.
    """

    warnings: tuple[str, ...]
    message: str

    def condition(self, now: datetime) -> Document:
        """The pod condition that lists the fields."""
        return {
            "type": CONDITION,
            "status": "True",
            "reason": REASON,
            "message": self.message,
            "lastTransitionTime": timestamps.rfc3339(now),
        }


class Reviewer:
    """Reviews specs of pods; remembers by its bytes what it looked at, as pods come from templates.

    Attributes:
        looks: how often a spec was not known.
    """

    def __init__(self) -> None:
        self.looks = 0
        self._known: BoundedDict[bytes, FieldReport] = BoundedDict(_REMEMBERED)

    def review(self, spec: Document) -> FieldReport:
        """The fields of a pod's spec, which has passed its schema, that have no effect."""
        body = codec.encode_any({name: spec[name] for name in spec if name in _READ})
        known = self._known.get(body)
        if known is not None:
            return known
        self.looks += 1
        found = find(spec, "spec")
        nowhere = [path for path, field in found if field.needs is None]
        message = f"no effect: {first_few(nowhere, _LISTED)}" if nowhere else ""
        made = FieldReport((*command_warnings(spec, "spec"), *warnings(found)), message)
        if len(body) <= _REMEMBERED_BYTES:
            self._known[body] = made
        return made


PODS = Reviewer()
"""The specs of pods that came lately."""
