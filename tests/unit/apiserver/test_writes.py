"""Every kind is written by one pipeline: what it refuses, what it fills in, what it leaves alone."""

import pytest
from tests.unit.apiserver.server import CONFIGMAPS, NODES, PODS, Server, configmap, pod

from grange.api import http
from grange.api.kinds import CONFIGMAP
from grange.api.meta import Document
from grange.api.validation.podspec import PROGRAMS
from grange.apiserver import storage
from grange.store.interface import Entry

GRCS = "/apis/grange.dev/v1alpha1/namespaces/default/replicationcontrollers"


def controller(replicas: int = 1) -> Document:
    return {
        "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "template": {"spec": pod()["spec"]}},
    }


# --- create ------------------------------------------------------------------------------------


async def test_create_sets_identity_defaults_and_revision(server: Server) -> None:
    made = await server.made(PODS, pod())

    meta = made["metadata"]
    assert (made["apiVersion"], made["kind"]) == ("v1", "Pod")
    assert meta["resourceVersion"] == str(server.store.revision)
    assert meta["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert (meta["namespace"], meta["generation"], len(meta["uid"])) == ("default", 1, 36)
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert made["status"]["phase"] == "Pending"


async def test_create_ignores_what_only_the_server_sets(server: Server) -> None:
    asked = pod()
    asked["metadata"] |= {
        "uid": "mine",
        "creationTimestamp": "1999-01-01T00:00:00Z",
        "deletionTimestamp": "1999-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 1,
        "generation": 7,
        "selfLink": "/x",
        "managedFields": [],
    }
    asked["status"] = {"phase": "Running"}

    made = await server.made(PODS, asked)

    assert made["metadata"]["uid"] != "mine"
    assert made["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert made["metadata"]["generation"] == 1
    assert not {"deletionTimestamp", "selfLink", "managedFields"} & set(made["metadata"])
    assert made["status"]["phase"] == "Pending"


async def test_node_is_created_with_its_status(server: Server) -> None:
    made = await server.made(
        NODES, {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}}
    )
    assert made["status"]["capacity"] == {"cpu": "4"}


async def test_create_of_a_taken_name_is_refused_and_changes_nothing(server: Server) -> None:
    first = await server.made(PODS, pod())
    answer = await server.create(PODS, pod(restartPolicy="Never"))
    assert (answer.code, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'pods "web" already exists'
    assert answer.body["details"] == {"name": "web", "kind": "pods"}
    assert (await server.get(f"{PODS}/web")).body == first


async def test_generated_names_are_unique_and_carry_their_prefix(server: Server) -> None:
    asked = configmap()
    asked["metadata"] = {"generateName": "x-"}
    names = {(await server.made(CONFIGMAPS, asked))["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("x-") and len(name) == 7 for name in names)


async def test_generated_name_of_a_long_prefix_stays_a_label(server: Server) -> None:
    made = await server.made(CONFIGMAPS, {"metadata": {"generateName": "x" * 200}})
    assert len(made["metadata"]["name"]) == 63


async def test_object_without_a_name_is_refused_by_field(server: Server) -> None:
    answer = await server.create(CONFIGMAPS, {"metadata": {}})
    assert (answer.code, answer.fields) == (422, ["metadata.name"])


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"{", "truncated"),
        (b'{"metadata":\n {"name": }}', "line 2"),
        (b"", "empty"),
        (b"[]", "object"),
        (b'{"metadata": 5}', "metadata must be an object"),
        (b'{"metadata": {"name": 5}}', "metadata.name must be a string"),
        (b'{"kind": "ConfigMap", "metadata": {"name": "x"}}', "v1 ConfigMap, but this path takes"),
        (b'{"apiVersion": "v2", "metadata": {"name": "x"}}', "this path takes v1 Pod"),
        (b'{"metadata": {"name": "x", "namespace": "other"}}', "does not match the namespace"),
        (b'{"metadata": {"name": "x", "resourceVersion": "5"}}', "should not be set"),
    ],
)
async def test_body_that_is_no_such_object_is_a_bad_request(
    server: Server, body: bytes, shown: str
) -> None:
    answer = await server.create(PODS, body)
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert shown in answer.message


async def test_yaml_is_read_by_its_content_type(server: Server) -> None:
    body = b"metadata:\n  name: x\ndata:\n  a: b\n"
    assert (await server.ask("POST", CONFIGMAPS, body, media=http.YAML)).code == 201
    answer = await server.ask("POST", CONFIGMAPS, b"a: [", media=http.YAML)
    assert answer.code == 400
    assert "line" in answer.message


async def test_faults_are_all_named_with_their_fields(server: Server) -> None:
    asked = pod()
    asked["spec"]["containers"] = [{"name": "UPPER", "command": []}]
    asked["spec"]["restartPolicy"] = "Sometimes"
    answer = await server.create(PODS, asked)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.message.startswith('Pod "web" is invalid: ')
    assert "spec.restartPolicy" in answer.fields


async def test_wrong_type_is_invalid_and_names_the_field(server: Server) -> None:
    answer = await server.create(PODS, pod(terminationGracePeriodSeconds="soon"))
    assert (answer.code, answer.fields) == (422, ["spec.terminationGracePeriodSeconds"])


async def test_missing_command_is_explained(server: Server) -> None:
    asked = pod()
    del asked["spec"]["containers"][0]["command"]
    answer = await server.create(PODS, asked)
    assert answer.fields == ["spec.containers[0].command"]
    assert "an image that has one" in answer.message


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        (
            {"strategy": "Lively", "placement": "Anywhere", "replicas": -1},
            ["spec.replicas", "spec.strategy", "spec.placement"],
        ),
        (
            {"replicas": "three", "rollout": {"maxSurge": "lots", "progressDeadlineSeconds": -1}},
            ["spec.replicas", "spec.rollout.progressDeadlineSeconds", "spec.rollout.maxSurge"],
        ),
        (
            {"replicas": -1, "template": {"spec": {}}},
            ["spec.replicas", "spec.template.spec.containers"],
        ),
    ],
)
async def test_faults_of_one_sort_hide_none_of_another(
    spec: dict[str, object], fields: list[str], server: Server
) -> None:
    """A user who corrects one fault should not be reported the next one only then."""
    asked = {"metadata": {"name": "web"}, "spec": {**controller()["spec"], **spec}}
    answer = await server.create(GRCS, asked)
    assert answer.code == 422
    assert answer.fields == fields


