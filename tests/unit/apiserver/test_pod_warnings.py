"""Fields of pods without effect are warned about when they are written, and listed on the pod."""

from typing import Any

from tests.unit.apiserver.server import PODS, Server, pod

CONTROLLERS = "/apis/grange.dev/v1alpha1/namespaces/default/replicationcontrollers"


def with_limits(**spec: Any) -> dict[str, Any]:
    document = pod(**spec)
    document["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}}
    return document


async def test_create_warns_of_fields_without_effect(server: Server) -> None:
    answer = await server.create(PODS, with_limits(hostUsers=False))
    assert answer.code == 201
    assert answer.headers["Warning"].count("299 - ") == 2
    where = "spec.containers[0].resources.limits: needs a node with grange.dev/limits=cgroup"
    assert where in answer.headers["Warning"]
    assert "spec.hostUsers: " in answer.headers["Warning"]
    [condition] = answer.body["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("grange.dev/UnsupportedFields", "True")
    assert condition["message"] == "no effect: spec.hostUsers"  # its agent adds what the node lacks


async def test_pod_for_nodes_with_the_feature_is_not_warned_about(server: Server) -> None:
    answer = await server.create(PODS, with_limits(nodeSelector={"grange.dev/limits": "cgroup"}))
    assert answer.code == 201
    assert "Warning" not in answer.headers


async def test_image_without_command_is_warned_about_once(server: Server) -> None:
    containers = [{"name": "main", "image": "nginx"}, {"name": "own", "command": ["x"]}]
    answer = await server.create(PODS, pod(containers=containers))
    assert answer.code == 201
    warning = answer.headers["Warning"]
    assert warning.count("299 - ") == 1
    assert "spec.containers[0].command: needed: the pod runs as processes of its node" in warning
    assert "name a program of the machine in command" in warning
    path = f"{PODS}/{answer.body['metadata']['name']}"
    assert "Warning" not in (await server.patch(path, {"metadata": {"labels": {"a": "b"}}})).headers
    assert "Warning" not in (await server.get(path)).headers


async def test_template_without_command_is_warned_about_once(server: Server) -> None:
    template = {"spec": {"containers": [{"name": "main", "image": "nginx"}]}}
    document = {"metadata": {"name": "web"}, "spec": {"replicas": 1, "template": template}}
    answer = await server.create(CONTROLLERS, document)
    assert answer.code == 201
    assert "spec.template.spec.containers[0].command: needed" in answer.headers["Warning"]
    scaled = await server.patch(f"{CONTROLLERS}/web", {"spec": {"replicas": 2}})
    assert "Warning" not in scaled.headers


async def test_resource_that_is_not_served_shows_a_command(server: Server) -> None:
    answer = await server.create("/apis/apps/v1/namespaces/default/deployments", {})
    assert answer.code == 404
    assert "nodes here run programs of the machine, not images" in answer.message
    assert '"command":["PROGRAM"]' in answer.message
    assert "IMAGE" not in answer.message


async def test_update_warns_when_the_spec_changes(server: Server) -> None:
    made = await server.made(PODS, with_limits())
    path = f"{PODS}/{made['metadata']['name']}"
    assert "Warning" not in (await server.patch(path, {"metadata": {"labels": {"a": "b"}}})).headers
    changed = await server.patch(path, {"spec": {"activeDeadlineSeconds": 5}})
    assert "resources.limits" in changed.headers["Warning"]


async def test_pod_without_such_fields_has_no_warning(server: Server) -> None:
    answer = await server.create(PODS, pod())
    assert "Warning" not in answer.headers
    assert "conditions" not in answer.body["status"]


async def test_template_of_a_controller_is_warned_about(server: Server) -> None:
    template = {"spec": with_limits()["spec"]}
    document = {"metadata": {"name": "web"}, "spec": {"replicas": 1, "template": template}}
    answer = await server.create(CONTROLLERS, document)
    assert answer.code == 201
    assert "spec.template.spec.containers[0].resources.limits" in answer.headers["Warning"]
    scaled = await server.patch(f"{CONTROLLERS}/web", {"spec": {"replicas": 2}})
    assert "Warning" not in scaled.headers
