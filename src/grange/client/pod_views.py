"""Views of pods whose specs are shared: specs that are equal as bytes are decoded once.

Theory of operation. Most of a pod is its spec. Thousands of pods come from one template, and all later
versions of a pod keep its spec. So specs are decoded once per template: the cache is keyed by the bytes
of the spec with an empty ``nodeName``, in which the pods of a template differ. Views are immutable, so
pods share them. A spec that the cache cannot serve is decoded in full, which stays the reference: tests
compare both.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from grange.api.kinds.pod import Pod, PodSpec, PodStatus
from grange.api.meta import ObjectMeta
from grange.base.bounded import SecondUseCache

SPEC_MAX_BYTES = 8_192
SPECS_MAX_BYTES = 1024 * 1024
"""All keys together. An entry takes up to ten times the size of its key."""

_NODE = b'"nodeName":"'  # the quotes of a text within a string are escaped: this is a member
_NODE_NAME = re.compile(rb"[-.0-9A-Za-z]*")


class RawPod(msgspec.Struct, rename="camel", gc=False):
    """A pod whose spec is still bytes."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


_raw_pods = msgspec.json.Decoder(RawPod)
_pods = msgspec.json.Decoder(Pod)
_specs = msgspec.json.Decoder(PodSpec)


class _Node(msgspec.Struct, rename="camel", gc=False):
    node_name: str = ""


_nodes = msgspec.json.Decoder(_Node)  # skips everything else, at a fraction of the time


class PodViews:
    """Makes views of pods. An entry is made for the second pod of a spec: many specs come once.

    Attributes:
        decodes: how many specs were decoded (a work counter).
    """

    def __init__(self) -> None:
        self.decodes = 0
        self._entries: SecondUseCache[PodSpec] = SecondUseCache(SPECS_MAX_BYTES)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """The size of all keys."""
        return self._entries.size_bytes

    def decode(self, body: bytes | msgspec.Raw) -> Pod:
        """The view of a pod.

        Raises:
            msgspec.MsgspecError, UnicodeDecodeError: the body is no pod; the message names the field.
        """
        try:
            return self.complete(_raw_pods.decode(body))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return _pods.decode(body)  # for the path in the message

    def complete_all(self, raw: Iterable[RawPod]) -> list[Any]:
        """``complete`` of each, for those who decode views of any kind."""
        return [self.complete(pod) for pod in raw]

    def complete(self, raw: RawPod) -> Pod:
        """The view of a pod whose spec is still bytes.

        Raises:
            msgspec.MsgspecError, UnicodeDecodeError: the spec is none.
        """
        return Pod(
            api_version=raw.api_version,
            kind=raw.kind,
            metadata=raw.metadata,
            spec=self._spec(bytes(raw.spec)),
            status=raw.status,
        )

    def _spec(self, body: bytes) -> PodSpec:
        at = body.rfind(_NODE)
        if at < 0:
            found = self._entries.get(body)
            return self._add(body, body, -1) if found is None else found
        start = at + len(_NODE)
        end = body.find(b'"', start)
        key = body[:start] + body[end:]
        name = body[start:end]
        found = self._entries.get(key)
        if found is None or not _NODE_NAME.fullmatch(name):
            return self._add(body, key, start)
        return msgspec.structs.replace(found, node_name=name.decode())

    def _add(self, body: bytes, key: bytes, node_at: int) -> PodSpec:
        """Decode a spec, and record it under its key.

        Args:
            body: the spec.
            key: the spec with an empty ``nodeName``.
            node_at: where in the key the name of a node belongs; negative if nowhere.
        """
        if not body:
            return PodSpec()
        self.decodes += 1
        spec = _specs.decode(body)
        if len(key) > SPEC_MAX_BYTES:
            return spec
        if self._entries.is_used_again(key):
            self._entries.set(key, spec if node_at < 0 else _without_node(spec, key, node_at))
        return spec


def _without_node(spec: PodSpec, key: bytes, node_at: int) -> PodSpec | None:
    """The spec of a key, which has an empty ``nodeName``.

    Two keys that differ in that text alone give two names only if it is the node of the spec itself.

    Returns:
        None if that is a member of something else in the spec.
    """
    named = key[:node_at] + b"x" + key[node_at:]
    try:
        names = _nodes.decode(key).node_name, _nodes.decode(named).node_name
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return msgspec.structs.replace(spec, node_name="") if names == ("", "x") else None


PODS = PodViews()
"""The specs of pods that were decoded lately."""
