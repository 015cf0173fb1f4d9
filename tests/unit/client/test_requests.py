"""Requests contain exactly what the API's conventions ask for, and answers are read literally."""

import msgspec
import pytest

from grange.api import http, status
from grange.api.http import Response
from grange.api.kinds import CONFIGMAP, NODE, POD, REPLICATIONCONTROLLER
from grange.api.kinds.configmap import ConfigMap
from grange.api.kinds.pod import Pod
from grange.api.meta import ObjectMeta
from grange.client import requests
from grange.client.requests import LogOptions


def test_paths_follow_group_namespace_and_subresource() -> None:
    assert requests.get(POD, "a", "ns").path == "/api/v1/namespaces/ns/pods/a"
    assert requests.get(NODE, "n1").path == "/api/v1/nodes/n1"
    assert requests.list_page(POD).path == "/api/v1/pods"
    assert (
        requests.update(
            REPLICATIONCONTROLLER,
            {"metadata": {"name": "web", "namespace": "ns"}},
            subresource="status",
        ).path
        == "/apis/grange.dev/v1alpha1/namespaces/ns/replicationcontrollers/web/status"
    )


@pytest.mark.parametrize("name", ["", "a/b", "../secrets/x"])
def test_name_that_would_change_the_path_is_refused(name: str) -> None:
    """A name is data; it must never reach another object's path."""
    with pytest.raises(status.BadRequest):
        requests.get(POD, name, "ns")


def test_namespaced_object_without_namespace_is_refused() -> None:
    with pytest.raises(status.BadRequest, match="namespace"):
        requests.get(POD, "a")
    with pytest.raises(status.BadRequest, match="namespace"):
        requests.create(POD, {"metadata": {"name": "a"}})


def test_list_has_selectors_page_and_version() -> None:
    request = requests.list_page(
        POD, "ns", labels="a=b", fields="spec.nodeName=x", limit=5, cont="t", resource_version="7"
    )
    assert request.query == {
        "labelSelector": "a=b",
        "fieldSelector": "spec.nodeName=x",
        "limit": "5",
        "continue": "t",
        "resourceVersion": "7",
    }


def test_watch_always_asks_for_bookmarks() -> None:
    request = requests.watch(POD, resource_version="7", timeout_s=12.9)
    assert request.query == {
        "resourceVersion": "7",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "12",
    }


def test_create_sets_kind_and_takes_namespace_of_object() -> None:
    """Items of lists carry no kind, and a view made from one must still be a whole object."""
    view = ConfigMap(metadata=ObjectMeta(name="a", namespace="ns"), data={"k": "v"})
    request = requests.create(CONFIGMAP, view)
    assert request.path == "/api/v1/namespaces/ns/configmaps"
    assert msgspec.json.decode(request.body) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "ns"},
        "data": {"k": "v"},
    }


def test_create_leaves_the_callers_document_alone() -> None:
    document = {"metadata": {"name": "n"}}
    requests.create(NODE, document, dry_run=True)
    assert document == {"metadata": {"name": "n"}}


def test_patch_types_have_their_media_types() -> None:
    def media(kind: requests.PatchType) -> str:
        request = requests.patch(POD, "a", "ns", patch={"metadata": {"uid": "u"}}, media=kind)
        return request.headers["content-type"]

    assert media("merge") == http.MERGE_PATCH
    assert media("json") == http.JSON_PATCH
    assert media("strategic") == http.STRATEGIC_MERGE_PATCH


def test_delete_carries_preconditions_and_zero_grace_period() -> None:
    request = requests.delete(POD, "a", "ns", uid="u", grace_period_s=0, propagation="Background")
    assert msgspec.json.decode(request.body) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }


def test_plain_delete_has_no_preconditions() -> None:
    body = msgspec.json.decode(requests.delete(POD, "a", "ns").body)
    assert body == {"kind": "DeleteOptions", "apiVersion": "v1"}


def test_log_options_become_the_apis_parameters() -> None:
    options = LogOptions(
        container="c",
        follow=True,
        previous=True,
        since_seconds=3,
        since_time="2026-01-01T00:00:00Z",
        tail_lines=0,
        timestamps=True,
        limit_bytes=9,
    )
    assert requests.logs(POD, "a", "ns", options).query == {
        "container": "c",
        "follow": "true",
        "previous": "true",
        "sinceSeconds": "3",
        "sinceTime": "2026-01-01T00:00:00Z",
        "tailLines": "0",
        "timestamps": "true",
        "limitBytes": "9",
    }
    assert requests.logs(POD, "a", "ns", LogOptions()).query == {}


@pytest.mark.parametrize("leaf", list(status.BY_REASON.values()))
def test_failure_is_the_error_of_the_answers_reason(leaf: type[status.ApiError]) -> None:
    """What the server raised is what the client raises."""
    sent = leaf("it did not work", kind="pods", name="a")
    body = msgspec.json.encode(sent.status().document())
    error = requests.failure(Response(leaf.code, body))
    assert type(error) is leaf
    assert error.message == "it did not work"
    assert error.details.name == "a"


def test_retry_after_header_fills_a_body_without_it() -> None:
    error = requests.failure(Response(429, b"slow down", headers={"Retry-After": "7"}))
    assert isinstance(error, status.TooManyRequests)
    assert error.details.retry_after_seconds == 7


def test_success_is_no_failure() -> None:
    assert requests.failure(Response(201, b"{}")) is None


def test_unreadable_answer_is_internal_error_naming_the_field() -> None:
    with pytest.raises(status.InternalError, match=r"metadata\.name"):
        requests.decode_object(Pod, b'{"metadata":{"name":3}}', "pod")
    with pytest.raises(status.InternalError):
        requests.decode_document(b"[]", "pod")
    with pytest.raises(status.InternalError):
        requests.decode_list(POD, b"<html>")


def test_list_decodes_items_version_and_next_page() -> None:
    body = (
        b'{"metadata":{"resourceVersion":"9","continue":"t","remainingItemCount":4},'
        b'"items":[{"metadata":{"name":"a"}}]}'
    )
    listing = requests.decode_list(POD, body)
    assert [item.metadata.name for item in listing.items] == ["a"]
    assert (listing.resource_version, listing.next, listing.remaining) == ("9", "t", 4)


def test_list_without_items_is_empty() -> None:
    assert requests.decode_list(POD, b'{"metadata":{},"items":null}').items == []


def test_list_leaves_out_what_does_not_fit_and_reports_it() -> None:
    """One odd object must not blind a controller to all the others."""
    body = (
        b'{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}},'
        b'{"metadata":{"name":"b","namespace":"ns"},"spec":{"nodeName":5}}]}'
    )
    listing = requests.decode_list(POD, body)
    assert [item.metadata.name for item in listing.items] == ["a"]
    assert len(listing.undecodable) == 1
    assert "pods ns/b" in listing.undecodable[0]
    assert "nodeName" in listing.undecodable[0]
