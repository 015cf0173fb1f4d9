"""Views of pods that are shared: pods, and specs, that are equal as bytes are decoded once.

Theory of operation. One version of a pod comes to a process several times: as the answer to its write
and as an event of the watch of each informer. Views that were made lately are therefore cached by the
bytes of the pod.

Most of a pod is its spec. Thousands of pods come from one template, and all later versions of a pod keep
its spec. So specs are decoded once per template: the cache is keyed by the bytes of the spec with an
empty ``nodeName``, in which the pods of a template differ. Views are immutable, so pods share them. What
no cache serves is decoded in full, which stays the reference: tests compare both.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from grange.api.kinds.pod import Pod, PodSpec, PodStatus
from grange.api.meta import ObjectMeta
from grange.base.bounded import Recent, SecondUseCache

SPEC_MAX_BYTES = 8_192
SPECS_MAX_BYTES = 1024 * 1024
"""All keys together. An entry takes up to ten times the size of its key."""
_RECENT_PODS = 256  # as many as one group of bindings makes events of
_RECENT_BYTES = 512 * 1024

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
        reused: how many pods were not decoded, because a view of the same bytes was cached.
    """

    def __init__(self) -> None:
        self.decodes = 0
        self.reused = 0
        self._recent: Recent[bytes, Pod] = Recent(_RECENT_PODS, max_bytes=_RECENT_BYTES)
        self._entries: SecondUseCache[PodSpec] = SecondUseCache(SPECS_MAX_BYTES)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """The size of all keys."""
        return self._entries.size_bytes

    @property
    def recent(self) -> int:
        """How many views of whole pods are cached."""
        return len(self._recent)

    def decode(self, body: bytes | msgspec.Raw) -> Pod:
        """The view of a pod.

        Raises:
            msgspec.MsgspecError, UnicodeDecodeError: the body is no pod; the message names the field.
        """
        key = bytes(body)
        found = self._recent.get(key)
        if found is not None:
            self.reused += 1
            return found
        try:
            pod = self.complete(_raw_pods.decode(key))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pod = _pods.decode(key)  # for the path in the message
        return self._recent.put(key, pod, len(key))

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
