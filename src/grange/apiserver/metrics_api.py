"""The API group ``metrics.k8s.io``: what nodes and pods use. Read from the agents, never stored."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from grange.api import codec, timestamps
from grange.api.http import Request, Response, User
from grange.api.kinds import NODE, POD
from grange.api.meta import Document, Resource
from grange.api.resource_metrics import ContainerSample, PodSample, UsageSample
from grange.api.scheme import AnyKind, KindInfo, Scheme
from grange.api.status import MethodNotAllowed, NotFound, ServiceUnavailable
from grange.apiserver import request_info, selection, storage
from grange.apiserver.authorization.authorizer import Authorizer, check, resource_attributes
from grange.apiserver.registry import Place, Registry
from grange.apiserver.request_info import Target

GROUP = "metrics.k8s.io"
VERBS = ("get", "list")
_VERSION = "v1beta1"
_ROOT = f"/apis/{GROUP}/{_VERSION}/"


class MetricsResource(Resource, frozen=True):
    """Any of them; clients read them as documents."""


NODEMETRICS = KindInfo(
    group=GROUP,
    version=_VERSION,
    kind="NodeMetrics",
    plural="nodes",
    view=MetricsResource,
    schema="",
    namespaced=False,
    has_status=False,
)
PODMETRICS = KindInfo(
    group=GROUP,
    version=_VERSION,
    kind="PodMetrics",
    plural="pods",
    view=MetricsResource,
    schema="",
    has_status=False,
)
KINDS = (NODEMETRICS, PODMETRICS)
_SCHEME = Scheme(KINDS)


class MetricsSource(Protocol):
    """Measures what pods use."""

    def samples(self) -> Sequence[UsageSample]:
        """The newest samples; no node is in two of them."""


class MetricsAPI:
    """Serves the group.

    Args:
        source: what agents measure; None when no agent is connected.
        registry: has the pods and nodes that the samples are about.
        authorizer: decides who may read them.
    """

    def __init__(
        self, source: MetricsSource | None, registry: Registry, authorizer: Authorizer
    ) -> None:
        self._source = source
        self._registry = registry
        self._authorizer = authorizer

    def admits(self, request: Request, user: User) -> bool:
        """Whether the path is in the group, and the user may read it.

        Raises:
            NotFound, MethodNotAllowed: the group does not serve it.
            Forbidden: the user may not.
        """
        return self._admitted(request, user) is not None

    def serve(self, request: Request, user: User) -> Response | None:
        """The metrics at a path; None for a path outside the group.

        Raises:
            NotFound, MethodNotAllowed, Forbidden: as for ``admits``.
            BadRequest: a selector is malformed.
            ServiceUnavailable: nothing has been measured yet.
        """
        target = self._admitted(request, user)
        if target is None:
            return None
        samples = self._source.samples() if self._source is not None else ()
        if not samples:
            raise ServiceUnavailable("no usage is measured yet: no node agent has sent a sample")
        chosen = selection.parse(target.info, request.query)
        make = self._nodes if target.info is NODEMETRICS else self._pods
        items = [
            item
            for sample in samples
            for item in make(sample, target)
            if chosen.matches(
                selection.ObjectAttributes(
                    item["metadata"].get("labels") or {},
                    {f"metadata.{key}": item["metadata"].get(key, "") for key in _NAMES},
                )
            )
        ]
        head = {"apiVersion": target.info.api_version, "kind": target.info.kind}
        if not target.name:
            head["kind"] += "List"
            return Response(200, codec.encode({**head, "metadata": {}, "items": items}))
        if not items:
            raise NotFound(
                f'{target.info.plural}.{GROUP} "{target.name}" not found: it is not measured',
                name=target.name,
                kind=target.info.plural,
                group=GROUP,
            )
        return Response(200, codec.encode({**head, **items[0]}))

    def _admitted(self, request: Request, user: User) -> Target | None:
        if not request.path.startswith(_ROOT):
            return None
        target = request_info.parse(request, _SCHEME)
        if target is None or target.subresource:
            raise request_info.no_such_path(request.path)
        if target.verb not in VERBS:
            raise MethodNotAllowed(
                f"{target.resource}.{GROUP} can be asked to {', '.join(VERBS)}, not to {target.verb}"
            )
        check(self._authorizer, resource_attributes(user, target, request.query))
        return target

    def _pods(self, sample: UsageSample, target: Target) -> Iterable[Document]:
        for pod in sample.pods:
            if target.namespace not in {"", pod.namespace} or target.name not in {"", pod.name}:
                continue
            stored = self._stored(POD, pod.namespace, pod.name)
            if stored is None or stored["metadata"]["uid"] != pod.uid:
                continue
            if (stored.get("spec") or {}).get("nodeName") != pod.node:
                continue  # a node measures its own pods
            containers = [
                {"name": name, "usage": _usage([used])} for name, used in pod.containers.items()
            ]
            yield {**_head(stored, sample, pod.window_s), "containers": containers}

    def _nodes(self, sample: UsageSample, target: Target) -> Iterable[Document]:
        by_node: dict[str, list[PodSample]] = {name: [] for name in sample.nodes}
        for pod in sample.pods:
            by_node.setdefault(pod.node, []).append(pod)
        for name, pods in by_node.items():
            stored = self._stored(NODE, "", name) if target.name in {"", name} else None
            if stored is not None:
                used = [item for pod in pods for item in pod.containers.values()]
                yield {**_head(stored, sample, sample.window_s), "usage": _usage(used)}

    def _stored(self, info: AnyKind, namespace: str, name: str) -> Document | None:
        try:
            entry = self._registry.get(Place(info, namespace, name))
        except NotFound:  # deleted since it was measured
            return None
        return storage.decode(entry.value, self._registry.work)


_NAMES = ("name", "namespace")


def _head(stored: Document, sample: UsageSample, window_s: float) -> Document:
    meta = stored["metadata"]
    kept = {key: meta[key] for key in ("name", "namespace", "labels") if meta.get(key)}
    return {
        "metadata": {**kept, "creationTimestamp": timestamps.rfc3339(sample.taken_at)},
        "timestamp": timestamps.rfc3339(sample.taken_at),
        "window": f"{window_s:.3f}s",
    }


def _usage(used: list[ContainerSample]) -> Document:
    """The sum, in the units of metrics-server: nanocores and KiB."""
    cores = sum(item.cpu_cores for item in used)
    memory = sum(item.memory_bytes for item in used)
    return {"cpu": f"{round(cores * 1e9)}n", "memory": f"{memory // 1024}Ki"}
