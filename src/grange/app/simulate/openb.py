"""Traces in the CSV form of Alibaba's openb data (cluster-trace-gpu-v2023).

Nodes: ``sn, cpu_milli, memory_mib, gpu, model``. Pods: ``name, cpu_milli, memory_mib, num_gpu,
gpu_milli`` and, if they are there, ``gpu_spec, creation_time, deletion_time, scheduled_time`` (seconds).
``num_gpu`` above 1 asks for whole GPUs; 1 with ``gpu_milli`` below 1000 for a share. ``gpu_spec`` names
the allowed models, separated by ``|``. Further columns are ignored; anything that is no such file is
refused with file, line and column.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from grange.api import names
from grange.api.gpus import DEVICES_MAX, GPU_MILLI, WHOLE
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.meta import Document
from grange.app.simulate.trace import Arrival, TraceError

MODEL = "grange.dev/gpu-model"
_PODS_PER_NODE = 100_000  # the trace limits everything but the number of pods
_ROWS_MAX = 1_000_000
_AMOUNT_MAX = 2**40
_TIME_MAX = 2**40
_MUST = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a file."""

    path: Path
    line: int
    cells: dict[str, str]

    def fault(self, column: str, message: str) -> TraceError:
        return TraceError(f"{self.path}:{self.line}: {column}: {message}")

    def integer(self, column: str, most: int = _AMOUNT_MAX) -> int:
        text = self.cells[column].strip()
        if not (text.isascii() and text.isdigit() and len(text) <= 15 and int(text) <= most):
            raise self.fault(column, f"{text[:40]!r} is no whole number from 0 to {most}")
        return int(text)

    def time(self, column: str) -> int | None:
        text = self.cells.get(column, "").strip()
        # Times of pods that never ran are empty; some writers make them floats.
        if not text:
            return None
        whole, _, rest = text.partition(".")
        digits = whole.isascii() and whole.isdigit() and rest.strip("0") == ""
        if not digits or len(whole) > 15 or int(whole) > _TIME_MAX:
            raise self.fault(column, f"{text[:40]!r} is no number of seconds from 0 to {_TIME_MAX}")
        return int(whole)

    def name(self, column: str) -> str:
        name = self.cells[column].strip()
        fault = names.check_dns_subdomain(name)
        if fault is not None:
            raise self.fault(column, f"{name[:60]!r}: {fault}")
        return name

    def models(self, column: str) -> list[str]:
        found = [word.strip() for word in self.cells.get(column, "").split("|")]
        for word in found:
            fault = names.check_label_value(word)
            if fault is not None:
                raise self.fault(column, f"{word[:60]!r}: {fault}")
        return [word for word in found if word]


def read_nodes(path: Path) -> tuple[Node, ...]:
    """The nodes of a file.

    Raises:
        TraceError: it cannot be read, or is no list of nodes.
    """
    nodes, seen = [], set()
    for row in _rows(path, ("sn", "cpu_milli", "memory_mib", "gpu")):
        name = row.name("sn")
        if name in seen:
            raise row.fault("sn", f"{name} is there twice")
        seen.add(name)
        nodes.append(_node(row, name))
    return tuple(nodes)


def _node(row: _Row, name: str) -> Node:
    amounts: Document = {
        "cpu": f"{row.integer('cpu_milli')}m",
        "memory": f"{row.integer('memory_mib')}Mi",
        "pods": _PODS_PER_NODE,
    }
    gpus = row.integer("gpu", DEVICES_MAX)
    if gpus:
        amounts[GPU_MILLI] = gpus * WHOLE
    labels = {"kubernetes.io/hostname": name}
    models = row.models("model")
    if len(models) > 1:
        raise row.fault("model", "a node has GPUs of one model")
    if models:
        labels[MODEL] = models[0]
    document = {
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    return msgspec.convert(document, Node)


def read_pods(path: Path) -> tuple[Arrival, ...]:
    """The pods of a file, by the time of their creation.

    Raises:
        TraceError: it cannot be read, or is no list of pods.
    """
    arrivals, seen = [], set()
    for row in _rows(path, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")):
        name = row.name("name")
        if name in seen:
            raise row.fault("name", f"{name} is there twice")
        seen.add(name)
        created, deleted = row.time("creation_time"), row.time("deletion_time")
        started = row.time("scheduled_time")
        started = created if started is None else started
        stays = None
        if deleted is not None and started is not None:
            if deleted < started:
                raise row.fault("deletion_time", "is before the pod was created or scheduled")
            stays = float(deleted - started)
        arrivals.append(Arrival(float(created or 0), _pod(row, name), stays))
    return tuple(sorted(arrivals, key=lambda item: item.at_s))


def _pod(row: _Row, name: str) -> Pod:
    requests: Document = {
        "cpu": f"{row.integer('cpu_milli')}m",
        "memory": f"{row.integer('memory_mib')}Mi",
    }
    number = row.integer("num_gpu", DEVICES_MAX)
    milli = row.integer("gpu_milli", WHOLE)
    if number > 1 and milli != WHOLE:
        raise row.fault("gpu_milli", f"must be {WHOLE} with more than one GPU: a share is of one")
    if number and not milli:
        raise row.fault("gpu_milli", "must be more than 0 with a GPU")
    if number:
        requests[GPU_MILLI] = milli if number == 1 else number * WHOLE
    spec: Document = {
        "schedulerName": "default-scheduler",
        "containers": [{"name": "main", "resources": {"requests": requests}}],
    }
    models = row.models("gpu_spec")
    if models:
        wanted = {"key": MODEL, "operator": "In", "values": models}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
        spec["affinity"] = {"nodeAffinity": {_MUST: terms}}
    meta = {"name": name, "namespace": "default", "uid": name}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


class _Reader(Protocol):
    """A ``csv.reader``."""

    @property
    def line_num(self) -> int: ...

    def __iter__(self) -> Iterator[list[str]]: ...

    def __next__(self) -> list[str]: ...


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            yield from _checked(path, columns, reader)
    except FileNotFoundError as error:
        raise TraceError(f"{path}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise TraceError(f"{path}: {reason}") from error


def _checked(path: Path, columns: tuple[str, ...], reader: _Reader) -> Iterator[_Row]:
    try:
        header = [cell.strip() for cell in next(reader, [])]
        for column in columns:
            if header.count(column) != 1:
                listed = ", ".join(columns)
                raise TraceError(f"{path}:1: {column}: must be there once; columns are {listed}")
        count = 0
        for cells in reader:
            if not cells:
                continue
            count += 1
            if len(cells) != len(header):
                problem = f"{len(cells)} cells, the header has {len(header)}"
                raise TraceError(f"{path}:{reader.line_num}: {problem}")
            if count > _ROWS_MAX:
                raise TraceError(f"{path}:{reader.line_num}: more than {_ROWS_MAX} lines")
            yield _Row(path, reader.line_num, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise TraceError(f"{path}:{reader.line_num}: {error}") from error
    if not count:
        raise TraceError(f"{path}: has no line below its header")
