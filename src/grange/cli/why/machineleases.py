"""Explains a MachineLease: its place in the queue, and who holds the machines it waits for."""

from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.cli.session import ApiSession
from grange.cli.why import testsessions
from grange.cli.why.answer import WhyAnswer


async def ask(opened: ApiSession, kind: AnyKind, name: str) -> WhyAnswer:
    """Its phase, position, pools with their holders, and the leases before it."""
    document: Document = await opened.document(kind, name)
    _, *lines = await testsessions.lease_lines(opened, name, opened.within(kind))
    return WhyAnswer(document, lines)
