"""Generated files agree with their source."""

import hashlib
import importlib.util
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

from grange.api import codec

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date() -> None:
    assert script("update").stale() == [], "run `make update`"


def test_every_kind_column_and_field_is_documented() -> None:
    page = (ROOT / "docs/reference/kinds.md").read_text(encoding="utf-8")
    assert "## ReplicationController" in page
    assert "| `spec.rollout.maxSurge` | IntOrString |" in page
    assert "`spec.nodeName`" in page
    assert "| `spec.tolerations` | list of Toleration |" in page
    assert "| `status.conditions` | list of NodeCondition |" in page


def test_the_schema_is_made_of_the_roots_and_what_they_reach() -> None:
    make = script("make_schema")
    definitions: dict[str, Any] = codec.decode_document(make.TARGET.read_bytes())["definitions"]
    assert set(make.ROOTS) <= definitions.keys()
    assert make.references(definitions) <= definitions.keys()
    reached = make.references(definitions) | set(make.ROOTS)
    assert definitions.keys() == reached
    assert list(definitions) == sorted(definitions)
    assert b'"description":"' not in make.TARGET.read_bytes()


def test_schemas_are_made_compact_without_losing_what_matters() -> None:
    make = script("make_schema")
    given = {
        "description": "long",
        "type": ["object", "null"],
        "required": ["a"],
        "properties": {
            "kind": {"type": ["string", "null"], "enum": ["Thing"]},
            "a": {
                "$ref": "#/$defs/x.Y",
                "description": "long",
                "x-kubernetes-patch-strategy": "merge",
            },
            "b": {"type": ["array", "null"], "items": {"type": ["string", "null"], "enum": ["c"]}},
        },
    }
    assert make.compact(given) == {
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"$ref": "#/definitions/x.Y", "x-kubernetes-patch-strategy": "merge"},
            "b": {"type": "array", "items": {"type": "string", "enum": ["c"]}},
            "kind": {"type": "string"},
        },
    }


def test_the_wheel_is_pinned_by_hash() -> None:
    make = script("make_schema")
    assert len(bytes.fromhex(make.SHA256)) == hashlib.sha256().digest_size


class Light(Enum):
    RED = "Red"
    GREEN = "Green"


class Switch(Enum):
    ON = "on"
    KEEP = "keep"
    OFF = "off"


def test_a_diagram_draws_each_pair_once() -> None:
    table = {
        (Light.RED, Switch.ON): Light.GREEN,
        (Light.RED, Switch.KEEP): Light.GREEN,
        (Light.GREEN, Switch.OFF): Light.RED,
    }
    diagram = script("state_diagrams").diagram
    assert diagram(table, Light.RED, frozenset({Light.GREEN})) == (
        "stateDiagram-v2\n"
        "    [*] --> Red\n"
        "    Red --> Green: on / keep\n"
        "    Green --> Red: off\n"
        "    Green --> [*]\n"
    )
