"""The kinds as OpenAPI documents, for clients that look before they write."""

from grange.api.meta import Document
from grange.api.scheme import Scheme


def openapi_v2(scheme: Scheme) -> Document:
    return {}


def openapi_v3(scheme: Scheme, group_version: str) -> Document:
    return {}


def openapi_v3_index(scheme: Scheme) -> Document:
    return {}
