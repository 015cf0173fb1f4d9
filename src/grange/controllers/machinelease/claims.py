"""Giving machines to a lease: mark the nodes, check that they are empty, and grant."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby

import msgspec

from grange.api import conditions, timestamps
from grange.api.kinds import MACHINELEASE, NODE, POD
from grange.api.kinds.machinelease import (
    GRANTED,
    MACHINE_LEASE,
    MACHINES_REQUESTED,
    MachineLease,
    foreign_pods,
)
from grange.api.kinds.node import Node
from grange.api.meta import Document, preconditions
from grange.api.status import ApiError, Conflict, NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.client.client import Client
from grange.controllers.machinelease import logic, node_marks
from grange.controllers.machinelease.lease_listers import LeaseListers
from grange.placement.machine_pools import is_usable
from grange.placement.machine_table import lease_of
from grange.reconcile.side_by_side import side_by_side

_ATTEMPTS = 4  # a node or lease that others write to meanwhile is read again so often
Machines = Mapping[str, Collection[str]]


class LeaseClaims:
    """Claims machines for leases.

    Args:
        client: to the API.
        listers: what is known; every write is reported to them.
        clock: time.
        log: where machines that could not be claimed are reported.
    """

    def __init__(self, client: Client, listers: LeaseListers, *, clock: Clock, log: Logger) -> None:
        self._client, self._listers, self._clock, self._log = client, listers, clock, log

    def choose(self, lease: MachineLease) -> dict[str, list[str]] | None:
        """Machines for a lease by pool, its own marked ones first; None if there are too few."""
        table = self._listers.table
        own: dict[str, list[str]] = {}
        for machine in table.of(lease.metadata.uid):
            if machine.usable and not machine.busy:
                own.setdefault(machine.pool, []).append(machine.node)
        chosen: dict[str, list[str]] = {}
        for request in lease.spec.machines:
            found = [*own.get(request.pool, ()), *table.free(request.pool)][: request.count]
            if len(found) < request.count:
                return None
            chosen[request.pool] = found
        return chosen

    def begin(self, lease: MachineLease, machines: Machines) -> None:
        """No other lease is given these machines until ``end``."""
        uid = lease.metadata.uid
        self._listers.claiming.add(uid)
        self._listers.queue.hold(logic.granted(lease, self._clock.now().timestamp()))
        for pool, nodes in machines.items():
            for node in nodes:
                self._listers.table.claim(node, uid)
            self._listers.count_pool(pool)

    def end(self, lease: MachineLease, machines: Machines) -> None:
        """What the machines and the lease are follows from what is written again."""
        self._listers.claiming.discard(lease.metadata.uid)
        for pool, nodes in machines.items():
            for node in nodes:
                self._listers.table.settle(node)
            self._listers.count_pool(pool)
        self._listers.observe_lease(lease.key)

    async def claim(self, lease: MachineLease, machines: Machines) -> MachineLease | None:
        """Claim the machines and grant the lease.

        Returns:
            The granted lease; None if a machine or the lease could not be had. What was marked
            stays marked then: the claim is completed or undone by the next decision.

        Raises:
            ApiError: a request failed whose outcome is unknown.
        """
        names = [node for nodes in machines.values() for node in nodes]
        done: dict[str, bool] = {}

        async def one(name: str) -> None:
            try:
                done[name] = await self._mark(name, lease) and await self._is_alone(name, lease)
            except ApiError:
                self._listers.avoid(name)
                raise

        await side_by_side(names, one)
        for name in names:
            if not done[name]:
                self._log.info("machine not claimed", node=name, lease=lease.key)
                self._listers.avoid(name)
        return await self._grant(lease, machines) if all(done.values()) else None

    async def undo(self, nodes: Sequence[str], lease: str) -> None:
        """Take the marks of a lease off nodes.

        Raises:
            ApiError: they are still there, perhaps.
        """
        for name in nodes:
            await self.unmark(name, lease)

    async def unmark(self, name: str, lease: str) -> None:
        """Take the marks of a lease off a node, where it bears them.

        Raises:
            ApiError: they are still there, perhaps.
        """
        await self._change(name, lease, node_marks.unmarked)

    async def mark_dirty(self, name: str, lease: str) -> None:
        """Have a node of a lease wait until it is cleaned.

        Raises:
            ApiError: nothing was written, or the outcome is unknown.
        """
        await self._change(name, lease, node_marks.dirty)

    async def _change(self, name: str, lease: str, patch: Callable[[Node], Document]) -> None:
        """Write to a node that bears the marks of a lease; one that is gone is left alone."""
        node = self._listers.node(name)
        conflict: Conflict | None = None
        for _ in range(_ATTEMPTS):
            if node is None or lease_of(node) != lease:
                return
            try:
                written = await self._client.patch(NODE, name, patch=patch(node))
            except NotFound:
                return
            except Conflict as error:  # the cache is behind, for as long as its watch is silent
                conflict, node = error, await self._live(name)
                if node is not None:
                    self._listers.wrote_node(node)
            else:
                self._listers.wrote_node(written)
                return
        if conflict is not None:
            raise conflict

    async def _mark(self, name: str, lease: MachineLease) -> bool:
        """Mark a node that is free; whether it bears the marks."""
        uid, node = lease.metadata.uid, self._listers.node(name)
        if node is not None and lease_of(node) == uid:
            # Of a claim that was begun before: it may be taken off again, by a write whose answer was lost.
            node = await self._live(name)
        for _ in range(_ATTEMPTS):
            if node is None or not is_usable(node) or lease_of(node) not in {"", uid}:
                return False
            if uid == node.metadata.labels.get(MACHINE_LEASE):
                return True
            patch = node_marks.marked(node, uid, logic.holder_text(lease))
            try:
                self._listers.wrote_node(await self._client.patch(NODE, name, patch=patch))
            except NotFound:
                return False
            except Conflict:  # its agent or another client wrote first
                node = await self._live(name)
            else:
                return True
        return False

    async def _live(self, name: str) -> Node | None:
        try:
            return await self._client.get(NODE, name)
        except NotFound:
            return None

    async def _is_alone(self, name: str, lease: MachineLease) -> bool:
        """Whether the server knows no pod of others on a node that bears the marks.

        One that was bound before the marks were written is known to it; later ones are kept away.
        """
        listed = await self._client.list(POD, fields=f"spec.nodeName={name}")
        foreign = foreign_pods(listed.items, lease.metadata.uid)
        if foreign:
            await self.unmark(name, lease.metadata.uid)
        return not foreign

    async def _grant(self, lease: MachineLease, machines: Machines) -> MachineLease | None:
        now = self._clock.now()
        assigned = logic.assignment(lease, machines)
        by_pool = [
            f"{pool}: {', '.join(item.node for item in items)}"
            for pool, items in groupby(assigned, key=lambda item: item.pool)
        ]
        verdict = "True", "MachinesClaimed", "; ".join(by_pool)
        for _ in range(_ATTEMPTS):
            generation = lease.metadata.generation
            found = lease.status.conditions
            verdicts = {"Granted": verdict, "MachinesReady": logic.MACHINES_READY}
            if conditions.find(found, MACHINES_REQUESTED) is not None:
                verdicts[MACHINES_REQUESTED] = "False", "Granted", "it has its machines"
            for kind, why in verdicts.items():
                found = conditions.set_status(found, kind, why, generation=generation, now=now)
            status = {
                "observedGeneration": generation,
                "phase": GRANTED,
                "machines": msgspec.to_builtins(assigned),
                "position": 0,
                "reason": "",
                "message": "",
                "expectedStart": None,
                "grantedTime": timestamps.rfc3339(now),
                "conditions": msgspec.to_builtins(found),
            }
            patch = {"metadata": preconditions(lease.metadata), "status": status}
            try:
                granted = await self._client.patch(
                    MACHINELEASE, *_name(lease), patch=patch, subresource="status"
                )
            except NotFound:
                return None
            except Conflict:  # its holder renewed it, or it was deleted
                try:
                    live = await self._client.get(MACHINELEASE, *_name(lease))
                except NotFound:
                    return None
                if live.metadata.uid != lease.metadata.uid or not logic.is_waiting(live):
                    return None
                lease = live
            else:
                self._listers.wrote_lease(granted)
                return granted
        return None


def _name(lease: MachineLease) -> tuple[str, str]:
    return lease.metadata.name, lease.metadata.namespace
