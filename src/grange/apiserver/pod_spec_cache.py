"""Specs of pods that were accepted, cached by the bytes in which they were sent.

Theory of operation. Pods come from templates: thousands have the same spec and differ in metadata and,
where they have an identity, in ``hostname``. The stored spec, the initial status and the warnings are a
function of the bytes of the spec and of what admission changes in it; no rule depends on which host name a
pod has, as long as it is valid. A create whose spec is cached therefore decodes, checks and encodes its
metadata only. Every other create (another spec, another change by admission, invalid metadata, a duplicate
field) takes the full path, which fills the cache and stays the reference: tests compare the answers of both.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from grange.api import codec, schema
from grange.api.kinds import POD
from grange.api.meta import Document
from grange.api.template_texts import HOSTNAME
from grange.api.validation.causes import Faults
from grange.api.validation.metadata import check_metadata
from grange.apiserver.admission import Mutation
from grange.base.bounded import SecondUseCache

Mutations = tuple[Mutation | None, ...]

SPEC_MAX_BYTES = 8_192
SPECS_MAX_BYTES = 512 * 1_024
"""All keys together. An entry takes up to 20 times the size of its key."""


class AcceptedSpec(msgspec.Struct, frozen=True):
    """The result of accepting a spec. It is immutable: all pods with the spec share it.

    Attributes:
        sent: the spec as it was sent.
        mutations: what admission changed.
        spec: the spec as it is stored.
        encoded: the bytes of ``spec``.
        status: the status of a new pod; ``status_at`` sets the times in its conditions.
        warnings: for the ``Warning`` headers.
    """

    sent: Document
    mutations: Mutations
    spec: Document
    encoded: msgspec.Raw
    status: Document
    warnings: tuple[str, ...]

    def status_at(self, time: str) -> Document:
        """The status of a pod that is created at a time, in RFC 3339."""
        status = dict(self.status)
        if "conditions" in status:
            status["conditions"] = [
                {**condition, "lastTransitionTime": time} for condition in status["conditions"]
            ]
        return status

    def with_hostname(self, hostname: bytes) -> "AcceptedSpec":
        """The same of a spec with another host name; ``encoded`` is without one."""
        name = hostname.decode()
        return AcceptedSpec(
            {**self.sent, "hostname": name},
            self.mutations,
            {**self.spec, "hostname": name},
            msgspec.Raw(HOSTNAME.fill(bytes(self.encoded), hostname)),
            self.status,
            self.warnings,
        )


class SentPod(msgspec.Struct, frozen=True):
    """The body of a create, split into the spec and the rest.

    Attributes:
        spec: the bytes of the spec.
        rest: the bytes of the pod with 0 in place of the spec; empty if the spec is not cached.
        document: the pod, whose spec is shared with other pods; empty if the spec is not cached.
        accepted: the cached result; None if there is none.
    """

    spec: bytes
    rest: bytes
    document: Document
    accepted: AcceptedSpec | None


class _Pod(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    metadata: dict[str, Any]
    spec: msgspec.Raw
    api_version: str | msgspec.UnsetType = msgspec.UNSET
    kind: str | msgspec.UnsetType = msgspec.UNSET
    status: Any = msgspec.UNSET


_pods = msgspec.json.Decoder(_Pod)


class PodSpecCache:
    """The cache. An entry is made for the second pod of a spec: many specs are sent once.

    Attributes:
        reused: how many pods were completed from the cache (a work counter).
    """

    def __init__(self) -> None:
        self.reused = 0
        self._entries: SecondUseCache[AcceptedSpec] = SecondUseCache(SPECS_MAX_BYTES)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """The size of all keys."""
        return self._entries.size_bytes

    def split(self, body: bytes) -> SentPod | None:
        """The parts of a JSON body; None if it is malformed, has unknown fields or a large spec."""
        try:
            pod = _pods.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        spec = bytes(pod.spec)
        if len(spec) > SPEC_MAX_BYTES or not spec.startswith(b"{"):
            return None
        key, hostname = HOSTNAME.cut(spec) or (spec, b"")
        accepted = self._entries.get(key)
        if accepted is not None and hostname:
            accepted = accepted.with_hostname(hostname)
        rest = b"" if accepted is None else body.replace(spec, b"0", 1)
        if accepted is None or rest.count(b"{") + rest.count(b"[") > codec.DEPTH_MAX:
            return SentPod(spec, rest, {}, None)
        document: Document = {"metadata": pod.metadata, "spec": accepted.sent}
        for name, value in (
            ("apiVersion", pod.api_version),
            ("kind", pod.kind),
            ("status", pod.status),
        ):
            if value is not msgspec.UNSET:
                document[name] = value
        return SentPod(spec, rest, document, accepted)

    def reuse(self, accepted: AcceptedSpec, mutations: Mutations, pod: Document) -> bool:
        """Set the stored spec and the status of a pod.

        Args:
            accepted: the cached result for its spec.
            mutations: what admission changes now.
            pod: has its metadata, without a status.

        Returns:
            False if admission changes something else now or the metadata are invalid. The pod is then
            unchanged, except that null metadata, which mean absent, may be removed.
        """
        if accepted.mutations != mutations:
            return False
        head = {name: value for name, value in pod.items() if name != "spec"}
        if schema.check(head, POD):
            return False
        faults = Faults()
        check_metadata(pod, namespaced=True, name_rule=POD.name_rule, faults=faults)
        if faults.causes:
            return False
        pod["spec"] = accepted.spec
        pod["status"] = accepted.status_at(pod["metadata"]["creationTimestamp"])
        self.reused += 1
        return True

    def add(
        self, sent: SentPod, mutations: Mutations, pod: Document, warnings: Sequence[str]
    ) -> msgspec.Raw | None:
        """Record that a pod was accepted on the full path.

        Args:
            sent: its body; it has no unknown and no duplicate fields.
            mutations: what admission changed.
            pod: as it is stored; its spec must not change afterwards.
            warnings: about the spec.

        Returns:
            The bytes of the stored spec if an entry was made.
        """
        key, hostname = HOSTNAME.cut(sent.spec) or (sent.spec, b"")
        if not self._entries.is_used_again(key):
            return None
        encoded = shared = codec.encode(pod["spec"])
        if hostname:
            shared, _ = HOSTNAME.cut(encoded) or (b"", b"")
            if not (HOSTNAME.is_own(key) and HOSTNAME.is_own(shared)):
                return None
        given = codec.decode_trusted(sent.spec)
        accepted = AcceptedSpec(
            given, mutations, pod["spec"], msgspec.Raw(shared), pod["status"], tuple(warnings)
        )
        self._entries.set(key, accepted)
        return msgspec.Raw(encoded)
