"""What grange top shows of the samples."""

from grange.api.meta import Document
from grange.cli.verbs.top import node_rows, pod_rows


def usage(cpu: str, memory: str) -> Document:
    return {"cpu": cpu, "memory": memory}


def pod(name: str, *usages: Document) -> Document:
    containers = [{"name": f"c{at}", "usage": item} for at, item in enumerate(usages)]
    return {"metadata": {"name": name, "namespace": "default"}, "containers": containers}


def test_nodes_have_shares_of_what_pods_may_have() -> None:
    items = [
        {"metadata": {"name": name}, "usage": usage(cpu, memory)}
        for name, cpu, memory in (("b", "1500m", "1Gi"), ("a", "250000001n", "2Gi"))
    ]
    nodes: list[Document] = [
        {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "2", "memory": "4Gi"}}},
        {"metadata": {"name": "b"}, "status": {}},
    ]
    heading = ["NAME", "CPU", "CPU%", "MEMORY", "MEMORY%"]
    a, b = ["a", "251m", "12%", "2048Mi", "50%"], ["b", "1500m", "-", "1024Mi", "-"]
    assert node_rows(items, nodes, None) == [heading, a, b]
    assert node_rows(items, nodes, "cpu") == [heading, b, a]
    assert node_rows(items, nodes, "memory") == [heading, a, b]


def test_pods_are_the_sum_of_their_containers() -> None:
    items = [pod("a", usage("100m", "10Mi")), pod("b", usage("70m", "1Mi"), usage("80m", "2Mi"))]
    assert pod_rows(items, "cpu", containers=False, everywhere=False) == [
        ["POD", "CPU", "MEMORY"],
        ["b", "150m", "3Mi"],
        ["a", "100m", "10Mi"],
    ]
    assert pod_rows(items, None, containers=True, everywhere=True) == [
        ["NAMESPACE", "POD", "CONTAINER", "CPU", "MEMORY"],
        ["default", "a", "c0", "100m", "10Mi"],
        ["default", "b", "c0", "70m", "1Mi"],
        ["default", "b", "c1", "80m", "2Mi"],
    ]
