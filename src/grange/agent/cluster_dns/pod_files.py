"""The files by which a container resolves names, where it has them to itself: pure.

``/etc/resolv.conf`` and the first part of ``/etc/hosts`` are as a kubelet writes them. Where no
DNS server serves the cluster's domain, names of Services stand in ``/etc/hosts``, and the machine's resolvers
answer all other questions.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from grange.agent.cluster_dns.service_records import DOMAIN, ServiceRecord
from grange.agent.errors import NotCreatableError
from grange.agent.resolver_config import ResolverConfig
from grange.api.kinds.pod import Pod

_HOSTNAME_MAX = 63
_KERNEL_MAX = 64  # of a host name, on Linux
_NAMESERVERS_MAX, _SEARCHES_MAX, _SEARCH_CHARS_MAX = 3, 32, 2048
LINES_MAX = 5_000
"""Lines about Services in one file; resolvers read it from its beginning for every name."""

_LOCAL = (
    "# Written by the node agent, again whenever a Service changes.",
    "127.0.0.1\tlocalhost",
    "::1\tlocalhost ip6-localhost ip6-loopback",
    "fe00::0\tip6-localnet",
    "ff00::0\tip6-mcastprefix",
    "ff02::1\tip6-allnodes",
    "ff02::2\tip6-allrouters",
)


def hostname(pod: Pod) -> str:
    """The host name that a pod's programs see.

    Raises:
        NotCreatableError: the fully qualified name is asked for and too long for the kernel.
    """
    spec = pod.spec
    if spec.hostname_override:
        return spec.hostname_override[:_KERNEL_MAX]
    name = _short_name(pod)
    if not (spec.set_hostname_as_fqdn and spec.subdomain):
        return name
    full = _full_name(pod, name)
    if len(full) > _KERNEL_MAX:
        raise NotCreatableError(
            f"spec.setHostnameAsFQDN: {full} has more than {_KERNEL_MAX} characters; choose a shorter "
            "hostname, subdomain or namespace",
            lasting=True,
        )
    return full


def _short_name(pod: Pod) -> str:
    return (pod.spec.hostname or pod.metadata.name)[:_HOSTNAME_MAX].rstrip("-.")


def _full_name(pod: Pod, name: str) -> str:
    return f"{name}.{pod.spec.subdomain}.{pod.metadata.namespace}.svc.{DOMAIN}"


# --- /etc/hosts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServiceLines:
    """What the pods of one namespace have about Services in ``/etc/hosts``.

    Attributes:
        lines: address and names of each.
        names: all of them.
        text: as the file has them.
    """

    lines: tuple[tuple[str, tuple[str, ...]], ...] = ()
    names: frozenset[str] = frozenset()
    text: str = ""


def service_lines(namespace: str, records: Iterable[ServiceRecord]) -> ServiceLines:
    """One line for each name and address; those of the namespace first, with their short names."""
    ordered = sorted(records, key=lambda item: item.key.namespace != namespace)
    every = (
        (address, _names(record, host, namespace))
        for record in ordered
        for host, addresses in record.hosts.items()
        for address in addresses
    )
    lines = tuple(itertools.islice(every, LINES_MAX))
    text = _written(lines)
    if next(every, None) is not None:
        text += f"# more than {LINES_MAX} lines: the others are left out\n"
    return ServiceLines(lines, frozenset(name for _, names in lines for name in names), text)


def _written(lines: Iterable[tuple[str, Iterable[str]]]) -> str:
    return "".join(f"{address}\t{' '.join(names)}\n" for address, names in lines)


def _names(record: ServiceRecord, host: str, namespace: str) -> tuple[str, ...]:
    here = record.key.namespace
    names = (record.full_name(host), f"{host}.{here}.svc", f"{host}.{here}")
    return (*names, host) if here == namespace else names


def hosts_file(pod: Pod, address: str, services: ServiceLines) -> str:
    """The content of ``/etc/hosts``. What the pod names itself is no name of a Service.

    Args:
        pod: whose.
        address: of the pod.
        services: of its namespace; empty where DNS serves their names.
    """
    lines = list(_LOCAL)
    own = pod.spec.hostname_override or _short_name(pod)
    if pod.spec.subdomain and not pod.spec.hostname_override:
        own = f"{_full_name(pod, own)}\t{own}"
    lines.append(f"{address}\t{own}")
    if pod.spec.host_aliases:
        lines.append("# hostAliases of the pod")
    lines += ["\t".join((item.ip, *item.hostnames)) for item in pod.spec.host_aliases]
    text = services.text
    known = {name for line in lines if line[0] != "#" for name in line.split()[1:]}
    if not services.names.isdisjoint(known):
        left = ((ip, [name for name in names if name not in known]) for ip, names in services.lines)
        text = _written((ip, names) for ip, names in left if names)
    if text:
        lines.append("# Services")
    return "\n".join(lines) + "\n" + text


# --- /etc/resolv.conf ------------------------------------------------------------------------------


def resolver_file(pod: Pod, machine: ResolverConfig, cluster_dns: str) -> str:
    """The content of ``/etc/resolv.conf``.

    Args:
        pod: whose.
        machine: what the machine's file states.
        cluster_dns: address of the DNS server; empty where there is none.
    """
    found = _by_policy(pod, machine, cluster_dns)
    given = pod.spec.dns_config or {}
    nameservers = _united(found.nameservers, given.get("nameservers"))
    searches = _united(found.searches, given.get("searches"))
    options = {text.partition(":")[0]: text for text in found.options}
    for item in given.get("options") or ():
        name, value = str(item.get("name", "")), item.get("value")
        options[name] = f"{name}:{value}" if value not in (None, "") else name
    lines = []
    if kept := _searches(searches):
        lines.append(f"search {' '.join(kept)}")
    lines += [f"nameserver {address}" for address in nameservers[:_NAMESERVERS_MAX]]
    if options:
        lines.append(f"options {' '.join(options.values())}")
    return "\n".join(lines) + "\n"


def _by_policy(pod: Pod, machine: ResolverConfig, cluster_dns: str) -> ResolverConfig:
    policy = pod.spec.dns_policy or "ClusterFirst"
    if policy == "None":
        return ResolverConfig()
    is_first = policy == "ClusterFirstWithHostNet" or (
        policy == "ClusterFirst" and not pod.spec.host_network
    )
    if not is_first or not cluster_dns:
        return machine
    service = f"svc.{DOMAIN}"
    searches = (f"{pod.metadata.namespace}.{service}", service, DOMAIN, *machine.searches)
    return ResolverConfig((cluster_dns,), searches, ("ndots:5",))


def _united(first: Iterable[str], second: Iterable[str] | None) -> list[str]:
    return list(dict.fromkeys((*first, *map(str, second or ()))))


def _searches(searches: list[str]) -> list[str]:
    """As many as resolvers read."""
    kept: list[str] = []
    for domain in searches[:_SEARCHES_MAX]:
        if len(" ".join((*kept, domain))) > _SEARCH_CHARS_MAX:
            break
        kept.append(domain)
    return kept
