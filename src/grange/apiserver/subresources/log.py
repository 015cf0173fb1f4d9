"""``log``: a container's output, from wherever the node's agent keeps it."""

from grange.api.http import Response
from grange.api.status import BadRequest, ServiceUnavailable
from grange.apiserver import storage
from grange.apiserver.log_response import log_options, open_log
from grange.apiserver.request_context import Call
from grange.apiserver.subresources.subresource import Subresource


async def _get(call: Call) -> Response:
    pod = storage.decode(call.registry.get(call.place).value, call.registry.work)
    asked = log_options(pod, call.request.query)
    if not (pod.get("spec") or {}).get("nodeName"):
        raise BadRequest(f"pod {call.target.name} does not have a host assigned: it has no output")
    if call.logs is None:
        raise ServiceUnavailable("no node agent is connected to read output from")
    return await open_log(call.logs, pod, asked)


LOG = Subresource("log", {"get": _get})
