"""The session service for components: barriers, topics and artifacts; the standard library is enough.

As a module, or as a program (also from a copy of this file, in any image that has Python)::

    python -m grange.evidence.session_client barrier warm 4
    python -m grange.evidence.session_client publish ready "port 8080"
    python -m grange.evidence.session_client subscribe ready --count 3
    python -m grange.evidence.session_client put report.json

The address, the token and the authority are in the environment of every component. Calls are repeated
while the service is away, and a call that is repeated changes nothing.
"""

import argparse
import http.client
import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

_POLL_S = 25
_SOCKET_S = 60
_RETRY_S = 0.5


class SessionClientError(Exception):
    """A call failed; the message has the service's reason."""


class SessionClient:
    """Calls the session service.

    Args:
        url, token, ca_pem, component: by default from the environment.
        patience_s: how long a call is repeated while the service cannot be reached.
    """

    def __init__(
        self,
        url: str = "",
        token: str = "",
        ca_pem: str = "",
        component: str = "",
        *,
        patience_s: float = 30.0,
    ) -> None:
        self._url = url or os.environ.get("GRANGE_SESSION_URL", "")
        self._token = token or os.environ.get("GRANGE_SESSION_TOKEN", "")
        self._component = component or os.environ.get("GRANGE_SESSION_COMPONENT", "")
        self._patience_s = patience_s
        if not self._url or not self._token:
            raise SessionClientError(
                "GRANGE_SESSION_URL or GRANGE_SESSION_TOKEN is not set: this session has no session "
                "service"
            )
        authority = ca_pem or os.environ.get("GRANGE_SESSION_CA", "")
        context = ssl.create_default_context(cadata=authority or None)
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def barrier(self, name: str, count: int, timeout_s: float | None = None) -> None:
        """Wait until ``count`` components are at the barrier.

        Raises:
            SessionClientError: they were not in time, or the call is refused.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = _POLL_S if until is None else max(0, min(_POLL_S, int(until - time.monotonic())))
            query = {"count": count, "component": self._component, "timeout": left}
            state = self._call("POST", f"barriers/{_quoted(name)}", query)
            if state["open"]:
                return
            if until is not None and time.monotonic() >= until:
                raise SessionClientError(
                    f"barrier {name}: {state['arrived']} of {count} components arrived in "
                    f"{timeout_s:g} s"
                )
            if left == 0:
                time.sleep(_RETRY_S)

    def publish(self, topic: str, text: str) -> int:
        """Append to a topic; its offset there."""
        query = {"component": self._component, "id": uuid.uuid4().hex}
        answer = self._call("POST", f"topics/{_quoted(topic)}", query, text.encode())
        return int(answer["offset"])

    def subscribe(self, topic: str, offset: int = 0) -> Iterator[str]:
        """The entries of a topic from an offset on, as they come; without an end."""
        while True:
            query = {"offset": offset, "timeout": _POLL_S}
            answer = self._call("GET", f"topics/{_quoted(topic)}", query)
            yield from answer["entries"]
            offset = int(answer["next"])

    def put(self, file: Path, name: str = "") -> None:
        """Upload a file as an artifact.

        Args:
            file: which one.
            name: of the artifact, relative; by default the file's.
        """
        path = "/".join(_quoted(part) for part in (name or file.name).split("/"))
        where = f"artifacts/{_quoted(self._component)}/{path}"
        try:
            size = file.stat().st_size
            self._call("POST", where, {"size": size})  # what is too large is not sent at all
            self._call("PUT", where, {}, file, {"Content-Length": str(size)})
        except OSError as error:
            raise SessionClientError(f"cannot read {file}: {error.strerror or error}") from error

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        body: bytes | Path | None = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        target = f"{self._url}/{path}?{urllib.parse.urlencode(query)}"
        headers = {"Authorization": f"Bearer {self._token}", **(headers or {})}
        until = time.monotonic() + self._patience_s
        while True:
            opened: IO[bytes] | None = body.open("rb") if isinstance(body, Path) else None
            data = opened if opened is not None else body
            request = urllib.request.Request(target, data, headers, method=method)  # type: ignore[arg-type]  # bytes or a file
            try:
                with self._opener.open(request, timeout=_SOCKET_S) as response:
                    answer: dict[str, Any] = json.loads(response.read() or b"{}")
                    return answer
            except urllib.error.HTTPError as error:
                reason = error.read(4096).decode(errors="replace").strip()
                if error.code not in (429, 500, 502, 503, 504) or time.monotonic() >= until:
                    raise SessionClientError(f"{path}: {error.code}: {reason}") from error
            except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
                if time.monotonic() >= until:
                    raise SessionClientError(f"{path}: the service is away: {error}") from error
            finally:
                if opened is not None:
                    opened.close()
            time.sleep(_RETRY_S)


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def main(words: list[str] | None = None) -> int:
    """The program; the exit code."""
    parser = argparse.ArgumentParser(prog="session_client", description=(__doc__ or "")[:100])
    verbs = parser.add_subparsers(dest="verb", required=True)
    barrier = verbs.add_parser("barrier", help="wait until COUNT components are here")
    barrier.add_argument("name")
    barrier.add_argument("count", type=int)
    barrier.add_argument("--timeout", type=float, default=None, help="seconds")
    publish = verbs.add_parser("publish", help="append to a topic")
    publish.add_argument("topic")
    publish.add_argument("text")
    subscribe = verbs.add_parser("subscribe", help="print the entries of a topic as they come")
    subscribe.add_argument("topic")
    subscribe.add_argument("--count", type=int, default=0, help="end after so many")
    put = verbs.add_parser("put", help="upload a file as an artifact")
    put.add_argument("file", type=Path)
    put.add_argument("--name", default="", help="of the artifact")
    given = parser.parse_args(words)
    try:
        client = SessionClient()
        if given.verb == "barrier":
            client.barrier(given.name, given.count, given.timeout)
        elif given.verb == "publish":
            client.publish(given.topic, given.text)
        elif given.verb == "put":
            client.put(given.file, given.name)
        else:
            for number, entry in enumerate(client.subscribe(given.topic), 1):
                print(entry, flush=True)
                if number == given.count:
                    break
    except SessionClientError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
