"""The addresses and node ports of Services: unique, and kept for as long as the Service is there.

Theory of operation. A write of a Service is decided and accepted without an await in between, so what
is chosen from the newest accepted state cannot be given to two. Where the search for a free address
begins depends on the Service's name alone: the same Service gets the same address again where it is
still free, and the same stored state gives the same answers after a restart.

What is remembered is only a hint: which Services may hold an address. Before an address counts as
taken, its holder is read from the store, both as accepted and as acknowledged. So writes that were
refused or undone leave nothing behind, and an address is given to another Service only when the
deletion of its holder is on disk.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

import msgspec

from grange.api.kinds import SERVICE
from grange.api.meta import Document
from grange.api.status import ApiError, InternalError, Invalid
from grange.api.validation.causes import Faults
from grange.api.validation.services import (
    CLUSTER_IP,
    CLUSTER_IPS,
    EXTERNAL_NAME,
    HEADLESS,
    needs_health_check_port,
    needs_node_port,
)
from grange.apiserver import storage
from grange.base.bounded import BoundedDict
from grange.store.interface import Entry, Store

DEFAULT_NETWORK = IPv4Network("127.0.128.0/17")
"""Loopback addresses that no pod gets (``agent.addresses``)."""

NODE_PORTS = range(30_000, 32_768)
_FIRST = storage.key(SERVICE, "default", "kubernetes")  # it has the first address, as in Kubernetes
_REMEMBERED_MAX = 65_536

Held = str | int  # an address, or a port of the nodes


class _Port(msgspec.Struct, rename="camel"):
    node_port: int = 0


class _Spec(msgspec.Struct, rename="camel"):
    type: str = ""
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    ports: list[_Port] = []
    health_check_node_port: int = 0


class _Service(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decoder = msgspec.json.Decoder(_Service)


@dataclass(frozen=True, slots=True)
class _Holding:
    """What a Service has at a revision."""

    revision: int
    held: frozenset[Held]


class ServiceAllocator:
    """Gives Services what they need.

    Args:
        store: where Services are.
        network: the range of addresses; its first and last one are not given out.
    """

    def __init__(self, store: Store, network: IPv4Network) -> None:
        self._store = store
        self._network = network
        self._first = int(network.network_address) + 1
        self._count = network.num_addresses - 2
        self._holders: dict[Held, dict[str, None]] = {}  # keys of Services that may hold it
        self._holdings: BoundedDict[str, _Holding] = BoundedDict(_REMEMBERED_MAX)

    async def load(
        self, skip: Callable[[str, int, Exception], object]
    ) -> Sequence[tuple[str, str]]:
        """Take note of what is there already; once, before the first write.

        Args:
            skip: called with key, revision and error of what cannot be read: it has nothing.

        Returns:
            Namespaces and names of Services that lack an address.

        Raises:
            StoreError: the store cannot be read.
        """
        lacking = []
        for entry in (await self._store.list(storage.prefix(SERVICE))).entries:
            try:
                spec = _decoder.decode(entry.value).spec
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                skip(entry.key, entry.revision, error)
                continue
            for held in self._holding(entry):
                self._note(held, entry.key)
            if not spec.cluster_ip and spec.type != EXTERNAL_NAME:
                lacking.append(storage.names_of(entry.key, SERVICE))
        return lacking

    def assign(self, key: str, document: Document, old: Document | None = None) -> None:
        """Fill in the addresses and ports that a Service lacks; check those that it asks for.

        Args:
            key: of the Service in the store.
            document: valid; its spec is replaced.
            old: what it was before; None on creation.

        Raises:
            Invalid: an address or port that it asks for is out of range, or taken.
            InternalError: none is left.
        """
        spec = document["spec"] = {**document["spec"]}
        if spec.get("type") == EXTERNAL_NAME:
            return
        before = (old or {}).get("spec") or {}
        faults = Faults()
        self._assign_address(key, spec, before.get(CLUSTER_IP), faults)
        self._assign_ports(key, spec, _ports_of(before), faults)
        if faults.causes:
            name = document["metadata"]["name"]
            listed = ", ".join(f"{cause.field}: {cause.message}" for cause in faults.causes)
            message = f'{SERVICE.kind} "{name}" is invalid: {listed}'
            raise Invalid(message, kind=SERVICE.kind, name=name, causes=faults.causes)

    def _assign_address(self, key: str, spec: Document, before: str | None, faults: Faults) -> None:
        address = spec.get(CLUSTER_IP)
        if not address:
            spec[CLUSTER_IP] = self._free_address(key)
            spec[CLUSTER_IPS] = [spec[CLUSTER_IP]]
        elif address not in (HEADLESS, before):
            if IPv4Address(address) not in self._network:
                why = (
                    f"the provided IP ({address}) is not in the valid range. "
                    f"The range of valid IPs is {self._network}"
                )
            elif self._is_taken(address, key):
                why = "provided IP is already allocated"
            else:
                self._note(address, key)
                return
            message = f"failed to allocate IP {address}: {why}"
            faults.invalid(f"spec.{CLUSTER_IPS}", [address], message)

    def _assign_ports(
        self, key: str, spec: Document, before: frozenset[int], faults: Faults
    ) -> None:
        ports = spec["ports"] = [{**port} for port in spec.get("ports") or ()]
        given: dict[int, int] = {}  # port → node port: protocols of one port share theirs
        for index, port in enumerate(ports):
            if number := port.get("nodePort"):
                given.setdefault(port["port"], number)
                self._check_port(key, number, before, f"spec.ports[{index}].nodePort", faults)
        used = {port["nodePort"] for port in ports if port.get("nodePort")}
        if needs_node_port(spec):
            for port in ports:
                if not port.get("nodePort"):
                    seed = f"{key}/{port['port']}"
                    number = given.get(port["port"]) or self._free_port(key, seed, used)
                    given[port["port"]] = port["nodePort"] = number
                    used.add(number)
        if needs_health_check_port(spec):
            if number := spec.get("healthCheckNodePort"):
                self._check_port(key, number, before, "spec.healthCheckNodePort", faults)
            else:
                spec["healthCheckNodePort"] = self._free_port(key, f"{key}/health", used)

    def _check_port(
        self, key: str, number: int, before: frozenset[int], field: str, faults: Faults
    ) -> None:
        if number in before:
            return
        if number not in NODE_PORTS:
            valid = f"{NODE_PORTS.start}-{NODE_PORTS.stop - 1}"
            message = (
                f"provided port is not in the valid range. The range of valid ports is {valid}"
            )
            faults.invalid(field, number, message)
        elif self._is_taken(number, key):
            faults.invalid(field, number, "provided port is already allocated")
        else:
            self._note(number, key)

    def _free_address(self, key: str) -> str:
        # The first address is kept for one Service; the others have the rest.
        start, first, count = (
            (0, self._first, 1) if key == _FIRST else (_hash(key), self._first + 1, self._count - 1)
        )
        for step in range(count):
            address = str(IPv4Address(first + (start + step) % count))
            if not self._is_taken(address, key):
                self._note(address, key)
                return address
        raise _exhausted("a serviceIP")

    def _free_port(self, key: str, seed: str, used: set[int]) -> int:
        start = _hash(seed)
        for step in range(len(NODE_PORTS)):
            number = NODE_PORTS[(start + step) % len(NODE_PORTS)]
            if number not in used and not self._is_taken(number, key):
                self._note(number, key)
                return number
        raise _exhausted("a nodePort")

    # --- who has what ------------------------------------------------------------------------

    def _note(self, held: Held, key: str) -> None:
        self._holders.setdefault(held, {})[key] = None

    def _is_taken(self, held: Held, key: str) -> bool:
        """Whether another Service has it; hints that do not hold any more are dropped."""
        holders = self._holders.get(held)
        for other in list(holders or ()):
            if other == key:
                continue
            if self._holds(other, held):
                return True
            if holders is not None:
                del holders[other]
        return False

    def _holds(self, key: str, held: Held) -> bool:
        entries = (self._store.latest(key), self._store.get(key))
        return any(entry is not None and held in self._holding(entry) for entry in entries)

    def _holding(self, entry: Entry) -> frozenset[Held]:
        known = self._holdings.get(entry.key)
        if known is None or known.revision != entry.revision:
            spec = _decoder.decode(entry.value).spec
            held: list[Held] = [spec.cluster_ip] if spec.cluster_ip not in ("", HEADLESS) else []
            numbers = (spec.health_check_node_port, *(port.node_port for port in spec.ports))
            held += [number for number in numbers if number]
            known = self._holdings[entry.key] = _Holding(entry.revision, frozenset(held))
        return known.held


def _ports_of(spec: Document) -> frozenset[int]:
    ports = [port.get("nodePort", 0) for port in spec.get("ports") or ()]
    return frozenset([*ports, spec.get("healthCheckNodePort", 0)])


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


def _exhausted(what: str) -> ApiError:
    return InternalError(f"failed to allocate {what}: range is full")
