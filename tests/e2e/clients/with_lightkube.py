"""lightkube against a control plane: ``with_lightkube.py KUBECONFIG POD_JSON``."""

import json
import sys
from typing import Any

from lightkube import ApiError, Client, KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.core_v1 import ServicePort, ServiceSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Pod, Service
from lightkube.types import PatchType

Controller = create_namespaced_resource(
    "grange.dev", "v1alpha1", "ReplicationController", "replicationcontrollers"
)


def main(kubeconfig: str, pod: dict[str, Any]) -> None:
    client = Client(config=KubeConfig.from_file(kubeconfig), namespace="default")
    name = pod["metadata"]["name"]
    client.create(Pod.from_dict(pod))
    for _, seen in client.watch(Pod, fields={"metadata.name": name}, server_timeout=120):
        if seen.status.phase == "Running":
            break
    assert next(iter(client.log(name, follow=True))) == "hello\n"
    client.patch(Pod, name, {"metadata": {"labels": {"more": "yes"}}})
    assert [item.metadata.name for item in client.list(Pod, labels={"more": "yes"})] == [name]
    gone = client.delete(Pod, name, grace_period=0)
    assert gone is None or gone.metadata.name == name

    settings = client.create(ConfigMap(metadata=ObjectMeta(name="lk"), data={"a": "1"}))
    settings.data["b"] = "2"
    assert client.replace(settings).data == {"a": "1", "b": "2"}
    client.patch(ConfigMap, "lk", {"data": {"a": None}}, patch_type=PatchType.MERGE)
    assert client.get(ConfigMap, "lk").data == {"b": "2"}
    try:
        client.create(ConfigMap(metadata=ObjectMeta(name="lk")))
    except ApiError as error:
        assert error.status.reason == "AlreadyExists", error.status
    else:
        raise AssertionError("a duplicate was accepted")
    client.delete(ConfigMap, "lk")

    spec = ServiceSpec(ports=[ServicePort(port=80)], selector={"app": "lk"})
    service = client.create(Service(metadata=ObjectMeta(name="lk"), spec=spec))
    assert service.spec.clusterIP.startswith("127."), service.spec
    client.delete(Service, "lk")

    template = {"spec": pod["spec"]}
    client.create(
        Controller(metadata=ObjectMeta(name="lk"), spec={"replicas": 0, "template": template})
    )
    assert client.get(Controller, "lk").spec["replicas"] == 0
    client.delete(Controller, "lk")


main(sys.argv[1], json.loads(sys.argv[2]))
print("ok")
