"""The OpenAPI documents, made when first asked for and kept as bytes until the kinds change."""

import hashlib
from collections.abc import Mapping

from grange.api import codec, schema
from grange.api.http import JSON, Response
from grange.api.meta import Document
from grange.api.scheme import Scheme
from grange.api.status import NotAcceptable, NotFound
from grange.apiserver import openapi_protobuf
from grange.apiserver.negotiation import accepts_json, parse_accept

_V2, _V3 = "/openapi/v2", "/openapi/v3"
_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_V2_ANSWERED = _V2_PROTOBUF.replace("@", ".")  # the name asked for is no valid content type
_AS_PROTOBUF = f"{_V2} as protobuf"


class OpenAPI:
    """``/openapi/v2``, ``/openapi/v3`` and what is below.

    Args:
        scheme: the kinds.
    """

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme
        self._kinds: tuple[str, ...] = ()
        self._bodies: dict[str, tuple[bytes, str]] = {}  # path → body and its hash

    def serve(self, path: str, headers: Mapping[str, str]) -> Response | None:
        """The answer for an OpenAPI path; None for any other path.

        Raises:
            NotAcceptable: the caller takes no JSON.
            NotFound: no such group and version.
        """
        if path not in {_V2, _V3} and not path.startswith(f"{_V3}/"):
            return None
        accept, media = headers.get("accept", ""), JSON
        if not accepts_json(accept):
            if path != _V2 or all(one.type != _V2_PROTOBUF for one in parse_accept(accept)):
                raise NotAcceptable("OpenAPI is served as application/json only")
            path, media = _AS_PROTOBUF, _V2_ANSWERED
        body, digest = self._body(path)
        etag = f'"{digest}"'
        if headers.get("if-none-match") == etag:
            return Response(304, headers={"ETag": etag})
        return Response(200, body, media, headers={"ETag": etag})

    def _body(self, path: str) -> tuple[bytes, str]:
        kinds = tuple(f"{info.api_version}/{info.plural}" for info in self._scheme)
        if kinds != self._kinds:
            self._kinds = kinds
            self._bodies.clear()
        found = self._bodies.get(path)
        if found is None:
            if path == _AS_PROTOBUF:
                body = openapi_protobuf.encode(self._document(_V2))
            else:
                body = codec.encode(self._document(path))
            found = self._bodies[path] = (body, hashlib.sha256(body).hexdigest()[:32])
        return found

    def _document(self, path: str) -> Document:
        if path == _V2:
            return schema.openapi_v2(self._scheme)
        if path == _V3:
            return self._index()
        roots = self._roots()
        root = path.removeprefix(f"{_V3}/")
        if root not in roots:
            raise NotFound(f"no OpenAPI of {root}; see {_V3}")
        return schema.openapi_v3(self._scheme, roots[root])

    def _roots(self) -> dict[str, str]:
        """``api/v1`` and ``apis/<group>/<version>`` to the group version."""
        return {info.root.strip("/"): info.api_version for info in self._scheme}

    def _index(self) -> Document:
        paths = {}
        for root in self._roots():
            digest = self._body(f"{_V3}/{root}")[1]
            # The hash makes the URL change with the content, so clients cache it for good.
            paths[root] = {"serverRelativeURL": f"{_V3}/{root}?hash={digest}"}
        return {"paths": paths}
