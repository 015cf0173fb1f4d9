"""Amazon's API as moto serves it over HTTP on loopback, with what moto lacks: tokens of launches, and faults."""

import os
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import boto3
from moto import settings
from moto.ec2.models import amis, ec2_backends, instance_types as stock
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.providers import ProviderTools, create_provider
from grange.machines.providers.provider import Provider

REGION, ZONE = "us-west-1", "us-west-1a"
ACCOUNT = "123456789012"
IMAGE = {"id": "ami-785db401"}
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}

FAMILIES = ("c7g.", "g4dn.", "m5.", "t2.", "t3.", "u-")
"""What can be bought is cut to these, since to list all takes seconds."""
for _name in [name for name in stock.INSTANCE_TYPES if not name.startswith(FAMILIES)]:
    del stock.INSTANCE_TYPES[_name]
stock.InstanceTypeBackend.instance_types[:] = [
    kind
    for kind in stock.InstanceTypeBackend.instance_types
    if kind["InstanceType"].startswith(FAMILIES)
]
for _regions in stock.INSTANCE_TYPE_OFFERINGS.values():
    _regions[REGION] = [o for o in _regions[REGION] if o["InstanceType"].startswith(FAMILIES)]
settings.ENABLE_AMI_VALIDATION = settings.EC2_ENABLE_INSTANCE_TYPE_VALIDATION = True
amis.AMIS[:] = [image for image in amis.AMIS if image["ami_id"] in IMAGE.values()]


@dataclass(frozen=True)
class CloudRefusal:
    """An answer of the cloud to one call.

    Attributes:
        code: of the error; empty: the connection is cut.
        message: of the error.
        status: of HTTP.
        done: the call was done nevertheless.
    """

    code: str = ""
    message: str = "no"
    status: int = 400
    done: bool = False


@dataclass
class Cloud:
    """A running server.

    Attributes:
        url: of the server.
        calls: names of the calls that were made, in order.
        orders: parameters of all launches.
        refusals: what the next calls of a name get.
        page_size: launches in a page of a list of instances; 0: the server's.
    """

    url: str = ""
    calls: list[str] = field(default_factory=list)
    orders: list[dict[str, str]] = field(default_factory=list)
    refusals: defaultdict[str, deque[CloudRefusal]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    page_size: int = 0
    bound: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    answers: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def refuse(self, call: str, *refusals: CloudRefusal) -> None:
        """Answer the next calls of this name so, one each."""
        self.refusals[call].extend(refusals)

    def provider(self, cluster: str = "ours", **config: object) -> Provider:
        """A provider that calls this server."""
        tools = ProviderTools(
            cluster, LoopClock(), Stream(1), Logger("test"), {"endpoint": self.url}
        )
        return create_provider("ec2", {"region": REGION, **config}, tools)

    def client(self, service: str = "ec2") -> Any:
        """The vendor's client."""
        return boto3.client(service, region_name=REGION, endpoint_url=self.url)


class _TokensAndFaults:
    """WSGI: between the client and moto."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        target = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")[2]
        query = dict(parse_qsl(body.decode())) if not target else {}
        call = target or query.get("Action", "")
        if call == "DescribeInstances" and self._cloud.page_size:
            body += f"&MaxResults={self._cloud.page_size}".encode()
            environ["CONTENT_LENGTH"] = str(len(body))
        with self._lock:
            self._cloud.calls.append(call)
            waiting = self._cloud.refusals[call]
            refusal = waiting.popleft() if waiting else None
            if call == "RunInstances" and refusal is None:
                refusal, known = self._token(query)
                if known:
                    start("200 OK", [("Content-Type", "text/xml")])
                    return [known]
            elif call == "RunInstances" and refusal is not None and refusal.code:
                self._cloud.bound.setdefault(self._key(query), query)
            if refusal is not None and not refusal.done:
                return self._refuse(environ, start, refusal)
            answer = self._done(environ, body)
            if call == "RunInstances" and answer[0].startswith("200"):
                self._cloud.orders.append(query)
                self._cloud.bound[self._key(query)] = query
                self._cloud.answers[self._key(query)] = answer[2]
        if refusal is not None:
            return self._refuse(environ, start, refusal)
        start(answer[0], answer[1])
        return [answer[2]]

    def _key(self, query: dict[str, str]) -> tuple[str, str]:
        """A token holds for the zone of its subnet."""
        subnets = ec2_backends[ACCOUNT][REGION].subnets
        for zone, there in subnets.items():
            if query.get("SubnetId") in there:
                return query.get("ClientToken", ""), zone
        return query.get("ClientToken", ""), ""

    def _token(self, query: dict[str, str]) -> tuple[CloudRefusal | None, bytes]:
        """What the vendor documents for tokens: a refused call binds its token, too."""
        key = self._key(query)
        if key not in self._cloud.bound:
            return None, b""
        for reservation in ec2_backends[ACCOUNT][REGION].reservations.values():
            for one in reservation.instances:
                if one.client_token == key[0] and one.state == "terminated":
                    return CloudRefusal("IdempotentInstanceTerminated"), b""
        if self._cloud.bound[key] != query:
            return CloudRefusal("IdempotentParameterMismatch"), b""
        return None, self._cloud.answers.get(key, b"")

    def _done(
        self, environ: dict[str, Any], body: bytes
    ) -> tuple[str, list[tuple[str, str]], bytes]:
        import io

        answered: list[Any] = []
        environ["wsgi.input"] = io.BytesIO(body)
        parts = self._moto(environ, lambda status, headers, *_: answered.extend((status, headers)))
        return answered[0], answered[1], b"".join(parts)

    def _refuse(
        self, environ: dict[str, Any], start: Any, refusal: CloudRefusal
    ) -> Iterable[bytes]:
        if not refusal.code:
            environ["werkzeug.socket"].shutdown(2)
            return []
        start(f"{refusal.status} No", [("Content-Type", "text/xml")])
        error = f"<Error><Code>{refusal.code}</Code><Message>{refusal.message}</Message></Error>"
        return [f"<Response><Errors>{error}</Errors><RequestID>1</RequestID></Response>".encode()]


class _Quiet(WSGIRequestHandler):  # type: ignore[misc]  # it is untyped
    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002  of the base class
        """Write nothing."""

    def handle(self) -> None:
        """Serve, though the connection may have been cut on purpose."""
        try:
            super().handle()
        except OSError:
            return


@contextmanager
def cloud_server() -> Iterator[Cloud]:
    """A server with an empty account, and credentials for it in the environment."""
    before = {name: os.environ.get(name) for name in CREDENTIALS}
    os.environ.update(CREDENTIALS)
    cloud = Cloud()
    server = make_server("127.0.0.1", 0, _TokensAndFaults(cloud), True, request_handler=_Quiet)
    cloud.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield cloud
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        for service in ("ec2", "sqs"):
            _empty(service)
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _empty(service: str) -> None:
    from moto.backends import get_backend

    get_backend(service).reset()
