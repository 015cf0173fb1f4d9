"""kr8s against a control plane: ``with_kr8s.py KUBECONFIG``."""

import sys

import kr8s
from kr8s.objects import ConfigMap


def main(kubeconfig: str) -> None:
    api = kr8s.api(kubeconfig=kubeconfig)
    made = ConfigMap({"metadata": {"name": "kr8s"}, "data": {"a": "1"}}, api=api)
    made.create()
    assert made.exists()
    made.patch({"data": {"b": "2"}})
    made.refresh()
    assert dict(made.data) == {"a": "1", "b": "2"}
    assert [item.name for item in api.get("configmaps")] == ["kr8s", "kube-root-ca.crt"]
    made.delete()
    assert not made.exists()


main(sys.argv[1])
print("ok")
