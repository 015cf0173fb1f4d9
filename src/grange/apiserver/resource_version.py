"""Resource versions: opaque to clients, the store's revisions to us."""

from grange.api.status import BadRequest, Cause, Timeout
from grange.store.interface import Store

_DIGITS_MAX = 19


def parse(text: str) -> int:
    """The revision in a resourceVersion.

    Raises:
        BadRequest: it is not one that this server gave out.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise BadRequest(f'resourceVersion "{text}" is not one of this server')
    return int(text)


def check_seen(store: Store, revision: int) -> None:
    """Make sure that a caller is not shown a state older than one that it has seen.

    Raises:
        Timeout: the store is behind, as after a restore; the cause is the one by which Go clients
            know to list without a version.
    """
    if revision > store.revision:
        raise Timeout(
            f"Too large resource version: {revision}, current: {store.revision}",
            causes=[Cause("ResourceVersionTooLarge", "Too large resource version")],
            retry_after_s=1,
        )
