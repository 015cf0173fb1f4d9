"""get, list and watch."""

from grange.api.http import Response
from grange.api.status import NotAcceptable
from grange.apiserver import listing, representation, selection, storage
from grange.apiserver.negotiation import wants_yaml
from grange.apiserver.request_context import Call


async def get(call: Call) -> Response:
    """The object as it is stored."""
    return call.answer(call.registry.get(call.place).value)


async def list_objects(call: Call) -> Response:
    """The objects of a collection that are in the selection."""
    target, query, registry = call.target, call.request.query, call.registry
    view = representation.negotiate(target.info, call.request.headers, query)
    chosen = selection.parse(target.info, query)
    listed = await listing.read_list(
        registry.store,
        target.info,
        target.namespace,
        chosen,
        listing.list_options(query, storage.prefix(target.info, target.namespace)),
        call.watches.reader(target.info),
        call.clock,
    )
    bodies = [entry.value for entry in listed.entries]
    unreadable, entries = call.watches.unreadable, listed.entries
    body = await representation.many(
        view,
        bodies,
        listed.meta,
        clock=call.clock,
        work=registry.work,
        skip=lambda index, error: unreadable.skip(entries[index], error),
    )
    return Response(200, body)


async def watch(call: Call) -> Response:
    """Changes of a collection, or of one object, until the time is up."""
    target, query = call.target, dict(call.request.query)
    if wants_yaml(call.request.headers.get("accept") or ""):
        raise NotAcceptable("a watch is served as application/json only")
    if target.name:
        named = f"metadata.name={target.name}"
        query["fieldSelector"] = ",".join(filter(None, (query.get("fieldSelector"), named)))
    view = representation.negotiate(target.info, call.request.headers, query)
    chosen = selection.parse(target.info, query)
    stream = await call.watches.start(view, target.namespace, chosen, query)
    return Response(200, chunks=stream)
