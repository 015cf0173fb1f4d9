"""Members of a job that are processes find each other by what the wiring writes into their pods."""

import sys
from dataclasses import replace

import pytest
from tests.unit.gangjob.wired_jobs import LABELS, context, model, pod, role, template

from grange.api.kinds import NODE
from grange.api.meta import Document
from grange.controllers.gangjob.address_blocks import AddressBlocks, loopback_network
from grange.controllers.gangjob.gang_backends import gang_document
from grange.controllers.gangjob.job_context import JobContext
from grange.controllers.gangjob.job_services import files_document, service_document
from grange.controllers.gangjob.model import JobModel
from grange.testing import Cluster, cluster

pytestmark = pytest.mark.e2e

LIMIT_S = 240

# Worker 0 answers the others; they look for it in the file and in the variable.
PROGRAM = """
import os, socket, sys, time
index, port = int(os.environ["GRANGE_INDEX"]), 7000
hosts = os.environ["GRANGE_WORKER_HOSTS"].split(",")
with open(os.environ["GRANGE_HOSTS_FILE"]) as source:
    named = dict(line.split() for line in source)
assert list(named.values()) == hosts, (named, hosts)
assert hosts[index] == os.environ["POD_IP"], (hosts, os.environ["POD_IP"])
if index == 0:
    with socket.create_server((hosts[0], port)) as server:
        for _ in hosts[1:]:
            server.accept()[0].sendall(b"welcome")
else:
    for attempt in range(200):
        try:
            connection = socket.create_connection((named["train-worker-0"], port))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    assert connection.recv(7) == b"welcome"
print("member", index, "of", len(hosts))
"""


def job_of(there: Cluster, job: JobModel) -> JobContext:
    """The job as the controller sees it on this cluster."""
    there.wait_nodes(1)
    network = loopback_network(there.run(lambda client: client.list(NODE)).items)
    assert network is not None
    return context(replace(job, namespace="default"), blocks=AddressBlocks(network))


def objects(wired: JobContext) -> list[Document]:
    """All objects of a job. There is no object of the job itself, so it owns nothing."""
    members = [(item.name, index) for item in wired.model.roles for index in range(item.replicas)]
    found = [
        gang_document(wired.model, LABELS, wired.owner),
        files_document(wired),
        service_document(wired, wired.model.name),
        *(pod(wired, *member).document for member in members),
    ]
    made = [item for item in found if item is not None]
    for item in made:
        del item["metadata"]["ownerReferences"]
    return made


def has_ended(found: Document | None) -> bool:
    return found is not None and found["status"]["phase"] in {"Succeeded", "Failed"}


def test_processes_find_each_other_by_address() -> None:
    body = template(command=[sys.executable, "-c", PROGRAM])
    with cluster() as there:
        wired = job_of(there, model(role("worker", 3, template=body)))
        there.create(objects(wired))
        for index in range(3):
            name = f"train-worker-{index}"
            found = there.wait("pod", name, until=has_ended, timeout_s=LIMIT_S)
            assert found is not None
            assert found["status"]["phase"] == "Succeeded", found["status"]
            assert found["status"]["podIP"] == wired.peers.host("worker", index)
