"""How a machine or a pod resolves names: the content of ``resolv.conf``."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResolverConfig:
    """What ``resolv.conf`` states.

    Attributes:
        nameservers: addresses, the first to be asked first.
        searches: domains in which short names are looked up.
        options: as they are written, e.g. ``ndots:5``.
    """

    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def parse_resolver(text: str) -> ResolverConfig:
    """Read a ``resolv.conf``; what is not understood is left out."""
    nameservers: list[str] = []
    searches: list[str] = []
    options: list[str] = []
    for line in text.splitlines():
        word, *values = line.partition("#")[0].split() or [""]
        if word == "nameserver" and values:
            nameservers.append(values[0])
        elif word in ("search", "domain"):
            searches = values  # the last one counts
        elif word == "options":
            options += values
    return ResolverConfig(tuple(nameservers), tuple(searches), tuple(options))
