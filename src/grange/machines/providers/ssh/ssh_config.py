"""The ``providerConfig`` of pools of hosts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grange.api import names
from grange.api.quantity import QuantityError, parse
from grange.machines.catalogue import InstanceType, Offering
from grange.machines.providers.config_reader import ConfigReader
from grange.machines.providers.ssh.host_scripts import RELEASE, WIPE

_FIELDS = frozenset({"hosts", "keySecret", "knownHosts", "release", "types", "wipe"})
_HOST = frozenset({"address", "directory", "name", "port", "sudo", "type", "user"})
_DIRECTORY = "/var/lib/grange-machine"


@dataclass(frozen=True, slots=True)
class SshHost:
    """A host.

    Attributes:
        name: unique; the zone of what it offers.
        address: by which it is reached.
        type: what it is.
        port, user: of its SSH server.
        sudo: commands are run by ``sudo``, without a password.
        directory: where claims are kept.
    """

    name: str
    address: str
    type: str
    port: int = 22
    user: str = "root"
    sudo: bool = False
    directory: str = _DIRECTORY


@dataclass(frozen=True, slots=True)
class SshConfig:
    """What a pool states.

    Attributes:
        hosts: all of them.
        types: what hosts can be, each with an offering for each of its hosts.
        key_secret: name of the Secret with the private key.
        known_hosts: keys of the hosts, as OpenSSH has them.
        release: commands that end what a machine runs and remove what it left.
        wipe: commands that remove what a holder left.
    """

    hosts: tuple[SshHost, ...]
    types: Mapping[str, InstanceType]
    key_secret: str
    known_hosts: str
    release: str = RELEASE
    wipe: str = WIPE


def read_config(given: object) -> SshConfig:
    """The configuration of a pool.

    Raises:
        MisconfiguredError: it is malformed.
    """
    reader = ConfigReader(given, _FIELDS)
    kinds = reader.table("types")
    hosts = tuple(
        _host(one, f"hosts[{index}]", kinds) for index, one in enumerate(reader.objects("hosts"))
    )
    if not hosts:
        raise reader.wrong("hosts", "is empty", "add hosts")
    seen = [host.name for host in hosts]
    for index, name in enumerate(seen):
        if name in seen[:index]:
            raise reader.wrong(f"hosts[{index}].name", f"{name} is there twice", "use another name")
    if not (known_hosts := reader.text("knownHosts")).strip():
        raise reader.wrong("knownHosts", "is empty", "add the output of ssh-keyscan, checked")
    return SshConfig(
        hosts=hosts,
        types={name: _type(name, kinds[name], hosts) for name in sorted(kinds)},
        key_secret=reader.text("keySecret"),
        known_hosts=known_hosts,
        release=reader.text("release", RELEASE),
        wipe=reader.text("wipe", WIPE),
    )


def _host(given: Mapping[str, Any], path: str, kinds: Mapping[str, Any]) -> SshHost:
    reader = ConfigReader(given, _HOST, f"spec.providerConfig.{path}")
    address = reader.text("address")
    name = reader.text("name", address)
    if why := names.check_label_value(name):
        raise reader.wrong("name", f"{name!r}: {why}", "give a name that labels can have")
    kind = reader.text("type", next(iter(kinds), ""))
    if kind not in kinds:
        raise reader.wrong("type", f"is {kind!r}", "use a name of spec.providerConfig.types")
    directory = reader.text("directory", _DIRECTORY)
    if not directory.startswith("/") or "\n" in directory:
        raise reader.wrong("directory", "is no absolute path", "use an absolute path")
    return SshHost(
        name,
        address,
        kind,
        port=reader.number("port", 22, 1, 65535),
        user=reader.text("user", "root"),
        sudo=reader.flag("sudo"),
        directory=directory,
    )


def _type(name: str, given: Mapping[str, Any], hosts: tuple[SshHost, ...]) -> InstanceType:
    path = f"spec.providerConfig.types.{name}"
    reader = ConfigReader(given, frozenset(given), path)
    price = reader.price("price")
    room = {key: str(value) for key, value in given.items() if key != "price"}
    for key in ("cpu", "memory"):
        if key not in room:
            raise reader.wrong(key, "is missing", "add it")
    for key, value in room.items():
        try:
            parse(value)
        except QuantityError as error:
            raise reader.wrong(key, str(error), "use a quantity") from error
    offerings = tuple(Offering(one.name, price=price) for one in hosts if one.type == name)
    return InstanceType(name, {"pods": "110", **room}, offerings=offerings)
