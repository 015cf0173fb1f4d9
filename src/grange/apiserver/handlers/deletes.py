"""delete and deletecollection."""

from grange.api.http import Response
from grange.api.status import ApiError, BadRequest, NotFound
from grange.apiserver import listing, representation, selection, storage
from grange.apiserver.registry import Place
from grange.apiserver.request_context import Call, success
from grange.apiserver.write_options import DeleteOptions, delete_options
from grange.base.tasks import Nursery

_AT_ONCE = 32  # deletions share commits; one after the other, 500 took longer than clients wait
_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"


async def delete(call: Call) -> Response:
    """Delete an object: returns it while it still exists, then what its kind returns when removed."""
    outcome = await call.registry.delete(call.place, _options(call))
    if outcome.removed and not call.target.info.returns_deleted:
        return success(call.place, outcome.value)
    return call.written(outcome)


async def delete_collection(call: Call) -> Response:
    """All objects of a collection that are in the selection; answers with them as they were left."""
    target, query, registry = call.target, call.request.query, call.registry
    info = target.info
    if info.namespaced and not target.namespace:
        raise BadRequest(f"deleting {info.plural} of all namespaces at once is not served")
    asked = _options(call)
    view = representation.negotiate(info, call.request.headers, query)
    prefix = storage.prefix(info, target.namespace)
    listed = await listing.read_list(
        registry.store,
        info,
        target.namespace,
        selection.parse(info, query),
        listing.list_options(query, prefix),
        call.watches.reader(info),
        call.clock,
    )
    left: dict[int, bytes] = {}
    failures: list[ApiError] = []
    waiting = enumerate(listed.entries)

    async def delete_waiting() -> None:
        for index, entry in waiting:
            if failures:
                return
            namespace, name = storage.names_of(entry.key, info)
            try:
                outcome = await registry.delete(Place(info, namespace, name), asked)
            except NotFound:
                continue  # another client deleted it first
            except ApiError as error:
                failures.append(error)
                return
            left[index] = outcome.value

    async with Nursery("delete a collection") as nursery:
        for _ in range(min(_AT_ONCE, len(listed.entries))):
            nursery.start(delete_waiting(), name="delete objects")
    if failures:
        raise failures[0]
    values = [left[index] for index in sorted(left)]
    body = await representation.many(
        view, values, listed.meta, clock=call.clock, work=registry.work
    )
    return Response(200, body)


def _options(call: Call) -> DeleteOptions:
    given = call.request_object(_DELETE_OPTIONS) if call.request.body.strip() else {}
    return delete_options(call.request.query, given, call.request.user)
