"""What the names of Services stand for, and the files by which isolated programs resolve them."""

from typing import Any

import msgspec
import pytest
from tests.support.agent_world import World, world
from tests.unit.agent import builders

from grange.agent.cluster_dns.pod_files import (
    LINES_MAX,
    hostname,
    hosts_file,
    resolver_file,
    service_lines,
)
from grange.agent.cluster_dns.service_records import ServiceRecord, service_records
from grange.agent.errors import NotCreatableError
from grange.agent.resolver_config import ResolverConfig, parse_resolver
from grange.api.kinds import SERVICE
from grange.api.kinds.endpointslice import EndpointSlice
from grange.api.kinds.pod import Pod
from grange.api.kinds.service import Service
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

MACHINE = ResolverConfig(("10.0.0.2", "10.0.0.3"), ("corp.example",), ("timeout:1",))
READY = {"ready": True}


def service(name: str = "web", namespace: str = "default", **spec: Any) -> Service:
    spec.setdefault("clusterIP", "127.9.128.7")
    spec.setdefault("ports", [{"name": "http", "port": 80}])
    document = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    return msgspec.convert(document, Service)


def slice_of(*endpoints: dict[str, Any], name: str = "web") -> EndpointSlice:
    meta = {
        "name": f"{name}-x",
        "namespace": "default",
        "labels": {"kubernetes.io/service-name": name},
    }
    ports = [{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "", "port": 1}]
    return msgspec.convert(
        {"metadata": meta, "endpoints": list(endpoints), "ports": ports}, EndpointSlice
    )


def endpoint(address: str, **fields: Any) -> dict[str, Any]:
    return {"addresses": [address], "conditions": READY, **fields}


def record(service: Service, *slices: EndpointSlice) -> ServiceRecord:
    return service_records([service], slices)[service.key]


def files(pod: Pod, *records: ServiceRecord) -> list[str]:
    lines = service_lines(pod.metadata.namespace, records)
    return hosts_file(pod, "127.9.0.5", lines).splitlines()


# --- records ---------------------------------------------------------------------------------------


def test_service_has_its_address_without_endpoints() -> None:
    found = record(service())
    assert found.hosts == {"web": ("127.9.128.7",)}
    assert found.full_name() == "web.default.svc.cluster.local"


def test_headless_service_has_those_of_ready_endpoints() -> None:
    found = record(
        service(clusterIP="None"),
        slice_of(
            endpoint("127.9.0.2", hostname="web-0"),
            endpoint("127.9.0.3"),
            endpoint("127.9.0.4", conditions={"ready": False}),
            endpoint("127.9.0.6", conditions={}),
        ),
    )
    assert found.hosts == {
        "web": ("127.9.0.2", "127.9.0.3", "127.9.0.6"),
        "web-0.web": ("127.9.0.2",),
        "127-9-0-3.web": ("127.9.0.3",),
        "127-9-0-6.web": ("127.9.0.6",),
    }


def test_external_name_has_no_address() -> None:
    found = record(service(type="ExternalName", externalName="DB.example.com.", clusterIP=""))
    assert found.hosts == {}


@pytest.mark.parametrize("text", ["10.0.0.1\n10.0.0.9 bank", "::1", "x", ""])
def test_hostile_addresses_are_left_out(text: str) -> None:
    assert record(service(clusterIP=text)).hosts == {"web": ()}
    found = record(service(clusterIP="None"), slice_of(endpoint(text)))
    assert found.hosts == {"web": ()}


def test_hostile_hostname_is_left_out() -> None:
    bad = endpoint("127.9.0.2", hostname="a\n10.0.0.9 bank")
    found = record(service(clusterIP="None"), slice_of(bad))
    assert list(found.hosts) == ["web", "127-9-0-2.web"]


# --- /etc/hosts ------------------------------------------------------------------------------------


def test_hosts_name_services_of_all_namespaces() -> None:
    other = record(service("db", "data", clusterIP="127.9.128.9"))
    found = files(builders.pod(), record(service("api")), other)
    assert "127.9.0.5\tweb" in found
    assert found[-2:] == [
        "127.9.128.7\tapi.default.svc.cluster.local api.default.svc api.default api",
        "127.9.128.9\tdb.data.svc.cluster.local db.data.svc db.data",
    ]


def test_hosts_name_every_pod_of_a_headless_service() -> None:
    peers = record(
        service("peers", clusterIP="None"),
        slice_of(
            endpoint("127.9.0.2", hostname="a"), endpoint("127.9.0.3", hostname="b"), name="peers"
        ),
    )
    found = files(builders.pod(), peers)
    assert [line.split()[0] for line in found if line.endswith(" peers")] == [
        "127.9.0.2",
        "127.9.0.3",
    ]
    full = "b.peers.default.svc.cluster.local"
    assert f"127.9.0.3\t{full} b.peers.default.svc b.peers.default b.peers" in found


def test_own_names_are_no_names_of_services() -> None:
    pod = builders.pod(hostAliases=[{"ip": "10.0.0.1", "hostnames": ["api", "db.data"]}])
    found = files(pod, record(service("web")), record(service("api")))
    assert "10.0.0.1\tapi\tdb.data" in found
    assert found[-2:] == [
        "127.9.128.7\tweb.default.svc.cluster.local web.default.svc web.default",
        "127.9.128.7\tapi.default.svc.cluster.local api.default.svc api.default",
    ]