@pytest.mark.parametrize(
    ("part", "messages"),
    [
        ({"replicas": None}, "spec.replicas: Required value: set how many pods are wanted"),
        ({"template": None}, "spec.template: Required value: set the pod to run"),
        (
            {"template": {"spec": {}}},
            "spec.template.spec.containers: Required value: a pod needs at least one container",
        ),
    ],
)
async def test_what_is_missing_is_reported_with_what_the_rules_advise(
    part: Document, messages: str, server: Server
) -> None:
    """The schema finds it first, and knows no more than that it is missing."""
    spec = {**controller()["spec"], **part}
    answer = await server.create(GRCS, {"metadata": {"name": "web"}, "spec": spec})
    assert (answer.code, len(answer.fields)) == (422, 1)
    assert messages in answer.message


async def test_rules_that_fail_on_a_misfit_document_are_left_out(
    server: Server,
) -> None:
    asked = pod()
    asked["spec"] |= {"containers": [{"name": 7, "image": "a", "ports": "many"}], "volumes": {}}
    answer = await server.create(PODS, asked)
    assert answer.code == 422
    assert {"spec.containers[0].name", "spec.volumes"} <= {*answer.fields}


async def test_unknown_field_is_refused_when_strict(server: Server) -> None:
    answer = await server.create(PODS, pod(nodeNam="x"), fieldValidation="Strict")
    assert (answer.code, answer.fields) == (400, ["spec.nodeNam"])
    assert 'unknown field "spec.nodeNam"' in answer.message


