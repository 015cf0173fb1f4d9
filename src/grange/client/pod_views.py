"""Views of pods that are shared: pods, and specs, that are equal as bytes are decoded once.

Theory of operation. One version of a pod comes to a process several times: as the answer to its write
and as an event of the watch of each informer. Views that were made lately are therefore cached by the
bytes of the pod.

Most of a pod is its spec. Thousands of pods come from one template, and all later versions of a pod keep
its spec. So specs are decoded once per template: the cache is keyed by the bytes of the spec without
``nodeName`` and ``hostname``, in which the pods of a template differ. Views are immutable, so pods share
them. What no cache serves is decoded in full, which stays the reference: tests compare both.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from grange.api.kinds.pod import Pod, PodSpec, PodStatus
from grange.api.meta import ObjectMeta
from grange.api.template_texts import HOSTNAME, NODE_NAME, TemplateText
from grange.base.bounded import Recent, SecondUseCache

SPEC_MAX_BYTES = 8_192
SPECS_MAX_BYTES = 1024 * 1024
"""All keys together. An entry takes up to ten times the size of its key."""
_RECENT_PODS = 256  # as many as one group of bindings makes events of
_RECENT_BYTES = 512 * 1024
_TEXTS: Mapping[str, TemplateText] = {"node_name": NODE_NAME, "hostname": HOSTNAME}


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
        key, values = body, {}
        for name, text in _TEXTS.items():
            if (found := text.cut(key)) is not None:
                key, value = found
                values[name] = value.decode()
        spec = self._entries.get(key)
        if spec is None:
            return self._add(body, key, [_TEXTS[name] for name in values])
        if all(getattr(spec, name) == value for name, value in values.items()):
            return spec
        return msgspec.structs.replace(spec, **values)

    def _add(self, body: bytes, key: bytes, texts: Sequence[TemplateText]) -> PodSpec:
        """Decode a spec, and record it under its key, which is the spec without these texts."""
        if not body:
            return PodSpec()
        self.decodes += 1
        spec = _specs.decode(body)
        if len(key) > SPEC_MAX_BYTES:
            return spec
        if self._entries.is_used_again(key) and _are_own(key, texts):
            self._entries.set(key, spec)
        return spec


def _are_own(key: bytes, texts: Sequence[TemplateText]) -> bool:
    """Whether the texts that were cut from a spec are its own, and not of something within it."""
    for text in texts:
        rest = key
        for other in texts:
            if other is not text:
                rest = other.fill(rest, b"a")
        if not text.is_own(rest):
            return False
    return True


PODS = PodViews()
"""The specs of pods that were decoded lately."""
