"""Rules of how a pod's programs resolve names."""

from typing import Any

import pytest
from tests.unit.api.documents import pod

from grange.api.kinds import POD
from grange.api.validation import validate


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"hostname": "a.b"}, "spec.hostname"),
        ({"subdomain": "A"}, "spec.subdomain"),
        ({"hostnameOverride": "A"}, "spec.hostnameOverride"),
        ({"hostnameOverride": "a" * 65}, "spec.hostnameOverride"),
        ({"hostnameOverride": "a", "setHostnameAsFQDN": True}, "spec.hostnameOverride"),
        ({"hostnameOverride": "a", "hostNetwork": True}, "spec.hostnameOverride"),
        ({"dnsPolicy": "First"}, "spec.dnsPolicy"),
        ({"dnsPolicy": "None"}, "spec.dnsConfig.nameservers"),
        ({"dnsConfig": {"nameservers": ["ns1"]}}, "spec.dnsConfig.nameservers[0]"),
        ({"dnsConfig": {"nameservers": ["10.0.0.1"] * 4}}, "spec.dnsConfig.nameservers"),
        ({"dnsConfig": {"searches": ["a\nb"]}}, "spec.dnsConfig.searches[0]"),
        ({"dnsConfig": {"searches": ["a"] * 33}}, "spec.dnsConfig.searches"),
        ({"dnsConfig": {"searches": ["a." * 100 + "a"] * 11}}, "spec.dnsConfig.searches"),
        ({"dnsConfig": {"options": [{"value": "5"}]}}, "spec.dnsConfig.options[0].name"),
        ({"dnsConfig": {"options": [{"name": "a\nb"}]}}, "spec.dnsConfig.options[0]"),
        ({"hostAliases": [{"ip": "x", "hostnames": ["a"]}]}, "spec.hostAliases[0].ip"),
        (
            {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a\nb"]}]},
            "spec.hostAliases[0].hostnames[0]",
        ),
    ],
)
def test_fault_names_its_field(fields: dict[str, Any], field: str) -> None:
    causes = validate(pod(**fields), None, POD)
    assert field in [cause.field for cause in causes]


def test_usual_settings_are_accepted() -> None:
    fields = {
        "hostname": "web-0",
        "subdomain": "web",
        "setHostnameAsFQDN": True,
        "dnsPolicy": "None",
        "dnsConfig": {
            "nameservers": ["10.0.0.1", "2001:db8::1"],
            "searches": ["corp.example.com.", ".", "_tcp.example.com"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
        },
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["db", "db.example.com"]}],
    }
    assert validate(pod(**fields), None, POD) == []