@pytest.mark.parametrize("query", [{}, {"fieldValidation": "Warn"}])
async def test_unknown_field_is_dropped_with_a_warning(
    server: Server, query: dict[str, str]
) -> None:
    answer = await server.create(PODS, pod(nodeNam="x"), **query)
    assert answer.code == 201
    messages = 'unknown field \\"spec.nodeNam\\"; did you mean \\"nodeName\\"?'
    assert answer.headers["Warning"] == f'299 - "{messages}"'
    assert "nodeNam" not in answer.body["spec"]


async def test_status_patch_of_a_configmap_is_dropped_with_warning(server: Server) -> None:
    """Operators keep a status on what they watch; on a kind without one it must not fail."""
    await server.made(CONFIGMAPS, configmap())
    change = {"status": {"seen": "yes"}, "metadata": {"annotations": {"a": "b"}}}
    answer = await server.patch(f"{CONFIGMAPS}/settings", change)
    assert answer.code == 200, answer.text
    assert answer.headers["Warning"] == '299 - "unknown field \\"status\\""'
    assert answer.body["metadata"]["annotations"] == {"a": "b"}
    assert "status" not in answer.body


async def test_warnings_are_bounded(server: Server) -> None:
    """Clients refuse headers above 8 KiB."""
    asked = pod()
    asked["spec"] |= {f"x{number}" * 100: 1 for number in range(40)}
    answer = await server.create(PODS, asked)
    assert answer.code == 201, answer.text
    assert len(answer.headers["Warning"]) < 6_000
    assert answer.headers["Warning"].count("299 - ") < 40


async def test_unknown_field_is_dropped_silently_when_asked(server: Server) -> None:
    answer = await server.create(PODS, pod(nodeNam="x"), fieldValidation="Ignore")
    assert (answer.code, dict(answer.headers)) == (201, {})
    assert "nodeNam" not in answer.body["spec"]


TWICE = b'{"metadata": {"name": "settings"}, "data": {"a": "1", "b": "2", "a": "3"}}'


async def test_duplicate_field_is_refused_when_strict(server: Server) -> None:
    answer = await server.create(CONFIGMAPS, TWICE, fieldValidation="Strict")
    assert (answer.code, answer.fields) == (400, ["data.a"])
    assert 'strict decoding error: duplicate field "data.a"' in answer.message
    assert (await server.get(f"{CONFIGMAPS}/settings")).code == 404


async def test_duplicate_field_is_warned_about(server: Server) -> None:
    answer = await server.create(CONFIGMAPS, TWICE)
    assert (answer.code, answer.body["data"]) == (201, {"a": "3", "b": "2"})
    assert answer.headers["Warning"] == '299 - "duplicate field \\"data.a\\""'
    quiet = await server.update(f"{CONFIGMAPS}/settings", TWICE, fieldValidation="Ignore")
    assert (quiet.code, dict(quiet.headers)) == (200, {})


@pytest.mark.parametrize(
    ("media", "patch"),
    [
        (http.MERGE_PATCH, b'{"data": {"c": "1", "c": "2"}}'),
        (http.STRATEGIC_MERGE_PATCH, b'{"data": {"c": "1", "c": "2"}}'),
        (http.JSON_PATCH, b'[{"op": "add", "path": "/data/c", "value": "1", "value": "2"}]'),
    ],
)
async def test_duplicate_field_of_a_patch_is_found(
    server: Server, media: str, patch: bytes
) -> None:
    await server.made(CONFIGMAPS, configmap(a="b"))
    path = f"{CONFIGMAPS}/settings"
    refused = await server.patch(path, patch, media=media, fieldValidation="Strict")
    assert (refused.code, len(refused.fields)) == (400, 1)
    warned = await server.patch(path, patch, media=media)
    assert warned.body["data"] == {"a": "b", "c": "2"}
    assert "duplicate field" in warned.headers["Warning"]


