"""``eviction``: a delete that asks first, as ``kubectl drain`` does.

What could say no are disruption budgets, a kind of a later issue; until then every eviction is a
graceful delete.
"""

from grange.api.status import BadRequest
from grange.api.wire import Response
from grange.apiserver.call import Call, success
from grange.apiserver.options import delete_options
from grange.apiserver.subresources.subresource import Subresource


async def _create(call: Call) -> Response:
    place, eviction = call.place, call.document()
    if eviction.get("kind", "Eviction") != "Eviction":
        raise BadRequest("the body of an eviction must be a policy/v1 Eviction")
    given = eviction.get("deleteOptions") or {}
    if not isinstance(given, dict):
        raise BadRequest("deleteOptions of the eviction must be an object")
    asked = delete_options(call.request.query, given)
    outcome = await call.registry.delete(place, asked)
    return success(place, outcome.value, code=201)


EVICTION = Subresource("eviction", {"create": _create}, kind="Eviction", group="policy")