def test_hosts_have_a_bounded_number_of_lines() -> None:
    peers = service("peers", clusterIP="None")
    endpoints = [endpoint(f"127.9.{n // 250}.{1 + n % 250}") for n in range(LINES_MAX)]
    lines = service_lines("default", [record(peers, slice_of(*endpoints, name="peers"))])
    assert len(lines.lines) == LINES_MAX
    assert lines.text.splitlines()[-1].startswith(f"# more than {LINES_MAX} lines")


def test_pod_of_a_subdomain_has_its_full_name_first() -> None:
    pod = builders.pod(hostname="a", subdomain="peers")
    assert "127.9.0.5\ta.peers.default.svc.cluster.local\ta" in files(pod)


# --- host name -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, "web"),
        ({"hostname": "a"}, "a"),
        ({"hostname": "a", "subdomain": "b"}, "a"),
        ({"setHostnameAsFQDN": True}, "web"),
        (
            {"hostname": "a", "subdomain": "b", "setHostnameAsFQDN": True},
            "a.b.default.svc.cluster.local",
        ),
        ({"hostname": "a", "subdomain": "b", "hostnameOverride": "x.y"}, "x.y"),
    ],
)
def test_hostname_follows_the_spec(spec: dict[str, Any], expected: str) -> None:
    assert hostname(builders.pod(**spec)) == expected


def test_long_pod_name_is_cut_off() -> None:
    assert hostname(builders.pod(name="a" * 62 + "-" + "b" * 40)) == "a" * 62


def test_full_hostname_too_long_for_the_kernel_is_refused() -> None:
    pod = builders.pod(hostname="a" * 40, subdomain="b", setHostnameAsFQDN=True)
    with pytest.raises(NotCreatableError, match="more than 64 characters"):
        hostname(pod)


# --- /etc/resolv.conf ------------------------------------------------------------------------------


def test_machine_resolver_is_read() -> None:
    text = (
        "# x\ndomain a\nsearch corp.example b # c\nnameserver 10.0.0.2\nnameserver\n"
        "options timeout:1 rotate\nsortlist x\n"
    )
    assert parse_resolver(text) == ResolverConfig(
        ("10.0.0.2",), ("corp.example", "b"), ("timeout:1", "rotate")
    )


@pytest.mark.parametrize(
    ("spec", "dns", "expected"),
    [
        (
            {},
            "127.9.128.10",
            "search default.svc.cluster.local svc.cluster.local cluster.local corp.example\n"
            "nameserver 127.9.128.10\noptions ndots:5\n",
        ),
        (
            {},
            "",
            "search corp.example\nnameserver 10.0.0.2\nnameserver 10.0.0.3\noptions timeout:1\n",
        ),
        (
            {"dnsPolicy": "Default"},
            "127.9.128.10",
            "search corp.example\nnameserver 10.0.0.2\nnameserver 10.0.0.3\noptions timeout:1\n",
        ),
        (
            {"hostNetwork": True},
            "127.9.128.10",
            "search corp.example\nnameserver 10.0.0.2\nnameserver 10.0.0.3\noptions timeout:1\n",
        ),
        (
            {
                "dnsPolicy": "ClusterFirstWithHostNet",
                "dnsConfig": {
                    "nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3"],
                    "searches": ["x"],
                    "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
                },
            },
            "127.9.128.10",
            "search default.svc.cluster.local svc.cluster.local cluster.local corp.example x\n"
            "nameserver 127.9.128.10\nnameserver 1.1.1.1\nnameserver 1.1.1.2\n"
            "options ndots:2 edns0\n",
        ),
        (
            {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.1.1.1"]}},
            "127.9.128.10",
            "nameserver 1.1.1.1\n",
        ),
    ],
)
def test_resolver_follows_the_policy(spec: dict[str, Any], dns: str, expected: str) -> None:
    assert resolver_file(builders.pod(**spec), MACHINE, dns) == expected


# --- in the agent ----------------------------------------------------------------------------------


API = {
    "metadata": {"name": "api"},
    "spec": {"clusterIP": "127.0.128.7", "ports": [{"port": 80}]},
}


async def until_written(there: World, text: str, *, written: bool = True) -> float:
    """Wait until a text is in the files of the only pod, or is not."""
    [pod] = there.machine.pods.values()

    async def reached() -> bool:
        files = pod.name_files
        return (files is not None and text in files.hosts + files.resolver) is written

    return await there.until(reached)


async def test_files_follow_the_services(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log, agent=False) as there:
        there.start_agent(name_files=True)
        await there.create(builders.document())
        await there.until_ready()
        assert await until_written(there, "\tweb") == 0
        assert await until_written(there, "api.default", written=False) == 0
        await there.client.create(SERVICE, API, "default")
        assert await until_written(there, "api.default.svc api.default api") < 1
        await there.client.delete(SERVICE, "api", "default")
        assert await until_written(there, "api.default", written=False) < 1


async def test_next_agent_writes_the_files_again(clock: Clock, rng: Stream, log: Logger) -> None:
    """With another setting: DNS is served now, so no Services are in the file."""
    async with world(clock, rng, log, agent=False) as there:
        await there.client.create(SERVICE, API, "default")
        there.start_agent(name_files=True)
        await there.create(builders.document())
        await there.until_ready()
        assert await until_written(there, "api.default") == 0
        there.crash_agent()
        there.start_agent(name_files=True, cluster_dns="127.9.128.10")
        await until_written(there, "nameserver 127.9.128.10")
        assert await until_written(there, "api.default", written=False) == 0
