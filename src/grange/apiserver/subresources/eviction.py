"""``eviction``: a delete that asks first, as ``kubectl drain`` does.

What may refuse it is the pod's disruption budget or, where there is none, the minimum of its
ReplicationController (``controller_minimum``). Granting an eviction is one write of the budget's
status, which takes one from what it allows and notes the pod; the write is made on the newest
accepted state, so two evictions never spend the same allowance. The disruption controller gives it
back when the pod is gone or, if it never goes, after a while.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from grange.api import timestamps
from grange.api.fields import lookup
from grange.api.http import Response
from grange.api.kinds.pod import DISRUPTION_TARGET
from grange.api.kinds.poddisruptionbudget import (
    ALWAYS_ALLOW,
    DISRUPTION_ALLOWED,
    INSUFFICIENT_PODS,
)
from grange.api.meta import Document
from grange.api.selectors import Labels, SelectorError
from grange.api.status import (
    ApiError,
    BadRequest,
    Cause,
    Conflict,
    Forbidden,
    InternalError,
    TooManyRequests,
)
from grange.apiserver import storage
from grange.apiserver.admission import Attributes
from grange.apiserver.registry import Place, Rewrite, Written
from grange.apiserver.request_context import Call, success
from grange.apiserver.subresources import controller_minimum
from grange.apiserver.subresources.subresource import Subresource
from grange.apiserver.write_options import DeleteOptions, WriteOptions, delete_options

DISRUPTED_MAX = 2000  # evictions that were granted and not seen to happen
_DEFINITION = "io.k8s.api.policy.v1.Eviction"
_AGAIN_S = 10
_ATTEMPTS = 5
_CAUSE = "DisruptionBudget"
_FREE = frozenset({"Pending", "Succeeded", "Failed"})


async def _create(call: Call) -> Response:
    place, eviction = call.place, call.request_object(_DEFINITION)
    if eviction.get("kind", "Eviction") != "Eviction":
        raise BadRequest("the body of an eviction must be a policy/v1 Eviction")
    given = eviction.get("deleteOptions") or {}
    if not isinstance(given, dict):
        raise BadRequest("deleteOptions of the eviction must be an object")
    asked = delete_options(call.request.query, given)
    for _ in range(_ATTEMPTS):
        with suppress(_Overtaken):
            outcome = await _evicted(call, asked)
            return success(place, outcome.value, code=201)
    raise _too_many(f"The pod {place.name} is changing.")


class _Overtaken(Exception):
    """The pod has another version than the one that its controller's minimum was charged for."""


async def _evicted(call: Call, asked: DeleteOptions) -> Written:
    """Ask, and delete the pod.

    Raises:
        _Overtaken: the pod changed meanwhile; ask again.
        ApiError: the eviction is refused.
    """
    pod = storage.decode(call.registry.get(call.place).value, call.registry.work)
    meta = pod["metadata"]
    charged: Sequence[Place] = ()
    fenced, asks = False, not _is_another(meta, asked) and not _is_free(pod)
    if asks:
        budgets = await _budgets(call, pod)
        if budgets:
            charged = await _granted(call, pod, asked, budgets)
        else:
            fenced = await _is_charged(call, pod, asked) and not asked.resource_version
    try:
        if asks:
            version = await _mark(call, pod, asked, fenced=fenced)
            # What was granted is the end of this pod, not of one that took its name meanwhile.
            asked = replace(asked, uid=meta["uid"], resource_version=version)
        return await call.registry.delete(call.place, asked)
    except ApiError as error:
        await _give_back(call, charged, asked)
        if fenced and isinstance(error, Conflict):
            raise _Overtaken from error
        raise


async def _is_charged(call: Call, pod: Document, asked: DeleteOptions) -> bool:
    """Whether the minimum of the pod's controller was asked, and has a pod less now.

    Raises:
        TooManyRequests: it needs the pod.
    """
    try:
        return await controller_minimum.charge(call.registry, pod, dry_run=asked.dry_run)
    except controller_minimum.EvictionRefused as error:
        raise _too_many(str(error)) from None


def _is_free(pod: Document) -> bool:
    """Whether the end of the pod disturbs nothing."""
    return bool(pod["metadata"].get("deletionTimestamp")) or lookup(pod, "status.phase") in _FREE


def _is_another(meta: Document, asked: DeleteOptions) -> bool:
    """Whether the preconditions mean another pod, or another version: the delete will refuse."""
    return asked.uid not in ("", meta["uid"]) or asked.resource_version not in (
        "",
        meta["resourceVersion"],
    )


async def _granted(
    call: Call, pod: Document, asked: DeleteOptions, budgets: Sequence[tuple[Place, Document]]
) -> Sequence[Place]:
    """Have the budget grant it; what was charged.

    Raises:
        TooManyRequests: the budget allows none now.
        Forbidden: the budget's status is not to be relied on.
        InternalError: several budgets cover the pod.
    """
    if len(budgets) > 1:
        raise InternalError(
            f"pod {call.place.name} is covered by {len(budgets)} disruption budgets "
            f"({', '.join(place.name for place, _ in budgets)}); eviction supports one"
        )
    name, now = call.place.name, timestamps.rfc3339(call.clock.now())

    def charge(newest: Document) -> Document:
        return _charged(newest, name, now)

    taken: list[Place] = []
    for place, budget in budgets:
        if not _is_ready(pod) and _lets_unready_go(budget):
            continue
        await _rewrite(call, Rewrite(place, _attempt(place), charge), asked)
        taken.append(place)
    return taken


