"""Explains a Service: which pods its selector finds, whether they have its ports, and which are not ready."""

from collections.abc import Iterable, Sequence

from grange.api.kinds import ENDPOINTSLICE, POD
from grange.api.kinds.endpointslice import SERVICE_LABEL
from grange.api.kinds.pod import FINISHED
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.validation.services import EXTERNAL_NAME
from grange.base.first_few import first_few
from grange.base.plurals import counted
from grange.cli import failures, readiness
from grange.cli.session import ApiSession
from grange.cli.why import generic, owned_pods
from grange.cli.why.answer import WhyAnswer

_LABELS_SHOWN = 8


async def ask(opened: ApiSession, kind: AnyKind, name: str) -> WhyAnswer:
    """Its selector and its ports against the pods that are there, and the causes of those not ready."""
    document = await opened.document(kind, name)
    spec = document.get("spec") or {}
    if not spec.get("selector") or spec.get("type") == EXTERNAL_NAME:
        return await generic.ask(opened, kind, name)
    selector, within = spec["selector"], document["metadata"].get("namespace") or "default"
    pairs = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    found = await opened.listed(POD, within, selector=pairs)
    pods = [item for item in found if not _is_over(item)]
    if pods:
        lines = [_summary(f"{kind.singular}/{name}", pods), *port_lines(spec, pods)]
        lines += await _unready(opened, spec, pods)
        if any(map(readiness.is_ready, pods)):
            lines += await _without_endpoints(opened, within, name)
    else:
        others = [] if found else await opened.listed(POD, within)
        lines = [f"{kind.singular}/{name}: selects 0 pods with {pairs}"]
        lines += no_pod_lines(selector, len(found), others, within)
    lines += generic.unmet_lines(document)
    warnings = await failures.latest_warnings(opened, document)
    lines += generic.warning_lines(warnings, opened.env.clock.now().timestamp())
    if len(lines) == 1:
        lines.append("No condition or event reports a problem.")
    return WhyAnswer(document, lines)


def no_pod_lines(
    selector: Document, ended: int, others: Sequence[Document], namespace: str
) -> list[str]:
    """Why a selector finds no pod: those that it found have ended, or all have other labels.

    Args:
        selector: of the Service.
        ended: how many pods with these labels have ended or are terminating.
        others: the other pods of the namespace, where none has these labels.
        namespace: of the Service.
    """
    if ended:
        return [f"Ended or terminating pods with these labels: {ended}"]
    if not others:
        return [f"There are no pods in namespace {namespace}."]
    labels = [item["metadata"].get("labels") or {} for item in others]
    found = sorted({(key, str(item[key])) for item in labels for key in item})
    near = [pair for pair in found if pair[0] in selector] or found
    shown = first_few([f"{key}={value}" for key, value in near], _LABELS_SHOWN)
    return [f"Labels of pods in namespace {namespace}: {shown or 'none'}"]


def port_lines(spec: Document, pods: Sequence[Document]) -> list[str]:
    """The ports of a Service whose name for the pods' port is not that of any container."""
    lines = []
    for port in spec.get("ports") or ():
        target, protocol = port.get("targetPort"), port.get("protocol") or "TCP"
        if not isinstance(target, str):
            continue
        lacking = [item for item in pods if (target, protocol) not in _named(item)]
        if lacking:
            where = "its pods" if len(lacking) == len(pods) else owned_pods.some(lacking)
            lines.append(
                f"port {port['port']}: {where} have no {protocol} port named {target}; "
                f"{_there({pair for item in lacking for pair in _named(item)}, protocol)}"
            )
    return ["", *lines] if lines else []


def _named(pod: Document) -> set[tuple[str, str]]:
    """Name and protocol of the ports of a pod's containers."""
    return {
        (str(port["name"]), port.get("protocol") or "TCP")
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("name")
    }


def _there(named: Iterable[tuple[str, str]], protocol: str) -> str:
    words = [name if of == protocol else f"{name} ({of})" for name, of in sorted(named)]
    if not words:
        return "none has a name"
    return f"there {'is' if len(words) == 1 else 'are'} {', '.join(words)}"


def _is_over(pod: Document) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return phase in FINISHED or readiness.is_terminating(pod)


def _summary(label: str, pods: Sequence[Document]) -> str:
    ready = sum(map(readiness.is_ready, pods))
    count = counted(len(pods), "pod selected", "pods selected")
    return f"{label}: {count}, {ready or 'none'} ready"


async def _unready(opened: ApiSession, spec: Document, pods: Sequence[Document]) -> list[str]:
    unready = [item for item in pods if not readiness.is_ready(item)]
    if not unready:
        return []
    heading = "Not ready:"
    if spec.get("publishNotReadyAddresses"):
        heading = "Not ready, and served nevertheless (publishNotReadyAddresses):"
    return ["", heading, *await owned_pods.causes(opened, unready)]


async def _without_endpoints(opened: ApiSession, namespace: str, name: str) -> list[str]:
    """A line if the pods that are ready are in no EndpointSlice."""
    selector = f"{SERVICE_LABEL}={name}"
    slices = await opened.listed(ENDPOINTSLICE, namespace, selector=selector)
    if any(item.get("endpoints") for item in slices):
        return []
    note = "No EndpointSlice has its pods; grange farm status shows which controllers run."
    return ["", note]
