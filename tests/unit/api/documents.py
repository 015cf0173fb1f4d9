"""Documents that the tests of the api room start from."""

from typing import Any

from grange.api import codec

Document = dict[str, Any]


def pod(**spec: Any) -> Document:
    """A plain pod; keywords go into its spec."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "command": ["serve"]}], **spec},
    }


def container(**fields: Any) -> Document:
    """A pod whose only container has these fields too."""
    return pod(containers=[{"name": "main", "command": ["serve"], **fields}])


def controller(**spec: Any) -> Document:
    """A plain ReplicationController; keywords go into its spec."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}
    return {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "ReplicationController",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 3, "template": template, **spec},
    }


def typical_pod() -> Document:
    """A pod as an operator would write it: about 1.2 KB."""
    found: Document = codec.decode_document(TYPICAL)
    return found


TYPICAL = b"""{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"default",
"labels":{"app":"web","app.kubernetes.io/name":"web","tier":"front"},
"annotations":{"example.com/note":"a text of some length that states what this pod is here for"},
"ownerReferences":[{"apiVersion":"grange.dev/v1alpha1","kind":"ReplicationController","name":"web",
"uid":"6d3f0d0c-5a0b-4d6a-9b43-0d0c5a0b4d6a","controller":true,"blockOwnerDeletion":true}]},
"spec":{"containers":[{"name":"web","image":"example.com/web:1","command":["serve"],
"args":["--port=8080","--root=/srv"],"ports":[{"containerPort":8080,"name":"http"}],
"resources":{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"cpu":"1","memory":"64Mi"}},
"env":[{"name":"MODE","value":"prod"},
{"name":"POD_IP","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}}],
"readinessProbe":{"httpGet":{"port":"http","path":"/healthz"},"periodSeconds":2},
"volumeMounts":[{"name":"settings","mountPath":"/settings"}]}],
"volumes":[{"name":"settings","configMap":{"name":"web"}}],"nodeSelector":{"zone":"a"},
"tolerations":[{"key":"dedicated","operator":"Equal","value":"web","effect":"NoSchedule"}]}}"""
