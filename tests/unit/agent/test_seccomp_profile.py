"""The profile of a container that asks at bind and connect allows what the runtime's own one does."""

from typing import Any

from grange.agent.runtimes.cri.seccomp_profile import asking

SOCKET = "/run/agent"


def allowed(profile: dict[str, Any]) -> dict[str, str]:
    """What happens at each call that a rule without a condition names."""
    return {
        name: rule["action"]
        for rule in profile["syscalls"]
        if not rule.get("args")
        for name in rule["names"]
    }


def test_profile_asks_at_bind_and_connect_alone() -> None:
    conditional = {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0}]}
    profile = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": [
            {"names": ["accept", "bind", "close", "connect"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["connect"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
            conditional,
        ],
    }
    found = asking(profile, SOCKET)
    assert allowed(found) == {
        "accept": "SCMP_ACT_ALLOW",
        "close": "SCMP_ACT_ALLOW",
        "clone3": "SCMP_ACT_ERRNO",
        "bind": "SCMP_ACT_NOTIFY",
        "connect": "SCMP_ACT_NOTIFY",
    }
    assert conditional in found["syscalls"]
    assert found["listenerPath"] == SOCKET
    assert {name: found[name] for name in ("defaultAction", "architectures")} == {
        name: profile[name] for name in ("defaultAction", "architectures")
    }


def test_profile_without_rules_asks() -> None:
    assert allowed(asking({"defaultAction": "SCMP_ACT_ALLOW"}, SOCKET)) == {
        "bind": "SCMP_ACT_NOTIFY",
        "connect": "SCMP_ACT_NOTIFY",
    }
