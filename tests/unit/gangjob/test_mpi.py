"""MPI: the hostfile, the remote shell, and who runs what."""

from typing import Any

import pytest
from tests.unit.gangjob.wired_jobs import blocks, context, env, model, own_env, pod, role, template

from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.frameworks import FRAMEWORKS, completed
from grange.controllers.gangjob.job_context import JobContext
from grange.controllers.gangjob.job_services import files_document
from grange.controllers.gangjob.model import JobModel, Wiring


def job(*roles: Any, **fields: Any) -> JobModel:
    found = roles or (role("launcher"), role("worker", 2))
    return model(*found, framework="MPI", **fields)


def files(there: JobContext, *running: tuple[str, int]) -> dict[str, str]:
    found = files_document(there, frozenset(running))
    assert found is not None
    return dict(found["data"])


def test_hostfile_has_pods_and_slots() -> None:
    there = context(job(wiring=Wiring(processes_per_node="4")))
    assert files(there)["hostfile"] == "train-worker-0 slots=4\ntrain-worker-1 slots=4\n"


def test_launcher_with_devices_comes_first() -> None:
    body = template(resources={"limits": {"nvidia.com/gpu": 1}})
    there = context(job(role("launcher", template=body), role("worker")))
    assert files(there)["hostfile"] == "train-launcher-0 slots=1\ntrain-worker-0 slots=1\n"
    assert "NVIDIA_VISIBLE_DEVICES" not in env(there, "launcher")
    assert env(context(job()), "launcher")["NVIDIA_VISIBLE_DEVICES"] == ""


def test_discover_hosts_lists_running_workers() -> None:
    there = context(job(role("launcher"), role("worker", 12)))
    assert files(there)["discover_hosts.sh"] == "#!/bin/sh\n"
    running = ("worker", 10), ("worker", 2), ("launcher", 0), ("worker", 99)
    assert files(there, *running)["discover_hosts.sh"] == (
        "#!/bin/sh\necho train-worker-10:1\necho train-worker-2:1\n"
    )


def test_launcher_has_the_remote_shell_of_every_mpi() -> None:
    found = own_env(context(job()), "launcher")
    assert found["OMPI_MCA_plm_rsh_agent"] == "/etc/mpi/rsh.sh"
    assert found["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
    assert found["I_MPI_HYDRA_BOOTSTRAP"] == "rsh"
    assert found["I_MPI_HYDRA_BOOTSTRAP_EXEC"] == "/etc/mpi/rsh.sh"
    own = template(env=[{"name": "OMPI_MCA_plm_rsh_agent", "value": "ssh"}])
    there = context(job(role("launcher", template=own), role("worker")))
    assert env(there, "launcher")["OMPI_MCA_plm_rsh_agent"] == "ssh"
    assert own_env(context(job()), "worker") == {}


def test_worker_without_a_command_waits() -> None:
    there = context(job(role("launcher"), role("worker", template=template("box"))))
    (container,) = pod(there, "worker").document["spec"]["containers"]
    assert container["command"][:2] == ["/bin/sh", "-c"]
    own = template(command=["/usr/sbin/sshd", "-D"])
    there = context(job(role("launcher"), role("worker", template=own)))
    (container,) = pod(there, "worker").document["spec"]["containers"]
    assert container["command"] == ["/usr/sbin/sshd", "-D"]


def test_workers_of_one_machine_run_the_agent() -> None:
    own = template(command=["sleep", "infinity"])
    there = context(job(role("launcher"), role("worker", template=own)), blocks=blocks())
    (container,) = pod(there, "worker").document["spec"]["containers"]
    agent = ["python3", "$(GRANGE_ROOT)/etc/mpi/mpi_agent.py", "serve"]
    assert container["command"] == [*agent, "sleep", "infinity"]
    values = env(there, "worker")
    address = there.peers.host("worker", 0)
    assert values["GRANGE_MPI_HOST"] == address
    assert values["GRANGE_MPI_JOB"] == there.model.uid
    assert files(there)["hostfile"] == f"{address} slots=1\n"
    launcher = env(there, "launcher")
    assert launcher["OMPI_MCA_plm_rsh_agent"] == "$(GRANGE_ROOT)/etc/mpi/rsh.sh"
    assert launcher["OMPI_MCA_btl"] == "self,tcp"
    assert {"rsh.sh", "mpi_agent.py"} <= set(files(there))


@pytest.mark.parametrize("addressed", [True, False])
def test_mounted_files_are_files_of_the_job(addressed: bool) -> None:
    there = context(job(), blocks=blocks() if addressed else None)
    for name in ("launcher", "worker"):
        for volume in pod(there, name).document["spec"].get("volumes", []):
            keys = {item["key"] for item in volume["configMap"]["items"]}
            assert keys <= set(files(there))


def test_launcher_decides_the_job() -> None:
    roles = completed(job(role("worker", 2), role("Launcher"))).roles
    assert [(item.name, item.leader, item.completes) for item in roles] == [
        ("worker", False, False),
        ("Launcher", True, True),
    ]
    assert (
        FRAMEWORKS["MPI"].complete(job(role("lead", leader=True), role("worker"))).roles[0].leader
    )
    with pytest.raises(InvalidJob, match=r"there is no role launcher, which runs mpirun; add it"):
        completed(job(role("worker", 2)))
