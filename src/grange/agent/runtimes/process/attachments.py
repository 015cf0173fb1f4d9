"""Who reads along what a program writes. For the shim, so it imports little."""

import os


class Attachments:
    """Copies of a program's output for attached readers.

    A reader that does not keep up is dropped: it must not stop the program, nor its log.
    """

    def __init__(self) -> None:
        self._readers: dict[int, list[int]] = {}

    def add(self, reader: int, descriptors: list[int]) -> None:
        """Let a reader have further output.

        Args:
            reader: its number; one that is there already is replaced.
            descriptors: pipes for standard output and standard error, not blocking; the first is
                for both where there is one only.
        """
        self.remove(reader)
        self._readers[reader] = descriptors

    def remove(self, reader: int) -> None:
        """Drop a reader; nothing happens if it is not there."""
        for descriptor in self._readers.pop(reader, ()):
            os.close(descriptor)

    def feed(self, stream: str, data: bytes) -> list[int]:
        """Copy output to all readers; answers with those that were dropped for being too slow."""
        slow = []
        for reader, descriptors in list(self._readers.items()):
            target = descriptors[-1] if stream == "stderr" else descriptors[0]
            try:
                if os.write(target, data) < len(data):
                    slow.append(reader)
            except BlockingIOError:
                slow.append(reader)
            except OSError:  # it is gone
                self.remove(reader)
        for reader in slow:
            self.remove(reader)
        return slow
