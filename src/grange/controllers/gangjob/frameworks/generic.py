"""Generic: who a member is, as variables, and where the others are, as variables and a file."""

import re

from grange.controllers.gangjob.frameworks.framework import (
    Framework,
    JobMember,
    PodAdditions,
    Running,
)
from grange.controllers.gangjob.model import JobModel
from grange.controllers.gangjob.peers import Peers, capacity

INDEX = "GRANGE_INDEX"
"""The variable with a member's index; its value is the label of the pod."""
DIRECTORY = "/etc/grange"
HOSTS_KEY = "hosts"
VALUE_MAX = 100_000  # Linux starts no program that has a variable of 128 KiB
_VARIABLE = re.compile(r"[^A-Z0-9_]")


def identity(member: JobMember) -> dict[str, str]:
    """Variables that every member of every framework has, besides ``INDEX``: the same for a role."""
    return {
        "GRANGE_JOB_NAME": member.model.name,
        "GRANGE_ROLE": member.role.name.lower(),
        "GRANGE_REPLICAS": str(member.role.replicas),
        "GRANGE_ATTEMPT": str(member.attempt),
    }


def hosts_variable(role: str) -> str:
    """The variable with the hosts of a role, comma-separated: ``GRANGE_WORKER_HOSTS``."""
    return f"GRANGE_{_VARIABLE.sub('_', role.upper())}_HOSTS"


def _files(model: JobModel, peers: Peers, running: Running) -> dict[str, str]:
    """The hosts file (pod and address of a member a line), and the values of the variables.

    They are keys of one object: in every pod they would make a job's pods grow with its square.
    """
    lines, values = [], {}
    for role in model.roles:
        hosts = [peers.short_host(role.name, index) for index in range(capacity(role))]
        lines += [f"{peers.pod(role.name, index)} {host}\n" for index, host in enumerate(hosts)]
        text = ",".join(hosts[: role.replicas])
        if len(text) <= VALUE_MAX:
            values[hosts_variable(role.name)] = text
    return {HOSTS_KEY: "".join(lines), **values}


def _wire(member: JobMember) -> PodAdditions:
    return PodAdditions(
        env={"GRANGE_HOSTS_FILE": member.peers.path(f"{DIRECTORY}/{HOSTS_KEY}")},
        env_keys={
            hosts_variable(role.name): hosts_variable(role.name) for role in member.model.roles
        },
        directory=DIRECTORY,
        files=(HOSTS_KEY,),
    )


FRAMEWORK = Framework("Generic", _wire, files=_files)
