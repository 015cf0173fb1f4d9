"""``exec``, ``attach``, ``portforward`` and ``tunnel``: connections into pods, served by their nodes.

They are authorized as ``create`` whatever method opens them: a user who may only read runs nothing.
"""

from grange.api import port_forward
from grange.api.http import Request, Response
from grange.api.meta import Document
from grange.api.status import BadRequest, ServiceUnavailable
from grange.api.stream_requests import ATTACH, EXEC, PORT_FORWARD, TUNNEL, StreamRequest
from grange.apiserver import storage
from grange.apiserver.container_choice import choose_container
from grange.apiserver.request_context import Call
from grange.apiserver.request_info import is_true
from grange.apiserver.subresources.subresource import Handler, Subresource
from grange.apiserver.tunnel_requests import stream_protocols, tunnel_request

_COMMAND_MAX_BYTES = 64 * 1024


async def _run(call: Call) -> Response:
    command = tuple(call.request.values("command"))
    if not command or not command[0]:
        raise BadRequest("command: you must specify at least one for the container")
    if any("\0" in word for word in command):
        raise BadRequest("command: must not contain a NUL character")
    if sum(map(len, command)) > _COMMAND_MAX_BYTES:
        raise BadRequest(f"command: must have at most {_COMMAND_MAX_BYTES} characters")
    pod = _pod(call)
    return await _open(call, pod, _options(pod, call.request, EXEC, command))


async def _attach(call: Call) -> Response:
    pod = _pod(call)
    return await _open(call, pod, _options(pod, call.request, ATTACH, ()))


async def _forward(call: Call) -> Response:
    pod, request = _pod(call), call.request
    words = [word for value in request.values("ports") for word in value.split(",") if word]
    if len(words) > port_forward.PORTS_MAX:
        raise BadRequest(f"ports: at most {port_forward.PORTS_MAX} may be given")
    if faulty := [word for word in words if not port_forward.is_port(word)]:
        raise BadRequest(f"ports: {faulty[0][:20]!r} is no port: must be from 1 to 65535")
    ports = tuple(map(int, words))
    asked = StreamRequest(PORT_FORWARD, ports=ports, protocols=stream_protocols(request))
    return await _open(call, pod, asked)


async def _tunnel(call: Call) -> Response:
    return await _open(call, _pod(call), tunnel_request(call.request))


def _pod(call: Call) -> Document:
    return storage.decode(call.registry.get(call.place).value, call.registry.work)


async def _open(call: Call, pod: Document, asked: StreamRequest) -> Response:
    if not (pod.get("spec") or {}).get("nodeName"):
        raise BadRequest(f"pod {call.target.name} does not have a host assigned: nothing runs yet")
    if call.streams is None:
        raise ServiceUnavailable("no node agent is connected to open streams to pods")
    return await call.streams.open(pod, asked)


def _options(
    pod: Document, request: Request, operation: str, command: tuple[str, ...]
) -> StreamRequest:
    query = request.query
    stdin, stdout, stderr = (is_true(query.get(name)) for name in ("stdin", "stdout", "stderr"))
    if not (stdin or stdout or stderr):
        raise BadRequest("you must specify at least one of stdin, stdout, stderr")
    tty = is_true(query.get("tty"))
    return StreamRequest(
        operation,
        container=choose_container(pod, query.get("container") or ""),
        command=command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr and not tty,  # a terminal has one output
        tty=tty,
        protocols=stream_protocols(request),
    )


def _connection(name: str, handler: Handler, kind: str) -> Subresource:
    return Subresource(name, {"create": handler, "get": handler}, kind=kind)


EXEC_SUBRESOURCE = _connection(EXEC, _run, "PodExecOptions")
TUNNEL_SUBRESOURCE = _connection(TUNNEL, _tunnel, "PodProxyOptions")
ATTACH_SUBRESOURCE = _connection(ATTACH, _attach, "PodAttachOptions")
PORT_FORWARD_SUBRESOURCE = _connection(PORT_FORWARD, _forward, "PodPortForwardOptions")
