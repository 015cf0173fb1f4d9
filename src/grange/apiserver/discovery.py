"""What the server serves, for discovery by clients: groups, versions and resources, plain and aggregated."""

from collections.abc import Mapping

import grange
from grange.api import codec
from grange.api.http import JSON, Response
from grange.api.meta import Document
from grange.api.scheme import AnyKind, Scheme
from grange.api.status import NotFound
from grange.apiserver import metrics_api, reviews, subresources
from grange.apiserver.negotiation import parse_accept
from grange.apiserver.request_info import CUSTOM_RESOURCE_DEFINITIONS
from grange.apiserver.subresources.subresource import Subresource

_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_AGGREGATED = ("v2", "v2beta1")
# Clients compare this with their own version; the schemas are those of this Kubernetes minor
# (scripts/make_schema.py).
_MAJOR, _MINOR = "1", "36"


def version() -> Document:
    """The body of ``/version``."""
    return {
        "major": _MAJOR,
        "minor": _MINOR,
        "gitVersion": f"v{_MAJOR}.{_MINOR}.0+grange.{grange.__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "CPython",
        "platform": "linux/amd64",
    }


def serve(path: str, headers: Mapping[str, str], scheme: Scheme) -> Response | None:
    """The answer for a discovery path; None for any other path.

    Raises:
        NotFound: the group or version is not served.
    """
    if path == CUSTOM_RESOURCE_DEFINITIONS:
        return _json(_no_definitions())
    parts = path.strip("/").split("/")
    match parts:
        case ["api" | "apis" as root]:
            aggregated = _aggregated_version(headers.get("accept", ""))
            if aggregated:
                return _aggregated(root, aggregated, scheme)
            return _json(_core_versions() if root == "api" else _group_list(scheme))
        case ["api", "v1"]:
            return _json(_resource_list("", "v1", scheme))
        case ["apis", group]:
            return _json(_group(group, scheme))
        case ["apis", group, wanted]:
            return _json(_resource_list(group, wanted, scheme))
        case ["version"]:
            return _json(version())
    return None


def _no_definitions() -> Document:
    return {
        "kind": "CustomResourceDefinitionList",
        "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"resourceVersion": "1"},
        "items": [],
    }


def _json(document: Document) -> Response:
    return Response(200, codec.encode(document))


def _served(scheme: Scheme) -> list[AnyKind]:
    """The kinds that are stored, and those that are only asked."""
    return [*scheme, *reviews.KINDS, *metrics_api.KINDS]


def _verbs(info: AnyKind) -> list[str]:
    if info in metrics_api.KINDS:
        return list(metrics_api.VERBS)
    return list(reviews.VERBS if info in reviews.KINDS else _VERBS)


def _kinds(scheme: Scheme, group: str, wanted: str = "") -> list[AnyKind]:
    return [
        info for info in _served(scheme) if info.group == group and wanted in {"", info.version}
    ]


def _groups(scheme: Scheme) -> dict[str, list[str]]:
    """Groups but the core one, each with its versions, in the order of the scheme."""
    groups: dict[str, list[str]] = {}
    for info in _served(scheme):
        if info.group:
            versions = groups.setdefault(info.group, [])
            if info.version not in versions:
                versions.append(info.version)
    return groups


def _core_versions() -> Document:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _group_list(scheme: Scheme) -> Document:
    groups = [_group_body(group, versions) for group, versions in _groups(scheme).items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _group_body(group: str, versions: list[str]) -> Document:
    listed = [{"groupVersion": f"{group}/{item}", "version": item} for item in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def _group(group: str, scheme: Scheme) -> Document:
    versions = _groups(scheme).get(group)
    if versions is None:
        raise NotFound(f"the server serves no API group {group}; see /apis for what it serves")
    return {"kind": "APIGroup", "apiVersion": "v1", **_group_body(group, versions)}


def _resource_list(group: str, wanted: str, scheme: Scheme) -> Document:
    kinds = _kinds(scheme, group, wanted)
    if not kinds:
        raise NotFound(f"the server serves no API {group}/{wanted}; see /apis for what it serves")
    resources: list[Document] = []
    for info in kinds:
        main: Document = {
            "name": info.plural,
            "singularName": info.singular,
            "namespaced": info.namespaced,
            "kind": info.kind,
            "verbs": _verbs(info),
        }
        if info.short_names:
            main["shortNames"] = list(info.short_names)
        if info.categories:
            main["categories"] = list(info.categories)
        resources.append(main)
        resources += [_subresource(info, part) for part in subresources.of(info)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": kinds[0].api_version,
        "resources": resources,
    }


def _subresource(info: AnyKind, part: Subresource) -> Document:
    body: Document = {
        "name": f"{info.plural}/{part.name}",
        "singularName": "",
        "namespaced": info.namespaced,
        "kind": part.kind or info.kind,
        "verbs": sorted(part.verbs),
    }
    if part.group:
        body |= {"group": part.group, "version": part.version}
    return body


def _aggregated_version(accept: str) -> str:
    """The version of aggregated discovery that the caller prefers; empty for none."""
    for media in parse_accept(accept):
        if media.type == JSON and media.get("as") == "APIGroupDiscoveryList":
            if media.get("g") == "apidiscovery.k8s.io" and media.get("v") in _AGGREGATED:
                return media.get("v")
        elif media.type in {JSON, "*/*"} and not media.get("as"):
            return ""
    return ""


def _aggregated(root: str, shape: str, scheme: Scheme) -> Response:
    groups = {"": ["v1"]} if root == "api" else _groups(scheme)
    items = [
        {
            "metadata": {"name": group, "creationTimestamp": None} if group else {},
            "versions": [
                {
                    "version": item,
                    "freshness": "Current",
                    "resources": [_aggregated_kind(info) for info in _kinds(scheme, group, item)],
                }
                for item in versions
            ],
        }
        for group, versions in groups.items()
    ]
    body: Document = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{shape}",
        "metadata": {},
        "items": items,
    }
    media = f"application/json;g=apidiscovery.k8s.io;v={shape};as=APIGroupDiscoveryList"
    return Response(200, codec.encode(body), media)


def _aggregated_kind(info: AnyKind) -> Document:
    kind = {"group": info.group, "version": info.version, "kind": info.kind}
    body: Document = {
        "resource": info.plural,
        "responseKind": kind,
        "scope": "Namespaced" if info.namespaced else "Cluster",
        "singularResource": info.singular,
        "verbs": _verbs(info),
    }
    if info.short_names:
        body["shortNames"] = list(info.short_names)
    if info.categories:
        body["categories"] = list(info.categories)
    parts = [
        {
            "subresource": part.name,
            "responseKind": {"group": part.group, "version": part.version, "kind": part.kind}
            if part.kind
            else kind,
            "verbs": sorted(part.verbs),
        }
        for part in subresources.of(info)
    ]
    if parts:
        body["subresources"] = parts
    return body
