"""Plays the controller of test sessions for what watches them: each session by a script."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from tests.support.controller_world import World
from tests.unit.cli.sessions import opened

from grange.api.http import ADMIN, Request, Response
from grange.api.kinds import POD, TESTSESSION
from grange.api.kinds.testsession import SESSION_LABEL, SESSION_UID_LABEL, TestSession
from grange.api.meta import Document
from grange.api.status import ApiError, NotFound, ServiceUnavailable
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.session import ApiSession
from grange.cli.testruns import run_plan
from grange.cli.testruns.run_plan import PlannedSession, PlanSettings
from grange.client.access import Access
from grange.client.transport import Transport
from grange.client.transports.inprocess import InProcess

PHASES = {
    "Passed": "Succeeded",
    "Failed": "Failed",
    "Error": "Errored",
    "Cancelled": "Cancelled",
}


@dataclass(frozen=True)
class Script:
    """What becomes of a session.

    Attributes:
        verdict: of a session that is not cancelled.
        runs_s: virtual seconds from Running to the verdict.
        log: of the driver.
        more: fields of the final status.
    """

    verdict: str = "Passed"
    runs_s: float = 1.0
    log: bytes = b"hello\nbye\n"
    more: Document = field(default_factory=dict)


class Player(World):
    """A world that plays sessions: by ``scripts`` of their test names, else they pass.

    Attributes:
        running: sessions that run now, by name, in the order of their start.
        most: how many ran at a time.
        order: test names in the order of their start.
        breaks: how often a log breaks off after its first bytes.
    """

    def __init__(self, clock: Clock, rng: Stream, log: Logger) -> None:
        super().__init__(clock, rng, log)
        self.scripts: dict[str, Script] = {}
        self.running: dict[str, str] = {}
        self.most = 0
        self.order: list[str] = []
        self.breaks = 0
        self._logs: dict[str, bytes] = {}

    def connect(self) -> ApiSession:
        return opened(self.new_client(), clock=self.clock, rng=self.rng, log=self.log)

    async def handle(self, request: Request) -> Response:
        if request.path.endswith("/log"):
            if (error := self.gate(request)) is not None:
                raise error
            log = self._logs.get(request.path.split("/")[-2])
            if log is None:
                raise NotFound("no such pod")
            return Response(200, chunks=self._streamed(log))
        return await super().handle(request)

    async def _streamed(self, log: bytes) -> AsyncGenerator[bytes, None]:
        for at in range(0, len(log), 4):  # lines arrive in pieces
            yield log[at : at + 4]
            if self.breaks:
                self.breaks -= 1
                raise ServiceUnavailable("reset")

    async def play(self) -> None:
        """Play every session that is created, until cancelled."""
        seen: set[str] = set()
        while True:
            for item in (await self.client.list(TESTSESSION)).items:
                if item.metadata.uid not in seen:
                    seen.add(item.metadata.uid)
                    self.nursery.start(self._play(item))
            await self.clock.sleep(0.05)

    async def _play(self, session: TestSession) -> None:
        name, test = session.metadata.name, session.spec.test_name
        script = self.scripts.get(test, Script())
        driver = {"name": "driver", "role": "driver", "pod": f"{name}-driver", "node": "n1"}
        await self._status(name, phase="Running", components=[{**driver, "health": "Ready"}])
        self.running[name] = test
        self.order.append(test)
        self.most = max(self.most, len(self.running))
        await self._add_pod(session, script)
        end = self.clock.monotonic() + script.runs_s
        verdict = script.verdict
        while self.clock.monotonic() < end:
            try:
                found = await self.client.get(TESTSESSION, name, "default")
            except NotFound:
                self.running.pop(name)
                return
            if found.spec.cancel:
                verdict = "Cancelled"
                break
            await self.clock.sleep(0.05)
        health = "Succeeded" if verdict == "Passed" else "Failed"
        now = "2030-01-01T00:00:00Z"
        final: Document = {
            "phase": PHASES[verdict],
            "verdict": verdict,
            "components": [{**driver, "health": health, "finishedTime": now}],
            **script.more,
        }
        self.running.pop(name)
        await self._status(name, **final)

    async def _status(self, name: str, **status: Any) -> None:
        patch = {"status": status}
        await self.client.patch(TESTSESSION, name, "default", patch=patch, subresource="status")

    async def _add_pod(self, session: TestSession, script: Script) -> None:
        meta = session.metadata
        pod = f"{meta.name}-driver"
        labels = {SESSION_LABEL: meta.name, SESSION_UID_LABEL: meta.uid}
        document: Document = {
            "metadata": {"name": pod, "labels": labels},
            "spec": {"containers": [{"name": "main", "command": ["true"]}]},
        }
        self._logs[pod] = script.log
        await self.client.create(POD, document, "default")
        state = {"running": {"startedAt": "2030-01-01T00:00:00Z"}}
        status = {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": "main",
                    "state": state,
                    "ready": True,
                    "restartCount": 0,
                    "image": "",
                    "imageID": "",
                }
            ],
        }
        await self.client.patch(POD, pod, "default", patch={"status": status}, subresource="status")


def refuse_first(count: int, method: str, error: ApiError) -> Any:
    """A gate that refuses the first requests about sessions."""
    left = [count]

    def gate(request: Request) -> ApiError | None:
        if request.method == method and "/testsessions" in request.path and left[0]:
            left[0] -= 1
            return error
        return None

    return gate


def manifest(name: str, pool: str = "", **spec: Any) -> Document:
    meta: Document = {"name": name}
    if pool:
        meta["annotations"] = {"pool": pool}
    return {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "TestSession",
        "metadata": meta,
        "spec": {"driver": {"command": ["true"]}, **spec},
    }


def planned(*manifests: Document, **settings: Any) -> list[PlannedSession]:
    return run_plan.plan(manifests, PlanSettings(run="abcde", **settings))


KEPT = {
    "logs/0/qps-abcde-driver/main.log": b"first attempt\n",
    "logs/1/qps-abcde-driver/main.log": b"2030-01-01T00:00:00.123456789Z one\ntwo\n",
    "logs/1/qps-abcde-server-0/main.log": b"serving\n",
    "artifacts/1/driver/a/result.json": b"{}",
    "artifacts/1/driver/../../../../escape": b"out",
}
URL = "https://10.0.0.1:7000/v1/sessions/uid/evidence"
Series = Callable[[Request], Response]


def no_series(request: Request) -> Response:
    return Response(503, b"the disk is gone\n")


def series_of(
    *runs: tuple[str, str, float], verdict: str = "Passed", levels: Mapping[str, str] | None = None
) -> Series:
    """A service that has the figure p99 of qps: UIDs, times and values, and marks by UID."""

    def answer(request: Request) -> Response:
        assert request.path == "/v1/series/default/qps/p99"
        assert request.query == {"last": "100", "verdict": "Passed"}
        points = [
            {
                "uid": uid,
                "time": time,
                "value": value,
                "verdict": verdict,
                "attributes": {"level": (levels or {}).get(uid, "")},
            }
            for uid, time, value in runs
        ]
        return Response(200, json.dumps({"points": points}).encode())

    return answer


def with_evidence(there: Player, series: Series = no_series, **access: Any) -> ApiSession:
    """A connection to a cluster whose service keeps ``KEPT``, and figures."""
    connected = there.connect()

    async def serve(request: Request) -> Response:
        if request.path.startswith("/v1/series/"):
            return series(request)
        path = request.path.removeprefix("/v1/sessions/uid/evidence")
        if not path:
            files = [{"path": path, "size": len(body)} for path, body in KEPT.items()]
            return Response(200, json.dumps({"files": files}).encode())
        body = KEPT.get(unquote(path).removeprefix("/"))
        return Response(404) if body is None else Response(200, body)

    def connect(to: Access, clock: Clock) -> Transport:
        assert to.server == "https://10.0.0.1:7000"
        return InProcess(serve, ADMIN)

    env = replace(connected.env, connect=connect)
    usual = {"server": "https://10.0.0.2:6443", "ca_pem": b"ca", "token": "secret"}
    return ApiSession(connected.client, "default", env, Access(**{**usual, **access}))