async def _give_back(call: Call, charged: Sequence[Place], asked: DeleteOptions) -> None:
    """The pod stays: nothing is to wait for its end. Its controller counts it again."""
    name = call.place.name

    def uncharged(newest: Document) -> Document:
        status = newest.get("status") or {}
        disrupted = {k: v for k, v in (status.get("disruptedPods") or {}).items() if k != name}
        return {**newest, "status": {**status, "disruptedPods": disrupted}}

    for place in charged:
        with suppress(ApiError):  # it is given back after a while by itself
            await _rewrite(call, Rewrite(place, _attempt(place), uncharged), asked)


async def _budgets(call: Call, pod: Document) -> list[tuple[Place, Document]]:
    """The budgets that cover the pod."""
    registry, namespace = call.registry, call.place.namespace
    info = registry.scheme.resource("policy", "v1", "poddisruptionbudgets")
    if info is None:
        return []
    labels = pod["metadata"].get("labels") or {}
    found = []
    listed = await registry.store.list(storage.prefix(info, namespace))
    for entry in call.watches.unreadable.readable(listed.entries):
        budget = storage.decode(entry.value, registry.work)
        try:
            chosen = Labels.of(lookup(budget, "spec.selector")).matches(labels)
        except SelectorError:
            continue
        if chosen:
            found.append((Place(info, namespace, budget["metadata"]["name"]), budget))
    return found


def _is_ready(pod: Document) -> bool:
    conditions = lookup(pod, "status.conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _lets_unready_go(budget: Document) -> bool:
    if lookup(budget, "spec.unhealthyPodEvictionPolicy") == ALWAYS_ALLOW:
        return True
    status = budget.get("status") or {}
    wanted, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    return bool(0 < wanted <= healthy)


def _charged(budget: Document, pod: str, now: str) -> Document:
    """The budget with one eviction less to give; it is not changed."""
    meta, status = budget["metadata"], budget.get("status") or {}
    name, allowed = meta["name"], status.get("disruptionsAllowed", 0)
    disrupted = status.get("disruptedPods") or {}
    if status.get("observedGeneration", 0) < meta.get("generation", 0):
        raise _too_many(f"The disruption budget {name} is still being processed by the server.")
    if len(disrupted) >= DISRUPTED_MAX:
        why = f"{len(disrupted)} evictions were granted that have not been seen to happen"
        raise Forbidden(f'poddisruptionbudgets.policy "{name}" is forbidden: {why}', name=name)
    if allowed <= 0:
        needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _too_many(
            f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
        )
    after = {
        **status,
        "disruptionsAllowed": allowed - 1,
        "disruptedPods": {**disrupted, pod: now},
    }
    if allowed == 1:
        condition = {
            "type": DISRUPTION_ALLOWED,
            "status": "False",
            "reason": INSUFFICIENT_PODS,
            "message": "",
            "lastTransitionTime": now,
            "observedGeneration": meta.get("generation", 0),
        }
        after["conditions"] = _with(status, condition)
    return {**budget, "status": after}


def _with(status: Document, condition: Document) -> list[Document]:
    kept = [i for i in status.get("conditions") or () if i["type"] != condition["type"]]
    return [*kept, condition]


def _too_many(message: str) -> TooManyRequests:
    return TooManyRequests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        causes=[Cause(_CAUSE, message, "")],
        retry_after_s=_AGAIN_S,
    )


async def _mark(call: Call, pod: Document, asked: DeleteOptions, *, fenced: bool) -> str:
    """Set the condition on the pod for the reason of its disruption.

    Args:
        call: the eviction.
        pod: as it was when the eviction was granted.
        asked: how to delete it.
        fenced: only this version of the pod may be deleted.

    Returns:
        The version to delete; empty for any.

    Raises:
        Conflict: the pod has another version, or is another pod.
    """
    place, now = call.place, timestamps.rfc3339(call.clock.now())

    def marked(newest: Document) -> Document:
        status = newest.get("status") or {}
        condition = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": now,
        }
        return {**newest, "status": {**status, "conditions": _with(status, condition)}}

    if asked.resource_version:  # a precondition on the version would not survive the mark
        return asked.resource_version
    meta = pod["metadata"]
    version = meta["resourceVersion"] if fenced else ""
    rewrite = Rewrite(place, _attempt(place), marked, meta["uid"], version)
    written = await _rewrite(call, rewrite, asked)
    if not fenced or asked.dry_run:
        return ""
    return str(storage.decode(written.value, call.registry.work)["metadata"]["resourceVersion"])


def _attempt(place: Place) -> Attributes:
    return Attributes("update", place.info, place.namespace, place.name)


async def _rewrite(call: Call, rewrite: Rewrite, asked: DeleteOptions) -> Written:
    (outcome,) = await call.registry.rewrite([rewrite], WriteOptions(dry_run=asked.dry_run))
    if isinstance(outcome, ApiError):
        raise outcome
    return outcome


EVICTION = Subresource("eviction", {"create": _create}, kind="Eviction", group="policy")