async def test_warning_cannot_break_out_of_its_header(server: Server) -> None:
    asked = pod()
    asked["spec"]["a\r\nX: y\u20ac"] = 1
    answer = await server.create(PODS, asked, fieldValidation="Warn")
    assert answer.code == 201
    assert all(" " <= char <= "~" for char in answer.headers["Warning"])


@pytest.mark.parametrize("query", [{"fieldValidation": "Loose"}, {"dryRun": "Some"}])
async def test_unknown_option_is_refused(server: Server, query: dict[str, str]) -> None:
    assert (await server.create(PODS, pod(), **query)).code == 400


async def test_dry_run_does_everything_but_write(server: Server) -> None:
    before = server.store.revision
    answer = await server.create(PODS, pod(), dryRun="All")
    assert answer.code == 201
    assert answer.body["spec"]["restartPolicy"] == "Always"
    assert answer.version == ""
    assert server.store.revision == before
    await server.made(PODS, pod())
    assert (await server.create(PODS, pod(), dryRun="All")).reason == "AlreadyExists"


async def test_object_that_would_not_fit_on_a_cluster_is_refused(server: Server) -> None:
    asked = pod()
    asked["spec"]["containers"][0]["args"] = ["x" * 1_600_000]
    answer = await server.create(PODS, asked)
    assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")
    assert str(storage.OBJECT_MAX_BYTES) in answer.message


# --- update ------------------------------------------------------------------------------------


async def test_update_replaces_and_keeps_what_the_server_set(server: Server) -> None:
    made = await server.made(CONFIGMAPS, configmap(a="1"))
    answer = await server.update(f"{CONFIGMAPS}/settings", configmap(b="2"))
    assert answer.code == 200
    assert answer.body["data"] == {"b": "2"}
    for field in ("uid", "creationTimestamp", "namespace", "name"):
        assert answer.body["metadata"][field] == made["metadata"][field]
    assert int(answer.version) > int(made["metadata"]["resourceVersion"])


async def test_update_with_a_stale_version_conflicts(server: Server) -> None:
    made = await server.made(CONFIGMAPS, configmap(a="1"))
    await server.update(f"{CONFIGMAPS}/settings", configmap(a="2"))
    made["data"] = {"a": "3"}
    answer = await server.update(f"{CONFIGMAPS}/settings", made)
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert "has been modified" in answer.message
    assert (await server.get(f"{CONFIGMAPS}/settings")).body["data"] == {"a": "2"}


async def test_update_of_another_incarnation_conflicts(server: Server) -> None:
    made = await server.made(CONFIGMAPS, configmap())
    del made["metadata"]["resourceVersion"]
    made["metadata"]["uid"] = "another"
    answer = await server.update(f"{CONFIGMAPS}/settings", made)
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert "UID" in answer.message


async def test_update_of_what_is_not_there_is_not_found(server: Server) -> None:
    answer = await server.update(f"{GRCS}/web", controller())
    assert (answer.code, answer.reason) == (404, "NotFound")
    assert answer.message == 'replicationcontrollers.grange.dev "web" not found'


async def test_update_must_name_the_object_of_its_path(server: Server) -> None:
    await server.made(CONFIGMAPS, configmap())
    answer = await server.update(f"{CONFIGMAPS}/settings", configmap("other"))
    assert answer.code == 400
    assert "does not match the name on the URL" in answer.message


async def test_update_that_changes_nothing_writes_nothing(server: Server) -> None:
    made = await server.made(GRCS, controller())
    before = server.store.revision
    bare = await server.update(f"{GRCS}/web", controller())
    full = await server.update(f"{GRCS}/web", made)
    assert bare.body == full.body == made
    assert server.store.revision == before


class Slow:
    """A store whose disk lags: nothing after a point is acknowledged for reads."""

    def __init__(self, server: Server) -> None:
        self._store = server.store
        self.revision = 0

    def latest(self, key: str) -> Entry | None:
        return self._store.latest(key)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


