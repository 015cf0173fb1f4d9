"""``httpGet``: an answer with a status of 2xx or 3xx passes."""

import asyncio
import re
import ssl
from collections.abc import Mapping
from functools import cache

from grange.agent.container_runtime import PodRuntime
from grange.agent.probe_answer import Answer, ProbeTarget, close, no_port, port_of, unreachable
from grange.api.kinds.pod import HTTPGetAction, Probe

_HEAD_LIMIT = 16384  # bytes of an HTTP answer that are read
_STATUS_LINE = re.compile(rb"HTTP/\d(?:\.\d)? +([1-9]\d\d)(?:\s|$)")


def asks(probe: Probe) -> bool:
    """Whether the probe sends a request over HTTP."""
    return probe.http_get is not None


async def ask(probe: Probe, target: ProbeTarget, _runtime: PodRuntime, _limit_s: float) -> Answer:
    """Send the request once and read the status line."""
    action = probe.http_get
    if action is None or (number := port_of(action.port, target.container)) is None:
        return no_port(action.port if action is not None else "")
    address = action.host or target.address
    tls = _tls() if action.scheme.upper() == "HTTPS" else None
    try:
        reader, writer = await asyncio.open_connection(address, number, ssl=tls, limit=_HEAD_LIMIT)
        try:
            writer.write(request(action, address, number))
            line = await reader.readline()
        finally:
            close(writer)
    except (OSError, ValueError) as error:
        return unreachable(address, number, error)
    return http_answer(line)


@cache
def _tls() -> ssl.SSLContext:
    """As in Kubernetes, the certificate is not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def request(action: HTTPGetAction, address: str, port: int) -> bytes:
    """The request of an HTTP probe; given headers replace the usual ones."""
    given: Mapping[str, str] = {
        item.get("name", ""): item.get("value", "") for item in action.http_headers
    }
    headers = {"Host": f"{address}:{port}", "User-Agent": "grange-probe", "Accept": "*/*"}
    names = {name.lower() for name in given}
    headers = {key: value for key, value in headers.items() if key.lower() not in names}
    path = action.path if action.path.startswith("/") else "/" + action.path
    lines = [f"GET {path} HTTP/1.1"]
    lines += [f"{key}: {value}" for key, value in {**headers, **given}.items()]
    # No value of a manifest can add a header line.
    safe = [line.replace("\r", " ").replace("\n", " ") for line in lines]
    return "\r\n".join([*safe, "Connection: close", "", ""]).encode()


def http_answer(line: bytes) -> Answer:
    """The answer of a status line: 2xx and 3xx are success."""
    found = _STATUS_LINE.match(line)
    if found is None:
        return Answer(ok=False, message="the answer is not HTTP")
    code = int(found.group(1))
    return Answer(200 <= code < 400, f"HTTP status {code}", code)
