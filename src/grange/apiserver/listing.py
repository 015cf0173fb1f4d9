"""Reading lists: selection, paging and the revision that the caller asks for."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import BadRequest, Expired
from grange.apiserver import resource_version, selection, storage, write_options
from grange.apiserver.selection import Reader, Selection
from grange.base.clock import Clock
from grange.store.errors import Compacted, FutureRevision
from grange.store.interface import Entry, Page, Store

_SELECTING_PAGE = 500


class _Token(msgspec.Struct, frozen=True):
    """The content of a continue token: the state that is listed, and the last key that was given."""

    revision: int
    after: str


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What a list asks for.

    Attributes:
        limit: at most so many objects; 0 is all.
        revision: the state to show; 0 is the newest.
        at_least: the caller has seen this revision; an older state must not be shown.
        after: only keys greater than this one.
    """

    limit: int = 0
    revision: int = 0
    at_least: int = 0
    after: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of objects.

    Attributes:
        entries: the objects.
        meta: the list's metadata: resourceVersion, continue, remainingItemCount.
    """

    entries: list[Entry]
    meta: Document


def list_options(query: Mapping[str, str], prefix: str) -> ListOptions:
    """The options in a query.

    Raises:
        BadRequest: a parameter is malformed.
        Invalid: a parameter does not go with another.
    """
    limit = write_options.integer(query, "limit")
    write_options.check_list_options(query, watch=False)
    asked = query.get("resourceVersion") or "0"
    match = query.get("resourceVersionMatch") or ""
    revision = resource_version.parse(asked)
    if token := query.get("continue"):
        if revision:
            raise BadRequest("resourceVersion does not go with continue")
        resumed = _read_token(token, prefix)
        return ListOptions(limit=limit, revision=resumed.revision, after=resumed.after)
    # With a limit and no match Kubernetes shows the very revision; without a limit any newer one.
    if revision and (match == "Exact" or (limit and not match)):
        return ListOptions(limit=limit, revision=revision)
    return ListOptions(limit=limit, at_least=revision)


def _read_token(token: str, prefix: str) -> _Token:
    try:
        resumed = msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Token)
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise BadRequest("the continue token is not one of this server; list again") from error
    if not resumed.after.startswith(prefix) or resumed.revision < 1:
        raise BadRequest("the continue token belongs to another list; list again")
    return resumed


def _token(revision: int, after: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(_Token(revision, after))).decode()


async def read_list(
    store: Store,
    info: AnyKind,
    namespace: str,
    chosen: Selection,
    asked: ListOptions,
    reader: Reader,
    clock: Clock,
) -> Listed:
    """A page of the objects that are in the selection; others are served while it is searched for.

    Objects that cannot be read are left out.

    Raises:
        Expired: the revision, or that of the continue token, is no longer kept.
        Timeout: the caller has seen a revision that this server has not.
    """
    if not asked.after:
        resource_version.check_seen(store, max(asked.at_least, asked.revision))
    narrow = selection.prefix(info, namespace, chosen)
    # Few may be in the selection: looking at many at once finds them in few steps.
    size = asked.limit if chosen.empty else max(asked.limit, _SELECTING_PAGE)
    found: list[Entry] = []
    after, revision, remaining = asked.after, asked.revision, 0
    while True:
        page = await _page(store, narrow, revision, after, size if asked.limit else 0)
        revision, remaining = page.revision, page.remaining
        entries = reader.unreadable.readable(page.entries)
        if chosen.empty:
            found += entries
        else:
            size_at_once = chosen.at_once
            for at in range(0, len(entries), size_at_once):
                if at:
                    await clock.sleep(0)
                found += [
                    entry
                    for entry in entries[at : at + size_at_once]
                    if reader.selects(chosen, entry)
                ]
        if not remaining or len(found) >= asked.limit:
            break
        after = page.entries[-1].key
    meta: Document = {"resourceVersion": str(revision)}
    if asked.limit and len(found) > asked.limit:
        # The last page gave more than was left to give: what is cut off comes with the next one.
        del found[asked.limit :]
        meta["continue"] = _token(revision, found[-1].key)
    elif remaining:
        meta["continue"] = _token(revision, page.entries[-1].key)
        if chosen.empty:
            meta["remainingItemCount"] = remaining
    return Listed(found, meta)


async def _page(store: Store, prefix: str, revision: int, after: str, limit: int) -> Page:
    with storage.translated():
        try:
            return await store.list(prefix, revision=revision, after=after, limit=limit)
        except (Compacted, FutureRevision) as error:
            what = "continue token" if after else "requested revision"
            raise Expired(
                f"the {what} is not of a state that is kept: {error}; list again"
            ) from error
