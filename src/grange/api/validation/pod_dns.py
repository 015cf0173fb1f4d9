"""Rules of how a pod's programs resolve names, and of its host name."""

import ipaddress
from typing import Any

from grange.api import names
from grange.api.validation.causes import Faults

DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_NAMESERVERS_MAX, _SEARCHES_MAX, _SEARCH_CHARS_MAX = 3, 32, 2048
_OVERRIDE_MAX = 64


def check_pod_dns(spec: dict[str, Any], path: str, faults: Faults) -> None:
    """The faults of a pod spec at ``path``."""
    _check_hostname(spec, path, faults)
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        at = f"{path}.hostAliases[{index}]"
        _check_address(alias.get("ip", ""), f"{at}.ip", faults)
        for number, name in enumerate(alias.get("hostnames") or ()):
            faults.named(f"{at}.hostnames[{number}]", name, names.check_dns_subdomain(name))
    config = spec.get("dnsConfig") or {}
    nameservers = config.get("nameservers") or ()
    if spec.get("dnsPolicy") == "None" and not nameservers:
        message = "must have at least one nameserver when `dnsPolicy` is None"
        faults.required(f"{path}.dnsConfig.nameservers", message)
    _check_config(config, f"{path}.dnsConfig", faults)


def _check_hostname(spec: dict[str, Any], path: str, faults: Faults) -> None:
    for field in ("hostname", "subdomain"):
        if value := spec.get(field):
            faults.named(f"{path}.{field}", value, names.check_dns_label(value))
    override = spec.get("hostnameOverride")
    if override is None:
        return
    at = f"{path}.hostnameOverride"
    faults.named(at, override, names.check_dns_subdomain(override))
    if len(override) > _OVERRIDE_MAX:
        faults.too_long(at, f"may not be more than {_OVERRIDE_MAX} characters")
    for field in ("hostNetwork", "setHostnameAsFQDN"):
        if spec.get(field):
            faults.forbidden(at, f"may not be set when `{field}` is true")


def _check_config(config: dict[str, Any], path: str, faults: Faults) -> None:
    nameservers, searches = config.get("nameservers") or (), config.get("searches") or ()
    if len(nameservers) > _NAMESERVERS_MAX:
        message = f"may not have more than {_NAMESERVERS_MAX} nameservers"
        faults.too_long(f"{path}.nameservers", message)
    for index, address in enumerate(nameservers):
        _check_address(address, f"{path}.nameservers[{index}]", faults)
    if len(searches) > _SEARCHES_MAX:
        faults.too_long(f"{path}.searches", f"may not have more than {_SEARCHES_MAX} domains")
    if len(" ".join(searches)) > _SEARCH_CHARS_MAX:
        message = f"may not have more than {_SEARCH_CHARS_MAX} characters in all"
        faults.too_long(f"{path}.searches", message)
    for index, domain in enumerate(searches):
        trimmed = domain.removesuffix(".")
        if domain != "." and (fault := names.check_dns_subdomain(trimmed.replace("_", "x"))):
            faults.named(f"{path}.searches[{index}]", domain, fault)
    for index, option in enumerate(config.get("options") or ()):
        text = f"{option.get('name') or ''}{option.get('value') or ''}"
        if not option.get("name"):
            faults.required(f"{path}.options[{index}].name")
        elif any(char.isspace() for char in text):
            faults.invalid(f"{path}.options[{index}]", text, "must not contain whitespace")


def _check_address(text: str, path: str, faults: Faults) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        faults.invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7)")
