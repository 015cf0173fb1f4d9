"""The official Python client against a control plane: ``official.py KUBECONFIG POD_JSON``."""

import json
import sys
from typing import Any

import kubernetes


def main(kubeconfig: str, pod: dict[str, Any]) -> None:
    kubernetes.config.load_kube_config(kubeconfig)
    with kubernetes.client.ApiClient() as api:
        core = kubernetes.client.CoreV1Api(api)
        name = pod["metadata"]["name"]
        made = core.create_namespaced_pod("default", pod)
        assert made.status.phase == "Pending", made.status
        events = kubernetes.watch.Watch()
        seen = []
        for event in events.stream(core.list_namespaced_pod, "default", timeout_seconds=120):
            seen.append(event["object"].status.phase)
            if seen[-1] == "Running":
                events.stop()
        assert seen[-1] == "Running", seen
        lines = core.read_namespaced_pod_log(
            name, "default", follow=True, _preload_content=False, _request_timeout=120
        )
        assert lines.readline() == b"hello\n"
        listed = core.list_namespaced_pod("default", label_selector="by=official")
        assert [item.metadata.name for item in listed.items] == [name]
        core.patch_namespaced_pod(name, "default", {"metadata": {"labels": {"more": "yes"}}})
        assert core.read_namespaced_pod(name, "default").metadata.labels["more"] == "yes"
        try:
            core.create_namespaced_pod("default", pod)
        except kubernetes.client.ApiException as error:
            assert error.status == 409, error
            assert json.loads(error.body)["reason"] == "AlreadyExists", error.body
        else:
            raise AssertionError("a duplicate was accepted")
        gone = core.delete_namespaced_pod(name, "default")
        assert (gone.kind, gone.metadata.name) == ("Pod", name), gone
        config = {"metadata": {"name": "official"}, "data": {"a": "b"}}
        core.create_namespaced_config_map("default", config)
        assert core.delete_namespaced_config_map("official", "default")["status"] == "Success"
        service = {"metadata": {"name": "official"}, "spec": {"ports": [{"port": 80}]}}
        made = core.create_namespaced_service("default", service)
        assert made.spec.cluster_ip.startswith("127."), made.spec
        assert core.delete_namespaced_service("official", "default").metadata.name == "official"
        core.create_namespace({"metadata": {"name": "official"}})
        core.delete_namespace("official")
        waiting = {**pod, "metadata": {"name": "now"}}
        core.create_namespaced_pod("default", waiting)
        now = core.delete_namespaced_pod("now", "default", grace_period_seconds=0)
        assert now.metadata.name == "now", now


main(sys.argv[1], json.loads(sys.argv[2]))
print("ok")