async def test_unchanged_object_not_yet_on_disk_is_written_again(server: Server) -> None:
    """Otherwise the answer would promise a state that a crash can still take back."""
    await server.made(CONFIGMAPS, configmap())
    before = server.store.revision
    server.application.registry.store = Slow(server)  # type: ignore[assignment]  # a part of one
    answer = await server.update(f"{CONFIGMAPS}/settings", configmap())
    assert int(answer.version) == before + 1


async def test_generation_counts_changes_of_what_is_desired(server: Server) -> None:
    await server.made(GRCS, controller(1))
    path = f"{GRCS}/web"
    labelled = await server.patch(path, {"metadata": {"labels": {"a": "b"}}})
    assert labelled.body["metadata"]["generation"] == 1
    scaled = await server.patch(path, {"spec": {"replicas": 2}})
    assert scaled.body["metadata"]["generation"] == 2
    reported = await server.patch(f"{path}/status", {"status": {"replicas": 2}})
    assert reported.body["metadata"]["generation"] == 2


async def test_status_changes_only_through_its_subresource(
    server: Server,
) -> None:
    made = await server.made(GRCS, controller(1))
    made["status"] = {"replicas": 9}
    made["spec"]["replicas"] = 3
    main = await server.update(f"{GRCS}/web", made)
    assert (main.body["spec"]["replicas"], main.body["status"]["replicas"]) == (3, 0)
    body = main.body
    body["status"] = {"replicas": 3}
    body["spec"]["replicas"] = 5
    body["metadata"]["labels"] = {"a": "b"}
    status = await server.update(f"{GRCS}/web/status", body)
    assert (status.body["spec"]["replicas"], status.body["status"]["replicas"]) == (3, 3)
    assert "labels" not in status.body["metadata"]
    assert (await server.get(f"{GRCS}/web/status")).body == status.body


async def test_fields_that_no_view_knows_survive_a_patch(server: Server) -> None:
    asked = pod(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a"]}])
    await server.made(PODS, asked)
    await server.patch(f"{PODS}/web", {"metadata": {"labels": {"a": "b"}}})
    kept = (await server.get(f"{PODS}/web")).body
    assert kept["spec"]["hostAliases"] == asked["spec"]["hostAliases"]


async def test_last_finalizer_taken_from_a_deleted_object_removes_it(server: Server) -> None:
    asked = configmap()
    asked["metadata"]["finalizers"] = ["example.com/hold"]
    await server.made(CONFIGMAPS, asked)
    path = f"{CONFIGMAPS}/settings"
    marked = await server.delete(path)
    assert marked.body["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"
    more = await server.patch(path, {"metadata": {"finalizers": ["example.com/hold", "x.y/z"]}})
    assert more.code == 422
    gone = await server.patch(path, {"metadata": {"finalizers": None}})
    assert gone.code == 200
    assert (await server.get(path)).code == 404


# --- patch -------------------------------------------------------------------------------------


async def test_three_patch_types_change_an_object(server: Server) -> None:
    await server.made(CONFIGMAPS, configmap(a="1", b="2"))
    path = f"{CONFIGMAPS}/settings"
    merged = await server.patch(path, {"data": {"a": None, "c": "3"}}, http.MERGE_PATCH)
    assert merged.body["data"] == {"b": "2", "c": "3"}
    operations = [{"op": "replace", "path": "/data/b", "value": "9"}]
    assert (await server.patch(path, operations, http.JSON_PATCH)).body["data"]["b"] == "9"
    strategic = {"data": {"d": "4"}}
    answer = await server.patch(path, strategic, http.STRATEGIC_MERGE_PATCH)
    assert answer.body["data"] == {"b": "9", "c": "3", "d": "4"}


async def test_strategic_patch_merges_lists_by_their_keys(server: Server) -> None:
    await server.made(GRCS, controller())
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}}
    answer = await server.patch(f"{GRCS}/web", patch, http.STRATEGIC_MERGE_PATCH)
    container = answer.body["spec"]["template"]["spec"]["containers"][0]
    assert (container["image"], container["command"]) == ("x", ["/bin/app"])


