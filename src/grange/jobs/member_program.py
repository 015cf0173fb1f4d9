"""The program of a member whose work is a function: run it, and leave what it returns.

Its text is sent with the job, to where nothing of Grange is installed: it needs Python 3.8 and its
standard library only. The first argument is a document, see ``portable_function.PortableFunction``.

The value is left as the container's termination message, which the pod's status keeps; an error
leaves the end of its traceback there. Kubernetes keeps 4096 bytes of it.
"""

import __future__

import asyncio
import inspect
import json
import linecache
import os
import sys
import traceback
from types import ModuleType
from typing import Any, Callable, Dict

LIMIT_BYTES = 4096
TRACEBACK_CHARS = 2000


def load(work: Dict[str, Any]) -> Callable[..., Any]:
    """The function: its imports and constants first, then its source at the lines it came from."""
    module = sys.modules["grange_member"] = ModuleType("grange_member")
    namespace = module.__dict__
    exec(work["prelude"], namespace)  # noqa: S102  the sender's own program
    file, source = work["file"], work["source"]
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    flags = __future__.annotations.compiler_flag if work["future"] else 0
    exec(compile(source, file, "exec", flags, dont_inherit=True), namespace)  # noqa: S102  as above
    function: Callable[..., Any] = namespace[work["function"]]
    return function


def plain(value: Any) -> Any:
    """What JSON has no word for: numbers and arrays of numpy and torch."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(type(value).__name__)


def encoded(value: Any) -> str:
    """The document that holds a value, or why it is not there."""
    try:
        text = json.dumps({"value": value}, default=plain)
    except (TypeError, ValueError) as error:
        return json.dumps(
            {"unavailable": "the function returned what JSON cannot hold: %s" % error}
        )
    if len(text.encode()) > LIMIT_BYTES:
        text = json.dumps(
            {"unavailable": "the value has %d bytes of at most %d" % (len(text), LIMIT_BYTES)}
        )
    return text


def leave(text: str) -> None:
    """Write the termination message."""
    path = os.environ.get("GRANGE_ROOT", "").rstrip("/") + "/dev/termination-log"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        print("no termination message: %s" % error, file=sys.stderr)


def main(text: str) -> int:
    """Run the function; the exit code."""
    work = json.loads(text)
    try:
        value = load(work)(*work["args"], **work["kwargs"])
        if inspect.isawaitable(value):
            value = asyncio.run(awaited(value))
    except Exception as error:
        trace = error.__traceback__
        lines = traceback.format_exception(type(error), error, trace and trace.tb_next)
        report = "".join(lines)
        sys.stderr.write(report)
        leave(report[-TRACEBACK_CHARS:])
        return 1
    leave(encoded(value))
    return 0


async def awaited(value: Any) -> Any:
    """A coroutine of what the function returned, which need not be one."""
    return await value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
