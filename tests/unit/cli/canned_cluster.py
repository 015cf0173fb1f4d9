"""A transport with fixed answers, for what a whole verb prints and sends."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec
from click.testing import CliRunner, Result

from grange.api import codec
from grange.api.http import Request, Response
from grange.api.meta import Document
from grange.app.main import VERBS
from grange.base.clock import Clock, LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.environment import Environment
from grange.cli.main import group
from grange.client.access import Access

PROGRAM = group(VERBS, "0")
CONFIGURATION = """
contexts: [{name: demo, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "https://c"}}]
current-context: demo
"""


class CannedCluster:
    """Answers each path with its document, or with a Status as it is refused; what is not there is empty or 404.

    A write answers with its own body.

    Args:
        answers: by path, for GET and for ``METHOD path``.

    Attributes:
        writes: method and path of each.
        headers: of each answer.
    """

    def __init__(self, answers: Mapping[str, Document]) -> None:
        self._answers = answers
        self.writes: list[str] = []
        self.headers: dict[str, str] = {}

    async def send(self, request: Request) -> Response:
        """The canned answer."""
        if request.method != "GET":
            self.writes.append(f"{request.method} {request.path}")
        found = self._answers.get(f"{request.method} {request.path}")
        if found is None and request.method == "GET":
            found = self._answers.get(request.path)
        if found is None and request.method in ("POST", "PUT"):
            return Response(201, request.body, headers=self.headers)
        if found is None:
            found = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
        code = int(found.get("code") or 200) if found.get("kind") == "Status" else 200
        return Response(code, codec.encode(found), headers=self.headers)

    async def close(self) -> None:
        """Nothing to release."""

    def run(self, directory: Path, rng: Stream, log: Logger, *words: str) -> Result:
        """Run the program with these words.

        Args:
            directory: for its kubeconfig.
            rng: its random stream.
            log: its logger.
            words: of the command line.
        """
        config = directory / "canned.kubeconfig"
        config.write_text(CONFIGURATION)

        def connect(_access: Access, _clock: Clock) -> "CannedCluster":
            return self

        env = Environment(
            clock=LoopClock(),
            rng=rng,
            log=log,
            kubeconfig=(config,),
            interactive=False,
            color=False,
            width=80,
            run=asyncio.run,
            connect=connect,
        )
        return CliRunner().invoke(PROGRAM, list(words), obj=env, catch_exceptions=False)


def listed(*items: Document) -> Document:
    """A list of objects."""
    return {"items": list(items), "metadata": {"resourceVersion": "1"}}


def document(result: Result) -> Document:
    """What a verb has printed with ``-o json``."""
    found: Document = msgspec.json.decode(result.stdout)
    return found