@pytest.mark.parametrize(
    ("media", "shown"),
    [
        ("application/json", "unknown format"),
        ("", "unknown format"),
        (http.APPLY_PATCH, "client-side apply"),
    ],
)
async def test_patch_of_another_type_is_refused(server: Server, media: str, shown: str) -> None:
    await server.made(CONFIGMAPS, configmap())
    answer = await server.patch(f"{CONFIGMAPS}/settings", {}, media)
    assert (answer.code, answer.reason) == (415, "UnsupportedMediaType")
    assert shown in answer.message


async def test_patch_is_fenced_by_the_uid_and_version_that_it_carries(server: Server) -> None:
    made = await server.made(CONFIGMAPS, configmap())
    path, meta = f"{CONFIGMAPS}/settings", made["metadata"]
    assert (await server.patch(path, {"metadata": {"uid": "other"}})).reason == "Conflict"
    assert (await server.patch(path, {"metadata": {"resourceVersion": "1"}})).reason == "Conflict"
    fenced = {"metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}}
    assert (await server.patch(path, {**fenced, "data": {"a": "b"}})).code == 200


async def test_patch_that_is_no_patch_is_refused(server: Server) -> None:
    await server.made(CONFIGMAPS, configmap())
    path = f"{CONFIGMAPS}/settings"
    assert (await server.patch(path, b"[", http.MERGE_PATCH)).code == 400
    assert (await server.patch(path, {}, http.JSON_PATCH)).code == 400
    assert (await server.patch(path, {"metadata": None})).code == 200
    assert (await server.patch(path, {"data": {"a": 5}})).fields == ["data[a]"]


async def test_patch_in_dry_run_shows_the_outcome_only(server: Server) -> None:
    await server.made(CONFIGMAPS, configmap())
    path, before = f"{CONFIGMAPS}/settings", server.store.revision
    answer = await server.patch(path, {"data": {"a": "b"}}, dryRun="All")
    assert answer.body["data"] == {"a": "b"}
    assert server.store.revision == before


# --- work --------------------------------------------------------------------------------------


async def test_write_decodes_once_and_encodes_once(
    server: Server,
) -> None:
    before = (server.work.decodes, server.work.encodes)
    await server.made(PODS, pod())
    assert (server.work.decodes - before[0], server.work.encodes - before[1]) == (1, 1)


async def test_pods_of_a_template_have_their_containers_judged_once(server: Server) -> None:
    """Also those of the next server in this process: what is right does not depend on who asks."""
    containers = [{"name": "of-a-template", "command": ["serve"], "ports": [{"containerPort": 80}]}]
    before = PROGRAMS.looks
    for number in range(10):
        spec = {"containers": containers, "nodeName": f"node-{number}"}
        await server.made(PODS, pod(f"web-{number}", **spec))
    assert PROGRAMS.looks - before == 1
    wrong = [{**containers[0], "ports": [{"containerPort": 80_000}]}]
    for _ in range(2):
        refused = await server.create(PODS, pod("wrong", containers=wrong))
        assert refused.fields == ["spec.containers[0].ports[0].containerPort"]
    assert PROGRAMS.looks - before == 3


async def test_a_patch_decodes_the_object_once_and_encodes_it_once(server: Server) -> None:
    await server.made(PODS, pod())
    before = (server.work.decodes, server.work.encodes)
    await server.patch(f"{PODS}/web", {"metadata": {"labels": {"a": "b"}}})
    assert (server.work.decodes - before[0], server.work.encodes - before[1]) == (1, 1)


def test_revision_is_spliced_without_decoding() -> None:
    document = configmap(note='"resourceVersion":"7"')
    value = storage.encode(CONFIGMAP, document, storage.Work())
    for revision in (1, 12, 123_456_789):
        body = value(revision)
        assert storage.at_revision(CONFIGMAP, body, 5) == value(5)
        read = storage.decode(body, storage.Work())
        assert read["metadata"] == {"resourceVersion": str(revision), "name": "settings"}
        assert read["data"] == document["data"]
