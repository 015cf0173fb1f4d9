"""What the agent of a node serves to the API server: logs and usage of its pods, connections into them.

A pod has the path that it has at the API server. Client certificates are the only credentials: that of
the API server may ask for everything, those of other nodes for the connections of Services.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec

from grange.agent.usage_sampler import UsageSampler
from grange.api import codec
from grange.api.http import Request, Response
from grange.api.kinds.pod import Pod
from grange.api.meta import Document, ObjectKey
from grange.api.node_identity import API_SERVER, API_SERVERS
from grange.api.status import (
    ApiError,
    BadRequest,
    Forbidden,
    InternalError,
    MethodNotAllowed,
    NotFound,
    ServiceUnavailable,
)
from grange.api.stream_requests import OPERATIONS, PORT_FORWARD, TUNNEL, StreamRequest
from grange.apiserver.client_certificates import node_of
from grange.apiserver.container_choice import choose_container
from grange.apiserver.error_response import failure
from grange.apiserver.log_response import log_options, open_log
from grange.apiserver.pod_logs import LogSource
from grange.apiserver.pod_streams import PodStreams
from grange.apiserver.tunnel_requests import tunnel_request
from grange.app.node_revocations import NodeRevocations
from grange.base.metrics import CollectorRegistry, exposition
from grange.base.ratelimited import RateLimitedLogger

USAGE_PATH = "/usage"
UID = "uid"
"""Query parameter: of the pod that is meant; another pod of its name is not found."""

STREAM = "stream"
"""Query parameter: a ``StreamRequest``. Without an upgrade it is checked only."""

_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/([a-z]+)")
_SUBRESOURCES = OPERATIONS | {"log"}
_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


def pod_request(
    pod: Document,
    operation: str,
    query: Mapping[str, str],
    headers: Mapping[str, str] | None = None,
) -> Request:
    """A request to the agent of the pod's node, for this pod and no other of its name."""
    meta = pod["metadata"]
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/{operation}"
    return Request("GET", path, {UID: str(meta["uid"]), **query}, headers or {})


class AgentEndpoints:
    """Answers the API server.

    Args:
        logs: where the output of pods comes from.
        streams: opens connections into pods.
        usage: measures the pods.
        metrics: of the agent.
        revocations: the nodes that open no connections.
        log: for failures.

    Attributes:
        pod: finds a pod of the node; set when there is one.
    """

    def __init__(
        self,
        logs: LogSource,
        streams: PodStreams,
        usage: UsageSampler,
        metrics: CollectorRegistry,
        revocations: NodeRevocations,
        log: RateLimitedLogger,
    ) -> None:
        self.pod: Callable[[ObjectKey], Pod | None] = lambda key: None
        self._logs = logs
        self._streams = streams
        self._usage = usage
        self._metrics = metrics
        self._revocations = revocations
        self._log = log

    def admit(self, request: Request) -> None:
        """Let the API server pass, and other nodes where they may.

        Raises:
            Forbidden: another user asks, or a node that is revoked.
        """
        user = request.user
        node = node_of(user)
        if node and (why := self._revocations.refusal(node)):
            raise Forbidden(why)
        found = _POD.fullmatch(request.path)
        if node and found is not None and found[3] == TUNNEL:
            return
        if user.name != API_SERVER or API_SERVERS not in user.groups:
            raise Forbidden(f'user "{user.name}" may not call the agent of a node')

    async def handle(self, request: Request) -> Response:
        """The answer to a request; only cancellation is raised."""
        try:
            self.admit(request)
            return await self._answer(request)
        except ApiError as error:
            return failure(error)
        except Exception as error:  # noqa: BLE001  a fault of ours must not end the connection unanswered
            self._log.error("request failed", path=request.path, error=error)
            return failure(InternalError("the agent failed on this request; see its log"))

    async def _answer(self, request: Request) -> Response:
        if request.method != "GET":
            raise MethodNotAllowed(f"the agent of a node serves GET only, not {request.method}")
        match request.path:
            case "/healthz":
                return Response(200, b"ok", _TEXT)
            case "/metrics":
                return Response(200, exposition(self._metrics), _METRICS)
            case endpoint if endpoint == USAGE_PATH:
                sample = self._usage.newest()
                if sample is None:
                    raise ServiceUnavailable("no usage is measured yet")
                return Response(200, msgspec.json.encode(sample))
        found = _POD.fullmatch(request.path)
        if found is not None and found[3] in _SUBRESOURCES:
            pod = codec.to_document(self._found(request, ObjectKey(found[1], found[2])))
            if found[3] in OPERATIONS:
                return await self._open(request, pod, found[3])
            return await open_log(self._logs, pod, log_options(pod, request.query))
        raise NotFound(f"the agent of a node does not serve {request.path}")

    async def _open(self, request: Request, pod: Document, operation: str) -> Response:
        wanted = _wanted(request, operation)
        if wanted.operation != operation:
            raise BadRequest(f"{STREAM}: is of {wanted.operation}, not of {operation}")
        if operation not in {PORT_FORWARD, TUNNEL}:
            choose_container(pod, wanted.container)
        node = node_of(request.user)
        if node:
            await self._revocations.check(node)
        answer = await self._streams.open(pod, wanted)
        if not request.wants_websocket:
            return Response(200, b"{}", headers=answer.headers)
        upgrade = answer.upgrade
        if not node or upgrade is None:
            return answer
        return replace(
            answer, upgrade=lambda socket: self._revocations.serve(node, upgrade(socket))
        )

    def _found(self, request: Request, key: ObjectKey) -> Pod:
        pod = self.pod(key)
        if pod is None or request.query.get(UID) not in (None, pod.metadata.uid):
            raise NotFound(f'pod "{key}" is not on this node', name=key.name, kind="pods")
        return pod


def _wanted(request: Request, operation: str) -> StreamRequest:
    """The connection that is asked for: by the API server, or by another node."""
    if operation == TUNNEL and STREAM not in request.query:
        return tunnel_request(request)
    try:
        return msgspec.json.decode(request.query.get(STREAM, ""), type=StreamRequest)
    except msgspec.MsgspecError as error:
        raise BadRequest(f"{STREAM}: {error}") from error
