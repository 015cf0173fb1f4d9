"""What a request for a tunnel into a pod asks for, at the API server and at the agent of a node."""

from grange.api import port_forward
from grange.api.http import Request
from grange.api.status import BadRequest
from grange.api.stream_requests import TUNNEL, StreamRequest


def tunnel_request(request: Request) -> StreamRequest:
    """What a request for a tunnel asks for.

    Raises:
        BadRequest: it names no port.
    """
    port = request.query.get("port") or ""
    if not port_forward.is_port(port):
        raise BadRequest("port: must be a number from 1 to 65535")
    return StreamRequest(TUNNEL, ports=(int(port),), protocols=stream_protocols(request))


def stream_protocols(request: Request) -> tuple[str, ...]:
    """The subprotocols that a request for a connection offers; none where it is no WebSocket."""
    return tuple(request.subprotocols) if request.wants_websocket else ()
