"""Objects that a verb has changed: a line for each, or with ``-o`` the objects themselves."""

from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.cli import terminal
from grange.cli.printers import documents
from grange.cli.refused_objects import RefusedObjects


class Results:
    """Prints lines at once; with a format it collects objects and prints them together.

    Args:
        output: the value of ``-o``.

    Attributes:
        wants_objects: a format is given, so that full objects are needed.
        refusals: the objects that were refused; the verb goes on with the others.
    """

    def __init__(self, output: str) -> None:
        self._output = output
        self._found: list[tuple[AnyKind, Document]] = []
        self.wants_objects = bool(output)
        self.refusals = RefusedObjects()

    def add(self, kind: AnyKind, document: Document, line: str) -> None:
        """Report one object.

        Args:
            kind: its kind.
            document: the object as the server returned it.
            line: what is printed where no format is given.
        """
        if self.wants_objects:
            typed = {"apiVersion": kind.api_version, "kind": kind.kind}
            self._found.append((kind, {**typed, **document}))
        else:
            terminal.echo(line)

    def end(self) -> int:
        """Print what was collected: one object as it is, several as a List; the exit code.

        Where all objects were refused there is nothing to print.
        """
        if self.wants_objects and (self._found or not self.refusals.count):
            terminal.write(documents.render(self._output, self._found, single=True))
        return self.refusals.code
