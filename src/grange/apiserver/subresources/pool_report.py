"""Reports about a NodePool, from the node controller of this process; nothing stores them."""

from grange.api import codec
from grange.api.http import Response
from grange.api.status import ServiceUnavailable
from grange.apiserver.request_context import Call

VERSION = "grange.dev/v1alpha1"


async def serve(what: str, kind: str, call: Call) -> Response:
    """Answer with a report about the pool, which must exist."""
    call.registry.get(call.place)
    if call.explainer is None:
        raise ServiceUnavailable(
            "no node controller runs with this API server; see the pool's conditions"
        )
    name = call.place.name
    report = await call.explainer.pool_report(what, name)
    document = {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, **report}
    return Response(200, codec.encode(document))
