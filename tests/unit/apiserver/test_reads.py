"""Reads give out the stored bytes; selection, paging and other forms decode only what they must."""

import base64
import json
from typing import Any

import pytest
from tests.unit.apiserver.server import (
    CONFIGMAPS,
    NODES,
    PARTIAL,
    PODS,
    TABLE,
    Server,
    configmap,
    nothing_unreadable,
    pod,
)

from grange.api.kinds import BUILT_IN, POD
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.apiserver import selection, storage
from grange.base.log import Logger


async def filled(server: Server, names: str = "abcde") -> None:
    for name in names:
        asked = configmap(name)
        asked["metadata"]["labels"] = {"odd": str("abcde".index(name) % 2)}
        await server.made(CONFIGMAPS, asked)


# --- get ---------------------------------------------------------------------------------------


async def test_get_answers_with_the_stored_bytes_and_decodes_nothing(server: Server) -> None:
    await server.made(PODS, pod())
    before = server.work.decodes
    answer = await server.get(f"{PODS}/web")
    entry = server.store.get("/core/pods/default/web")
    assert entry is not None
    assert answer.response.body is entry.value
    assert server.work.decodes == before


async def test_get_of_what_is_not_there_is_not_found(server: Server) -> None:
    answer = await server.get(f"{PODS}/web")
    assert (answer.code, answer.message) == (404, 'pods "web" not found')
    assert answer.body["details"] == {"name": "web", "kind": "pods"}


async def test_get_as_a_table_has_columns_and_one_row(server: Server) -> None:
    await server.made(PODS, pod())
    table = (await server.get(f"{PODS}/web", accept=TABLE)).body
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]][:3] == [
        "Name",
        "Ready",
        "Status",
    ]
    assert [row["cells"][0] for row in table["rows"]] == ["web"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


async def test_get_of_metadata_only_leaves_out_the_rest(server: Server) -> None:
    made = await server.made(PODS, pod())
    partial = (await server.get(f"{PODS}/web", accept=PARTIAL)).body
    assert partial == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made["metadata"],
    }


async def test_form_that_is_not_served_is_not_acceptable(server: Server) -> None:
    answer = await server.get(PODS, accept="application/vnd.kubernetes.protobuf")
    assert (answer.code, answer.reason) == (406, "NotAcceptable")


# --- list --------------------------------------------------------------------------------------


async def test_list_joins_the_stored_bytes_and_decodes_nothing(server: Server) -> None:
    await filled(server)
    before = (server.work.decodes, server.work.evaluations)
    answer = await server.get(CONFIGMAPS)
    assert (answer.body["kind"], answer.names) == ("ConfigMapList", list("abcde"))
    assert answer.version == str(server.store.revision)
    assert (server.work.decodes, server.work.evaluations) == before


async def test_list_of_all_namespaces_is_sorted_by_namespace_and_name(server: Server) -> None:
    await filled(server, "ba")
    await server.made("/api/v1/namespaces/kube-system/configmaps", configmap("c"))
    answer = await server.get("/api/v1/configmaps")
    assert answer.names == ["a", "b", "c"]


async def test_list_separates_similar_kinds_and_namespaces(server: Server) -> None:
    await server.made("/api/v1/namespaces", {"metadata": {"name": "default2"}})
    await server.made("/api/v1/namespaces/default2/configmaps", configmap("other"))
    await server.made(CONFIGMAPS, configmap("mine"))
    assert (await server.get(CONFIGMAPS)).names == ["mine"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"labelSelector": "odd=1"}, ["b", "d"]),
        ({"labelSelector": "odd!=1,!x"}, ["a", "c", "e"]),
        ({"fieldSelector": "metadata.name=c"}, ["c"]),
        ({"fieldSelector": "metadata.name!=c", "labelSelector": "odd=0"}, ["a", "e"]),
        ({"fieldSelector": "metadata.namespace=default,metadata.name=a"}, ["a"]),
        ({"fieldSelector": "metadata.namespace=other"}, []),
    ],
)
async def test_list_selects(server: Server, query: dict[str, str], names: list[str]) -> None:
    await filled(server)
    before = server.work.decodes
    assert (await server.get(CONFIGMAPS, **query)).names == names
    assert server.work.decodes == before


