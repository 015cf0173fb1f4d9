"""kubectl, unmodified: roles, bindings, tokens of service accounts, and requests as other users."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.e2e.kubectl import Kubectl
from tests.unit.apiserver.server import Server

from grange.api.http import ADMIN
from grange.apiserver.authn import FirstOf, StaticTokens
from grange.apiserver.listener import Listener
from grange.app import certificates
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client import kubeconfig_contexts

pytestmark = pytest.mark.e2e
BEARER = "an-admin-token"
CI = "system:serviceaccount:default:ci"


@pytest.fixture
async def kubectl(
    tmp_path: Path, clock: Clock, rng: Stream, log: Logger
) -> AsyncIterator[tuple[Kubectl, Kubectl]]:
    """kubectl of the administrator, and one of a service account that may read pods."""
    application = Server(clock=clock, rng=rng, log=log).application
    await application.bootstrap()
    keys = certificates.ensure(tmp_path / "pki", names=("127.0.0.1",), now=clock.now())
    async with Listener(
        application.handle,
        authenticator=FirstOf(StaticTokens({BEARER: ADMIN}), application.accounts),
        ssl_context=keys.server_context(),
        clock=clock,
        log=log,
        drain=application.end_streams,
        admit=application.admit,
    ) as listener:

        def using(name: str, token: str) -> Kubectl:
            config = tmp_path / name
            kubeconfig_contexts.merge(
                config, "grange", listener.url, keys.ca_pem, token, switch=True
            )
            return Kubectl(tmp_path, config)

        admin = using("admin", BEARER)
        await admin.ok("create", "serviceaccount", "ci")
        await admin.ok("create", "role", "reader", "--verb=get,list", "--resource=pods")
        account = ("--role=reader", "--serviceaccount=default:ci")
        await admin.ok("create", "rolebinding", "ci-reader", *account)
        token = (await admin.ok("create", "token", "ci", "--duration=1h")).out.strip()
        yield admin, using("ci", token)


async def test_token_has_the_rights_of_its_account(kubectl: tuple[Kubectl, Kubectl]) -> None:
    admin, ci = kubectl
    assert CI in (await ci.ok("auth", "whoami")).out
    assert (await ci.ok("get", "pods")).out == ""
    refused = await ci("get", "secrets")
    assert refused.code == 1
    assert f'User "{CI}" cannot list resource "secrets"' in refused.err
    rows = (await ci.ok("auth", "can-i", "--list")).lines
    assert [row.split()[-2:] for row in rows if row.startswith("pods ")] == [["[get", "list]"]]
    assert (await ci("auth", "can-i", "delete", "pods")).out == "no\n"
    assert (await ci("get", "pods", "--as=alice")).code == 1
    await admin.ok("delete", "serviceaccount", "ci")
    assert (await ci("get", "pods")).code == 1


async def test_administrator_acts_as_others(kubectl: tuple[Kubectl, Kubectl]) -> None:
    admin, _ = kubectl
    assert (await admin.ok("get", "pods", f"--as={CI}")).out == ""
    refused = await admin("create", "configmap", "settings", f"--as={CI}")
    assert refused.code == 1
    assert f'User "{CI}" cannot create resource "configmaps"' in refused.err
    assert (await admin.ok("auth", "can-i", "list", "pods", f"--as={CI}")).out == "yes\n"
    groups = ("--as-group=dev", "--as-group=ops")
    who = (await admin.ok("auth", "whoami", "--as=alice", *groups)).out
    assert "[dev ops system:authenticated]" in who
    body = """
apiVersion: authorization.k8s.io/v1
kind: SubjectAccessReview
spec:
  user: system:serviceaccount:default:ci
  resourceAttributes: {verb: list, resource: pods, namespace: default}
"""
    words = ("create", "-f", "-", "-o", "jsonpath={.status.allowed}")
    assert (await admin.ok(*words, stdin=body)).out == "true"
