"""``scale``: the number of copies of an object, in the same form for every kind that has copies.

A write goes through the object itself: its rules hold, its generation counts, and the uid and
resourceVersion of the Scale are the preconditions.
"""

from dataclasses import replace

from grange.api import codec, scale
from grange.api.http import Response
from grange.api.meta import Document
from grange.api.scheme import Scaling
from grange.api.status import NotFound
from grange.apiserver import metadata, storage
from grange.apiserver.conformance import conform, invalid
from grange.apiserver.handlers import writes
from grange.apiserver.handlers.writes import Change
from grange.apiserver.request_context import Call
from grange.apiserver.subresources.subresource import Subresource
from grange.apiserver.write_options import WriteOptions

_FENCES = ("uid", "resourceVersion")


def _scaling(call: Call) -> Scaling:
    scaling = call.target.info.scale
    if scaling is None:  # the table of subresources leads here for kinds with copies only
        raise NotFound(f"{call.target.info.plural} cannot be scaled")
    return scaling


def _answer(call: Call, value: bytes, warnings: tuple[str, ...] = ()) -> Response:
    document = scale.shown(_scaling(call), storage.decode(value, call.registry.work))
    return call.answer(codec.encode(document), warnings=warnings, info=scale.SCALE)


async def _get(call: Call) -> Response:
    return _answer(call, call.registry.get(call.place).value)


async def _update(call: Call) -> Response:
    body = call.small_document()
    return await _write(call, lambda _old: body, call.write_options(body), "update")


async def _patch(call: Call) -> Response:
    change, options = await call.prepare(lambda: writes.change_of(call, scale.SCALE))
    return await _write(call, change, options, "patch")


async def _write(call: Call, change: Change, options: WriteOptions, verb: str) -> Response:
    """Change the Scale as it is now, and the object accordingly, in one write."""
    place, scaling = call.place, _scaling(call)
    warnings: list[str] = []
    unchecked = replace(options, duplicates=())  # they are those of the Scale, not of the object

    def scaled(old: Document) -> Document:
        wanted = change(scale.shown(scaling, old))
        meta = metadata.envelope(scale.SCALE, wanted, place.namespace, place.name)
        warnings[:] = conform(scale.SCALE, wanted, options)
        if causes := scale.SCALE.validate(wanted, None):
            raise invalid(scale.SCALE, place.name, causes)
        new = scale.scaled(scaling, old, wanted["spec"]["replicas"])
        fences = {field: meta.get(field) for field in _FENCES}
        return {**new, "metadata": {**old["metadata"], **fences}}

    written = await call.registry.update(place, scaled, unchecked, verb=verb)
    return _answer(call, written.value, (*warnings, *written.warnings))


SCALE = Subresource(
    "scale",
    {"get": _get, "update": _update, "patch": _patch},
    kind=scale.SCALE.kind,
    group=scale.SCALE.group,
    version=scale.SCALE.version,
)
