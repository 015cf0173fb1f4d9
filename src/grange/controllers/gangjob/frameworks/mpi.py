"""MPI: a launcher that starts the ranks in the workers, without ssh.

The launcher runs ``mpirun`` with a remote shell of the job's: ``rsh.sh HOST COMMAND...``. In a cluster
that is ``kubectl exec`` into the worker's pod; where the pods are processes of one machine it is
``mpi_agent``, which every worker runs next to its own command. Either waits for the worker first.
"""

from dataclasses import replace
from functools import cache
from importlib.resources import files as package_files

from grange.api.meta import Document
from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.frameworks.framework import (
    Framework,
    JobMember,
    PodAdditions,
    Running,
    framework_container,
    processes,
)
from grange.controllers.gangjob.model import JobModel, JobRole
from grange.controllers.gangjob.peers import Peers

DIRECTORY = "/etc/mpi"
HOSTFILE, REMOTE_SHELL, DISCOVER, AGENT = "hostfile", "rsh.sh", "discover_hosts.sh", "mpi_agent.py"
_LAUNCHER = "launcher"

# Called as ssh is: options, host, command. Only the first label of a host name is the pod's.
_EXEC = """\
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
pod=${1%%.*}
shift
tries=${GRANGE_MPI_WAIT_S:-300}
until [ "$(kubectl get pod "$pod" -n NAMESPACE -o 'jsonpath={.status.phase}' 2>/dev/null)" = Running ]; do
  tries=$((tries - 1))
  [ "$tries" -gt 0 ] || { echo "worker $pod did not start in time" >&2; exit 255; }
  sleep 1
done
exec kubectl exec "$pod" -n NAMESPACE -c CONTAINER -- /bin/sh -c "$*"
"""
_CONNECT = """\
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
exec python3 "$(dirname "$0")/mpi_agent.py" connect "$@"
"""
_SLEEP = "trap 'exit 0' TERM; sleep 31536000 & wait"

# On one machine all ranks have one host name. Shared memory of two workers would have one name, too,
# and the loopback interface, which is left out by default, is where all of them are.
_ONE_MACHINE = {
    "OMPI_MCA_btl": "self,tcp",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_MCA_oob_tcp_if_include": "lo",
}


def _launcher(model: JobModel) -> JobRole:
    """The role that runs mpirun.

    Raises:
        InvalidJob: there is none.
    """
    for role in model.roles:
        if role.leader:
            return role
    named = model.role(_LAUNCHER)
    if named is not None:
        return named
    raise InvalidJob(
        "spec.replicaSpecs: there is no role launcher, which runs mpirun; "
        "add it, or set leader: true on the role that does"
    )


def _complete(model: JobModel) -> JobModel:
    """The launcher decides the job; workers run as long as it does."""
    launcher = _launcher(model).name
    roles = tuple(
        replace(role, leader=True) if role.name == launcher else replace(role, completes=False)
        for role in model.roles
    )
    return replace(model, roles=roles)


def _wire(member: JobMember) -> PodAdditions:
    if member.role.name == _launcher(member.model).name:
        return _launcher_additions(member)
    return _worker_additions(member)


def _launcher_additions(member: JobMember) -> PodAdditions:
    peers = member.peers
    shell = peers.path(f"{DIRECTORY}/{REMOTE_SHELL}")
    hosts = peers.path(f"{DIRECTORY}/{HOSTFILE}")
    env = {
        # Open MPI up to 4, Open MPI 5, Intel MPI, MPICH. Only the launcher can reach the workers.
        "OMPI_MCA_plm_rsh_agent": shell,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_orte_default_hostfile": hosts,
        "PRTE_MCA_plm_ssh_agent": shell,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_prte_default_hostfile": hosts,
        "I_MPI_HYDRA_BOOTSTRAP": "rsh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": shell,
        "I_MPI_HYDRA_HOST_FILE": hosts,
        "HYDRA_LAUNCHER": "rsh",
        "HYDRA_LAUNCHER_EXEC": shell,
        "HYDRA_HOST_FILE": hosts,
    }
    if not _gpus(member.model, member.role):  # the node's devices are not the launcher's
        env |= {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
    if not peers.resolvable:
        env |= {**_ONE_MACHINE, "GRANGE_MPI_JOB": member.model.uid}
    return PodAdditions(env=env, directory=DIRECTORY, files=_keys(peers, launcher=True))


def _worker_additions(member: JobMember) -> PodAdditions:
    """The worker's own command is what it has; without one it waits for the launcher's."""
    peers = member.peers
    if peers.resolvable:
        return PodAdditions(command=("/bin/sh", "-c", _SLEEP))
    return PodAdditions(
        env={
            **_ONE_MACHINE,
            "GRANGE_MPI_JOB": member.model.uid,
            "GRANGE_MPI_HOST": peers.host(member.role.name, member.index),
        },
        wrapper=("python3", peers.path(f"{DIRECTORY}/{AGENT}"), "serve"),
        directory=DIRECTORY,
        files=_keys(peers, launcher=False),
    )


def _keys(peers: Peers, *, launcher: bool) -> tuple[str, ...]:
    agent = () if peers.resolvable else (AGENT,)
    return (HOSTFILE, REMOTE_SHELL, DISCOVER, *agent) if launcher else agent


def _gpus(model: JobModel, role: JobRole) -> bool:
    resources: Document = framework_container(model, role).get("resources") or {}
    return any(
        "gpu" in name
        for amounts in (resources.get("limits"), resources.get("requests"))
        for name in amounts or {}
    )


def _host(peers: Peers, role: str, index: int) -> str:
    """What the remote shell is called with: the pod to execute in, or the address of the agent."""
    return peers.pod(role, index) if peers.resolvable else peers.host(role, index)


def _files(model: JobModel, peers: Peers, running: Running) -> dict[str, str]:
    launcher, slots = _launcher(model), processes(model)
    workers = [
        (role, index)
        for role in model.roles
        if role.name != launcher.name
        for index in range(role.replicas)
    ]
    lines = [f"{_host(peers, role.name, index)} slots={slots}\n" for role, index in workers]
    if _gpus(model, launcher) and peers.resolvable:
        lines.insert(0, f"{_host(peers, launcher.name, 0)} slots={slots}\n")
    reachable = sorted(
        f"echo {_host(peers, role.name, index)}:{slots}\n"
        for role, index in workers
        if (role.name.lower(), index) in running
    )
    found = {HOSTFILE: "".join(lines), DISCOVER: "#!/bin/sh\n" + "".join(reachable)}
    if not peers.resolvable:
        return {**found, REMOTE_SHELL: _CONNECT, AGENT: _agent()}
    container = workers[0][0] if workers else launcher
    name = str(framework_container(model, container).get("name"))
    shell = _EXEC.replace("NAMESPACE", model.namespace).replace("CONTAINER", name)
    return {**found, REMOTE_SHELL: shell}


@cache
def _agent() -> str:
    return package_files(__package__).joinpath(AGENT).read_text()


FRAMEWORK = Framework("MPI", _wire, files=_files, complete=_complete)
