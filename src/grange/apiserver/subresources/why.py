"""``why``: why a pod is where it is, or why it still waits, from the scheduler that has it."""

from grange.api import codec, explanation
from grange.api.http import Response
from grange.api.status import ServiceUnavailable
from grange.apiserver.request_context import Call
from grange.apiserver.subresources.subresource import Subresource


async def _get(call: Call) -> Response:
    pod = codec.decode_view(call.registry.get(call.place).value, call.target.info.view)
    if call.explainer is None:
        raise ServiceUnavailable(
            "no scheduler runs with this API server, so there is no explanation; see the pod's condition "
            "PodScheduled and its events"
        )
    return Response(200, codec.encode(explanation.document(await call.explainer.explain(pod))))


_GROUP, _, _VERSION = explanation.API_VERSION.rpartition("/")

WHY = Subresource("why", {"get": _get}, kind=explanation.KIND, group=_GROUP, version=_VERSION)
