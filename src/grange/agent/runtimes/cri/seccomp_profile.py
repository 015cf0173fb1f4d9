"""The seccomp profile of a container that stops at bind(2) and connect(2) and asks; pure."""

from collections.abc import Mapping
from typing import Any

_ASKED = ("bind", "connect")
_ALLOW, _ASK = "SCMP_ACT_ALLOW", "SCMP_ACT_NOTIFY"


def asking(profile: Mapping[str, Any], socket: str) -> dict[str, Any]:
    """A profile that allows what another one does, and asks at a socket about bind and connect.

    Args:
        profile: as the OCI runtime specification has it; it allows both without a condition.
        socket: path of the seccomp agent's.
    """
    rules = []
    for rule in profile.get("syscalls") or ():
        names = rule["names"]
        if rule["action"] == _ALLOW and not rule.get("args"):
            names = [name for name in names if name not in _ASKED]
        if names:
            rules.append({**rule, "names": names})
    rules.append({"names": list(_ASKED), "action": _ASK})
    return {**profile, "syscalls": rules, "listenerPath": socket}
