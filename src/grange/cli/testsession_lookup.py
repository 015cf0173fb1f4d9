"""Finds the test sessions that a verb is about, and their pods."""

import click

from grange.api.kinds import POD, TESTSESSION
from grange.api.kinds.testsession import SESSION_LABEL, SESSION_UID_LABEL
from grange.api.meta import Document
from grange.cli import completers
from grange.cli.session import ApiSession

NAME = click.argument("name", shell_complete=completers.of_kind(TESTSESSION))
NAMES = click.argument(
    "names", nargs=-1, required=True, shell_complete=completers.of_kind(TESTSESSION)
)


async def find(opened: ApiSession, word: str) -> Document:
    """The session that ``NAME`` or ``ts/NAME`` means.

    Raises:
        NotFound: there is none.
        click.UsageError: the kind is another one.
    """
    prefix, slash, name = word.rpartition("/")
    if slash and (kind := await opened.kind(prefix)) is not TESTSESSION:
        raise click.UsageError(f"{word}: {kind.kind} is not a TestSession")
    return {"kind": TESTSESSION.kind, **await opened.document(TESTSESSION, name or word)}


async def pods_of(opened: ApiSession, session: Document) -> list[Document]:
    """The pods of all attempts of the session, by name."""
    meta = session["metadata"]
    selector = f"{SESSION_LABEL}={meta['name']},{SESSION_UID_LABEL}={meta['uid']}"
    found = await opened.listed(POD, meta.get("namespace") or "default", selector=selector)
    return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))