async def test_list_selects_by_the_fields_that_a_kind_declares(server: Server) -> None:
    for name in ("a", "b"):
        await server.made(PODS, pod(name))
    await server.bind("b", "node-7")
    assert (await server.get(PODS, fieldSelector="spec.nodeName=node-7")).names == ["b"]
    assert (await server.get(PODS, fieldSelector="spec.nodeName=")).names == ["a"]
    assert (await server.get(PODS, fieldSelector="status.phase=Pending")).names == ["a", "b"]


@pytest.mark.parametrize(
    ("query", "reported"),
    [
        ({"labelSelector": "a=b=c"}, "label selector"),
        ({"fieldSelector": "spec.nodeName"}, "field selector"),
        ({"fieldSelector": "spec.image=x"}, "pods can be selected by metadata.name"),
        ({"limit": "many"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"limit": "9223372036854775808"}, "limit must not be greater than"),
        ({"resourceVersion": "new"}, "resourceVersion"),
        ({"continue": "%%%"}, "continue"),
        ({"continue": "e30="}, "continue"),
    ],
)
async def test_query_that_makes_no_sense_is_refused(
    server: Server, query: dict[str, str], reported: str
) -> None:
    answer = await server.get(PODS, **query)
    assert answer.code == 400
    assert reported in answer.message


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"resourceVersion": "1", "resourceVersionMatch": "About"}, "resourceVersionMatch"),
        ({"resourceVersionMatch": "Exact"}, "resourceVersionMatch"),
        ({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, "resourceVersionMatch"),
        ({"sendInitialEvents": "true"}, "sendInitialEvents"),
    ],
)
async def test_parameters_that_do_not_go_together_are_invalid(
    server: Server, query: dict[str, str], field: str
) -> None:
    answer = await server.get(PODS, **query)
    assert (answer.code, answer.fields) == (422, [field])


async def test_pages_show_one_state_whatever_is_written_meanwhile(server: Server) -> None:
    await filled(server)
    first = await server.get(CONFIGMAPS, limit="2")
    assert first.names == ["a", "b"]
    assert first.body["metadata"]["remainingItemCount"] == 3
    await server.delete(f"{CONFIGMAPS}/c")
    await server.made(CONFIGMAPS, configmap("bb"))
    token = first.body["metadata"]["continue"]
    second = await server.get(CONFIGMAPS, limit="2", **{"continue": token})
    assert (second.names, second.version) == (["c", "d"], first.version)
    token = second.body["metadata"]["continue"]
    last = await server.get(CONFIGMAPS, limit="2", **{"continue": token})
    assert last.names == ["e"]
    assert "continue" not in last.body["metadata"]


async def test_pages_of_a_selection_are_full_and_miss_nothing(server: Server) -> None:
    await filled(server)
    found: list[str] = []
    query = {"limit": "2", "labelSelector": "odd=0"}
    while True:
        page = await server.get(CONFIGMAPS, **query)
        found += page.names
        if not (token := page.body["metadata"].get("continue")):
            break
        assert len(page.names) == 2
        query["continue"] = token
    assert found == ["a", "c", "e"]


async def test_page_of_a_state_that_is_no_longer_kept_is_expired(server: Server) -> None:
    await filled(server)
    first = await server.get(CONFIGMAPS, limit="2")
    await server.made(PODS, pod())
    await server.store.compact(server.store.revision)
    token = first.body["metadata"]["continue"]
    answer = await server.get(CONFIGMAPS, limit="2", **{"continue": token})
    assert (answer.code, answer.reason) == (410, "Expired")
    assert "list again" in answer.message


async def test_token_of_another_list_is_refused(server: Server) -> None:
    await filled(server)
    token = (await server.get(CONFIGMAPS, limit="2")).body["metadata"]["continue"]
    assert (await server.get(PODS, limit="2", **{"continue": token})).code == 400


async def test_list_can_show_an_exact_revision(server: Server) -> None:
    await filled(server, "a")
    then = str(server.store.revision)
    await filled(server, "b")
    exact = await server.get(CONFIGMAPS, resourceVersion=then, resourceVersionMatch="Exact")
    assert (exact.names, exact.version) == (["a"], then)
    newest = await server.get(CONFIGMAPS, resourceVersion=then)
    assert newest.names == ["a", "b"]


