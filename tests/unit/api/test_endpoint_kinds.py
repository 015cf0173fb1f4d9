"""ServiceAccount, Endpoints and EndpointSlice: rules, defaults and columns."""

from typing import Any

import pytest

from grange.api import schema
from grange.api.kinds import ENDPOINTS, ENDPOINTSLICE, SERVICEACCOUNT
from grange.api.scheme import AnyKind
from grange.api.validation import validate

SUBSET = {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": 6443}]}
SLICE = {"addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"port": 1}]}


def made(info: AnyKind, **fields: Any) -> dict[str, Any]:
    head = {"apiVersion": info.api_version, "kind": info.kind}
    document = {**head, "metadata": {"name": "a", "namespace": "default"}, **fields}
    assert schema.check(document, info) == []
    schema.apply_defaults(document, info)
    return document


def cells(info: AnyKind, document: dict[str, Any]) -> list[object]:
    return [column.cell(document, 0.0) for column in info.columns]


@pytest.mark.parametrize(
    ("info", "fields", "fault"),
    [
        (ENDPOINTS, {"subsets": [{"ports": []}]}, "subsets[0]"),
        (ENDPOINTS, {"subsets": [{**SUBSET, "ports": [{"port": 0}]}]}, "subsets[0].ports[0].port"),
        (
            ENDPOINTS,
            {"subsets": [{**SUBSET, "ports": [{"port": 1, "protocol": "X"}]}]},
            "subsets[0].ports[0].protocol",
        ),
        (ENDPOINTSLICE, {**SLICE, "addressType": "IPv5"}, "addressType"),
        (ENDPOINTSLICE, {**SLICE, "endpoints": [{"addresses": []}]}, "endpoints[0].addresses"),
        (ENDPOINTSLICE, {**SLICE, "ports": [{"port": 65_536}]}, "ports[0].port"),
        (ENDPOINTSLICE, {**SLICE, "endpoints": [{"addresses": ["a"]}] * 1001}, "endpoints"),
    ],
)
def test_fault_is_named_by_its_field(info: AnyKind, fields: dict[str, Any], fault: str) -> None:
    assert [cause.field for cause in validate(made(info, **fields), None, info)] == [fault]


def test_columns_show_addresses() -> None:
    document = made(ENDPOINTS, subsets=[SUBSET])
    assert validate(document, None, ENDPOINTS) == []
    assert document["subsets"][0]["ports"] == [{"port": 6443, "protocol": "TCP"}]
    assert cells(ENDPOINTS, document) == ["127.0.0.1:6443"]
    assert cells(ENDPOINTS, made(ENDPOINTS)) == ["<none>"]
    many = made(ENDPOINTSLICE, **{**SLICE, "endpoints": [{"addresses": ["a"]}] * 5})
    assert validate(many, None, ENDPOINTSLICE) == []
    assert cells(ENDPOINTSLICE, many) == ["IPv4", "1", "a,a,a + 2 more..."]
    assert cells(SERVICEACCOUNT, made(SERVICEACCOUNT)) == [0]
