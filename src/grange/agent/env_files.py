"""Files of variables that one container of a pod writes for another (``fileKeyRef``); pure.

The form is Kubernetes': lines ``NAME='value'``, empty lines, and comments after ``#``. A value is taken
as it is and may have several lines.
"""

import re
from collections.abc import Iterable

from grange.agent.errors import NotCreatableError
from grange.api.kinds.pod import Container, Pod

SIZE_MAX = 1024 * 1024
_START = re.compile(r"[ \t]*([^\s='#][^\s=']*)='")
_REST = re.compile(r"[ \t]*(#.*)?")


class EnvFileError(ValueError):
    """A file has another form; the message has the line, and no content of it."""


def parse(content: bytes) -> dict[str, str]:
    """The variables of a file.

    Raises:
        EnvFileError: it has another form.
    """
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError as error:
        raise EnvFileError("it is not text") from error
    found = {}
    position = 0
    while position < len(lines):
        line = lines[position]
        first = position + 1
        position += 1
        if _REST.fullmatch(line):
            continue
        start = _START.match(line)
        if start is None:
            raise EnvFileError(f"line {first} is not NAME='value'")
        value = line[start.end() :]
        while "'" not in value:
            if position == len(lines):
                raise EnvFileError(f"the value that begins in line {first} has no end")
            value = f"{value}\n{lines[position]}"
            position += 1
        value, _, rest = value.partition("'")
        if not _REST.fullmatch(rest):
            raise EnvFileError(f"line {position} has more after its value")
        if "\0" in value:
            raise EnvFileError(f"the value that begins in line {first} holds a NUL byte")
        found[start.group(1)] = value
    return found


def of_container(pod: Pod, container: Container) -> Iterable[tuple[str, str]]:
    """Volume and path of each file that a container's environment refers to.

    Raises:
        NotCreatableError: the volume is not one that containers write to and that ends with the pod.
    """
    writable = {volume.name for volume in pod.spec.volumes if volume.empty_dir is not None}
    for item in container.env:
        reference = item.value_from.file_key_ref if item.value_from is not None else None
        if reference is not None:
            volume, path = str(reference.get("volumeName", "")), str(reference.get("path", ""))
            if volume not in writable:
                raise NotCreatableError(
                    f'container "{container.name}": env {item.name}: volume "{volume}" is no emptyDir of '
                    "the pod, and fileKeyRef reads from those only"
                )
            yield volume, path
