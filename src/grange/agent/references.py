"""The ConfigMaps and Secrets that a pod refers to: which they are, and what they hold.

They are fetched when a container is about to be created, not watched: a thousand pods then cost no
copy of any secret.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from grange.agent.errors import NotCreatableError
from grange.agent.service_account import Tokens, fetch_tokens
from grange.api.kinds import CONFIGMAP, SECRET
from grange.api.kinds.pod import Container, Pod
from grange.api.kinds.serviceaccount import ROOT_CA
from grange.api.meta import Document
from grange.api.status import ApiError, NotFound
from grange.base.clock import Clock
from grange.client.client import Client

_AUTHORITY = (CONFIGMAP.kind, ROOT_CA)
_NO_CONTENT: Mapping[str, bytes] = {}
_FRESH_S = 60.0  # of tokens, which live for ten minutes at least


class Reference(NamedTuple):
    """A ConfigMap or Secret by name, in the pod's namespace."""

    kind: str
    name: str
    optional: bool = False

    def __str__(self) -> str:
        return f'{self.kind} "{self.name}"'

    @classmethod
    def of(
        cls, config_map: Document | None, secret: Document | None, *, name: str = "name"
    ) -> "Reference":
        """From the manifest's selector: whichever of the two is there."""
        selector = config_map if config_map is not None else secret or {}
        kind = "ConfigMap" if config_map is not None else "Secret"
        return cls(kind, str(selector.get(name, "")), bool(selector.get("optional")))


@dataclass(frozen=True, slots=True)
class Sources:
    """What was found; a missing one maps to None.

    Attributes:
        namespace: where they were looked for.
        found: kind and name to content.
        tokens: of the pod's service account, as its volumes ask for them.
        files: by volume and path, what other containers of the pod wrote.
    """

    namespace: str
    found: Mapping[tuple[str, str], Mapping[str, bytes] | None] = field(default_factory=dict)
    tokens: Tokens = field(default_factory=dict)
    files: Mapping[tuple[str, str], bytes | None] = field(default_factory=dict)

    def content(self, reference: Reference, where: str) -> Mapping[str, bytes]:
        """Keys and values; empty for an optional one that is missing.

        Raises:
            NotCreatableError: it is missing and not optional; ``where`` begins the message.
        """
        content = self.found.get((reference.kind, reference.name))
        if content is not None:
            return content
        if reference.optional:
            return _NO_CONTENT
        raise NotCreatableError(
            f'{where}: there is no {reference} in namespace "{self.namespace}"; create it, '
            "or mark the reference optional"
        )


def of_container(container: Container) -> Iterable[Reference]:
    """What a container's environment refers to."""
    for group in container.env_from:
        yield Reference.of(group.config_map_ref, group.secret_ref)
    for item in container.env:
        source = item.value_from
        if source is not None and (source.config_map_key_ref or source.secret_key_ref):
            yield Reference.of(source.config_map_key_ref, source.secret_key_ref)


def of_volumes(pod: Pod) -> Iterable[Reference]:
    """What a pod's volumes refer to."""
    for volume in pod.spec.volumes:
        if volume.config_map is not None:
            yield Reference.of(volume.config_map, None)
        if volume.secret is not None:
            yield Reference.of(None, volume.secret, name="secretName")
        for part in (volume.projected or {}).get("sources") or []:
            if "configMap" in part or "secret" in part:
                yield Reference.of(part.get("configMap"), part.get("secret"))


class _Remembered(NamedTuple):
    """What a pod's containers have in common, and when it was fetched."""

    sources: Sources
    fetched_at: float


class Fetcher:
    """Reads what pods refer to.

    The token and certificate that every pod has are fetched once for containers that start together. They are
    remembered for as long as the pod is there: a container that needs nothing else starts again though the
    API cannot be asked.

    Args:
        client: to the API.
        clock: time.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._remembered: dict[str, _Remembered] = {}  # by uid of the pod

    async def fetch(self, pod: Pod, container: Container | None) -> Sources:
        """Read what the pod's volumes and the container's environment refer to, each once.

        Args:
            pod: whose volumes.
            container: what is to start; None where the volumes are renewed, for which nothing is remembered.

        Raises:
            NotCreatableError: the pod's service account is missing.
            ApiError: the API cannot be asked.
        """
        references = {(item.kind, item.name): item for item in of_volumes(pod)}
        if container is not None:
            references |= {(item.kind, item.name): item for item in of_container(container)}
        namespace, uid = pod.metadata.namespace, pod.metadata.uid
        known, now = self._remembered.get(uid), self._clock.monotonic()
        is_fresh = known is not None and now - known.fetched_at < _FRESH_S
        fresh = known.sources if known is not None and container is not None and is_fresh else None
        found: dict[tuple[str, str], Mapping[str, bytes] | None] = {}
        if fresh is not None:  # what was missing may be there by now
            found |= {key: content for key, content in fresh.found.items() if content is not None}
        try:
            for identity, reference in references.items():
                if identity not in found:
                    found[identity] = await _read(self._client, namespace, reference)
            if fresh is not None:
                return Sources(namespace, found, fresh.tokens)
            tokens = await fetch_tokens(self._client, pod)
        except ApiError:
            if known is None or container is None:
                raise
            if not references.keys() <= known.sources.found.keys():
                raise
            return known.sources
        if tokens:
            kept = {key: found[key] for key in found.keys() & {_AUTHORITY}}
            self._remembered[uid] = _Remembered(Sources(namespace, kept, tokens), now)
        return Sources(namespace, found, tokens)

    def forget(self, uid: str) -> None:
        """The pod of this uid is over."""
        self._remembered.pop(uid, None)


async def _read(client: Client, namespace: str, reference: Reference) -> Mapping[str, bytes] | None:
    if not reference.name:
        return None
    try:
        if reference.kind == "Secret":
            secret = await client.get(SECRET, reference.name, namespace)
            return {key: _decoded(value) for key, value in secret.data.items()}
        settings = await client.get(CONFIGMAP, reference.name, namespace)
    except NotFound:
        return None
    plain = {key: value.encode() for key, value in settings.data.items()}
    return plain | {key: _decoded(value) for key, value in settings.binary_data.items()}


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value)
    except binascii.Error:
        return b""  # the API server refuses such values
