"""The rights that a security context gives and takes."""

from typing import Any

import pytest
from tests.unit.agent.builders import container, pod

from grange.agent import security_context
from grange.agent.container_runtime import Confinement
from grange.agent.errors import NotCreatableError
from grange.agent.users import RunAsUser

ROOT, JANE = RunAsUser(0, 0), RunAsUser(1000, 100)
NET_BIND = 1 << security_context.CAPABILITIES.index("NET_BIND_SERVICE")
ALL = (1 << 41) - 1


def confinement(own: RunAsUser, of_pod: Any = None, **of_container: Any) -> Confinement:
    view = pod(container(securityContext=of_container), securityContext=of_pod or {})
    return security_context.confinement_of(view, view.spec.containers[0], own)


@pytest.mark.parametrize(
    ("capabilities", "mask"),
    [
        ({"drop": ["ALL"]}, 0),
        ({"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}, NET_BIND),
        ({"drop": ["all"], "add": ["CAP_NET_BIND_SERVICE"]}, NET_BIND),
        ({"drop": ["NET_BIND_SERVICE"]}, ALL & ~NET_BIND),
        ({"add": ["NET_BIND_SERVICE"]}, ALL),
        ({}, None),
    ],
)
def test_capabilities_are_what_is_left(capabilities: Any, mask: int | None) -> None:
    assert confinement(ROOT, capabilities=capabilities).capabilities == mask


def test_privileged_program_keeps_its_capabilities() -> None:
    found = confinement(ROOT, privileged=True, capabilities={"drop": ["ALL"]})
    assert found.capabilities is None


def test_unknown_capability_is_refused() -> None:
    with pytest.raises(NotCreatableError, match=r'capabilities\.drop: "FLY" is no capability'):
        confinement(ROOT, capabilities={"drop": ["FLY"]})


def test_agent_without_rights_gives_none_and_allows_no_gain() -> None:
    asked = {"fsGroup": 7, "supplementalGroups": [8]}
    found = confinement(JANE, asked, capabilities={"drop": ["ALL"]})
    assert found == Confinement(no_new_privileges=True)


def test_groups_are_the_pods() -> None:
    found = confinement(ROOT, {"fsGroup": 7, "supplementalGroups": [8, 7]})
    assert found.groups == (8, 7)


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({"allowPrivilegeEscalation": False}, Confinement(no_new_privileges=True)),
        ({"allowPrivilegeEscalation": True}, Confinement()),
        ({"readOnlyRootFilesystem": True}, Confinement(read_only_root=True)),
    ],
)
@pytest.mark.parametrize("own", [ROOT, JANE])
def test_rights_that_any_agent_can_take(
    own: RunAsUser, context: Any, expected: Confinement
) -> None:
    assert confinement(own, **context) == expected
