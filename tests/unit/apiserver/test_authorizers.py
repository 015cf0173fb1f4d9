"""The order of authorizers, and what each request is to them."""

import pytest
from tests.unit.apiserver.server import NAMESPACES, NODES, PODS, Answer

from grange.api.http import ADMIN, Request, User
from grange.api.kinds import BUILT_IN
from grange.api.scheme import Scheme
from grange.apiserver.application import Application
from grange.apiserver.authorization.authorizer import (
    ALLOWED,
    NO_OPINION,
    AuthorizationAttributes,
    AuthorizationDecision,
    AuthorizerChain,
    Opinion,
)
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.store.memory import MemoryStore

BOB = User("bob", ("system:authenticated",))
DENIED = AuthorizationDecision(Opinion.DENIED, "not on my node")


class Fixed:
    """Decides always the same, and keeps what it was asked."""

    def __init__(self, decision: AuthorizationDecision) -> None:
        self.decision = decision
        self.asked: list[AuthorizationAttributes] = []

    def authorize(self, attributes: AuthorizationAttributes) -> AuthorizationDecision:
        self.asked.append(attributes)
        return self.decision


ASKED = AuthorizationAttributes(BOB, "get", "", "pods", "", "default", "web")


def test_first_opinion_decides() -> None:
    last = Fixed(ALLOWED)
    assert AuthorizerChain([Fixed(NO_OPINION), Fixed(DENIED), last]).authorize(ASKED) == DENIED
    assert last.asked == []
    assert AuthorizerChain([Fixed(NO_OPINION), last]).authorize(ASKED) == ALLOWED


def test_reasons_are_joined_where_there_is_no_opinion() -> None:
    reasons = [AuthorizationDecision(Opinion.NONE, text) for text in ("one", "", "two")]
    decision = AuthorizerChain([Fixed(item) for item in reasons]).authorize(ASKED)
    assert (decision.opinion, decision.reason) == (Opinion.NONE, "one; two")


@pytest.fixture
def node_rules() -> Fixed:
    return Fixed(DENIED)


@pytest.fixture
async def application(clock: Clock, rng: Stream, log: Logger, node_rules: Fixed) -> Application:
    made = Application(
        MemoryStore(), Scheme(BUILT_IN), clock=clock, rng=rng, log=log, authorizers=[node_rules]
    )
    await made.bootstrap()
    return made


async def test_further_authorizer_is_asked_after_superusers(
    application: Application, node_rules: Fixed
) -> None:
    assert (await application.handle(Request("GET", PODS, user=ADMIN))).status == 200
    assert node_rules.asked == []
    answer = Answer(await application.handle(Request("GET", "/version", user=BOB)))
    assert (answer.code, answer.message) == (
        403,
        'forbidden: User "bob" cannot get path "/version": not on my node',
    )


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", PODS, ("list", "", "pods", "", "default", "")),
        ("GET", f"{PODS}/web/log", ("get", "", "pods", "log", "default", "web")),
        ("POST", f"{PODS}/web/eviction", ("create", "", "pods", "eviction", "default", "web")),
        ("POST", "/api/v1/bindings", ("create", "", "bindings", "", "", "")),
        ("GET", f"{NAMESPACES}/prod", ("get", "", "namespaces", "", "prod", "prod")),
        ("PATCH", f"{NODES}/n1/status", ("patch", "", "nodes", "status", "", "n1")),
        (
            "DELETE",
            "/apis/grange.dev/v1alpha1/gangjobs",
            ("deletecollection", "grange.dev", "gangjobs", "", "", ""),
        ),
    ],
)
async def test_request_is_described_to_authorizers(
    application: Application,
    node_rules: Fixed,
    method: str,
    path: str,
    expected: tuple[str, str, str, str, str, str],
) -> None:
    assert (await application.handle(Request(method, path, user=BOB))).status == 403
    [asked] = node_rules.asked
    assert asked == AuthorizationAttributes(BOB, *expected)
