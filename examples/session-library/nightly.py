"""Measures how long requests take with one, two and three servers, as three test sessions."""

import asyncio
import sys

from grange import ObjectMeta, connect
from grange.sessions import (
    Controller,
    ControllerOptions,
    MemorySessionStore,
    SessionComponent,
    SessionEventKind,
    TestSession,
    TestSessionSpec,
)

DRIVER = """
import os, time, urllib.request
workers = os.environ["QPS_WORKERS"].split(",")
started = time.perf_counter()
for number in range(100):
    urllib.request.urlopen(f"http://{workers[number % len(workers)]}/").read()
elapsed = time.perf_counter() - started
print(f"{len(workers)} servers: {elapsed * 10:.1f} ms per request")
"""


def session(servers: int) -> TestSession:
    server = SessionComponent(
        pool="workers",
        count=servers,
        command=("python3", "-m", "http.server", "10000", "--bind", "$(POD_IP)"),
        env=({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},),
        readiness_probe={"tcpSocket": {"port": 10000}, "periodSeconds": 1},
    )
    driver = SessionComponent(pool="drivers", command=("python3", "-c", DRIVER))
    spec = TestSessionSpec(driver=driver, servers=(server,))
    return TestSession(metadata=ObjectMeta(name=f"http-{servers}"), spec=spec)


async def main() -> int:
    store = MemorySessionStore()
    options = ControllerOptions(executor_count=2, test_timeout_s=300, impossible_grace_s=30)
    async with connect() as client, Controller(client, store, options) as controller:
        await controller.start()
        sessions = [session(servers) for servers in (1, 2, 3)]
        for item in sessions:
            store.store_session(item)
            controller.schedule(item)
        await controller.wait()
        await controller.stop()
    failed = 0
    for item in sessions:
        last = store.events(item.metadata.name)[-1]
        print(last.kind.name, item.metadata.name, last.driver_logs.decode().strip())
        if last.kind is not SessionEventKind.DONE:
            print(last.description)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