async def test_list_newer_than_the_store_is_retriable(server: Server) -> None:
    """After a restore of an older copy a client may know more than the server does."""
    answer = await server.get(CONFIGMAPS, resourceVersion="999")
    assert (answer.code, answer.headers["Retry-After"]) == (504, "1")
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize("query", [{"resourceVersionMatch": "Exact"}, {"limit": "1"}])
async def test_exact_state_of_the_future_asks_to_come_back(
    server: Server, query: dict[str, str]
) -> None:
    assert (await server.get(CONFIGMAPS, resourceVersion="999", **query)).code == 504


async def test_token_of_a_store_that_was_set_back_is_expired(server: Server) -> None:
    text = json.dumps({"revision": 999, "after": "/core/configmaps/default/a"})
    token = base64.urlsafe_b64encode(text.encode()).decode()
    answer = await server.get(CONFIGMAPS, limit="2", **{"continue": token})
    assert (answer.code, answer.reason) == (410, "Expired")


async def test_one_of_many_is_found_in_few_steps(server: Server) -> None:
    """A page of one, with a selector, must not ask the store once for each object."""
    for number in range(40):
        await server.made(CONFIGMAPS, configmap(f"c-{number:02}"))
    await server.patch(f"{CONFIGMAPS}/c-33", {"metadata": {"labels": {"a": "b"}}})
    steps, listing = [], server.store.list

    async def counted(*positional: Any, **named: Any) -> Any:
        steps.append(positional)
        return await listing(*positional, **named)

    server.store.list = counted  # type: ignore[method-assign]  # looks on, changes nothing
    page = await server.get(CONFIGMAPS, limit="1", labelSelector="a=b")
    assert (page.names, len(steps)) == (["c-33"], 1)


async def test_list_as_a_table_has_a_row_each(server: Server) -> None:
    await filled(server)
    table = (await server.get(CONFIGMAPS, accept=TABLE, includeObject="None")).body
    assert [row["cells"][0] for row in table["rows"]] == list("abcde")
    assert table["metadata"]["resourceVersion"] == str(server.store.revision)
    assert (await server.get(CONFIGMAPS, accept=TABLE, includeObject="All")).code == 400


async def test_list_of_metadata_only(server: Server) -> None:
    await filled(server, "a")
    body = (await server.get(CONFIGMAPS, accept=PARTIAL)).body
    assert body["kind"] == "PartialObjectMetadataList"
    assert set(body["items"][0]) == {"kind", "apiVersion", "metadata"}


# --- selection on bytes ------------------------------------------------------------------------


@pytest.mark.parametrize("info", BUILT_IN, ids=lambda info: info.plural)
def test_partial_reading_sees_what_whole_reading_sees(info: AnyKind, log: Logger) -> None:
    """The readers of a kind are run on a part of the document; they must not miss the rest."""
    document: Document = {"metadata": {"name": "x", "labels": {"a": "b"}}}
    for path in info.fields:
        *parents, leaf = path.split(".")
        level = document
        for part in parents:
            level = level.setdefault(part, {})
        level.setdefault(leaf, {"component": "c"} if path == "source" else f"value of {path}")
    key = storage.key(info, "ns", "x")
    facts = selection.Reader(info, storage.Work(), nothing_unreadable(log)).read(
        key, json.dumps(document).encode()
    )
    assert facts.labels == {"a": "b"}
    assert facts.fields["metadata.name"] == "x"
    for path, reader in info.fields.items():
        assert facts.fields[path] == reader(document)


@pytest.mark.parametrize(
    "body", [b'{"metadata":{}}', b'{"metadata":{"labels":null},"spec":null,"status":{}}', b"{}"]
)
def test_partial_reading_takes_what_is_missing_as_empty(body: bytes, log: Logger) -> None:
    facts = selection.Reader(POD, storage.Work(), nothing_unreadable(log)).read(
        "/core/pods/ns/x", body
    )
    assert facts.labels == {}
    assert facts.fields["spec.nodeName"] == ""


async def test_cluster_scoped_objects_are_listed_by_name_alone(server: Server) -> None:
    await server.made(NODES, {"metadata": {"name": "n"}})
    assert (await server.get(NODES, fieldSelector="metadata.name=n")).names == ["n"]
