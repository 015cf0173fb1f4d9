"""The parts of the provider ``libcloud`` that call nothing: its configuration, and what errors mean."""

import pytest
from libcloud.common.exceptions import BaseHTTPError, RateLimitReachedError
from libcloud.common.types import (
    InvalidCredsError,
    LibcloudError,
    MalformedResponseError,
    ProviderError as DriverError,
)
from libcloud.compute.base import NodeImage
from requests.exceptions import ConnectTimeout

from grange.machines.providers.libcloud.libcloud_catalogue import matching_image
from grange.machines.providers.libcloud.libcloud_config import read_config
from grange.machines.providers.libcloud.libcloud_errors import CONNECT, CREATE, DESTROY, translate
from grange.machines.providers.provider import (
    CapacityError,
    InstanceGoneError,
    MisconfiguredError,
    ProviderError,
    ThrottledError,
)


@pytest.mark.parametrize(
    ("call", "error", "expected"),
    [
        ("list_nodes", ConnectTimeout("slow"), ProviderError),
        ("list_nodes", OSError("reset"), ProviderError),
        ("list_nodes", MalformedResponseError("no JSON", body="x"), ProviderError),
        ("list_nodes", KeyError("droplets"), ProviderError),
        ("list_nodes", RateLimitReachedError(), ThrottledError),
        ("list_nodes", BaseHTTPError(413, "over limit"), ThrottledError),
        ("list_nodes", InvalidCredsError(), MisconfiguredError),
        ("list_nodes", BaseHTTPError(403, "no"), MisconfiguredError),
        ("list_nodes", BaseHTTPError(408, "no"), ProviderError),
        ("list_nodes", NotImplementedError(), MisconfiguredError),
        ("list_nodes", BaseHTTPError(500, "quota exceeded"), ProviderError),
        (DESTROY, BaseHTTPError(404, "no"), InstanceGoneError),
        (DESTROY, DriverError("no", 404), InstanceGoneError),
        (DESTROY, BaseHTTPError(409, "busy"), ProviderError),
        (CREATE, BaseHTTPError(404, "no such image"), MisconfiguredError),
        (CREATE, DriverError("odd", "odd"), ProviderError),
        (CREATE, Exception("Out of stock"), CapacityError),
        (CREATE, Exception("something"), ProviderError),
        (CREATE, LibcloudError("Account limit reached"), CapacityError),
        (CONNECT, TypeError("unexpected keyword argument"), MisconfiguredError),
        (CONNECT, OSError("no route"), ProviderError),
        (CONNECT, BaseHTTPError(503, "busy"), ProviderError),
    ],
)
def test_errors_of_drivers_are_classified(
    call: str, error: Exception, expected: type[ProviderError]
) -> None:
    found = translate("vultr", call, error)
    assert type(found) is expected
    assert str(found).startswith(f"libcloud vultr {call}: {type(error).__name__}")
    assert "; " in str(found)


def test_errors_of_drivers_do_not_show_credentials() -> None:
    error = ConnectTimeout("no answer of https://cloud.example/?api_key=hush-hush&x=1")
    found = translate("linode", "list_nodes", error, secrets=["hush-hush"])
    assert "hush-hush" not in str(found)
    assert "api_key=…&x=1" in str(found)


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ([], ""),
        ({}, ".driver"),
        ({"driver": "no-such"}, ".driver"),
        ({"driver": "vultr", "zone": "a"}, ".zone"),
        ({"driver": "vultr", "options": "x"}, ".options"),
        ({"driver": "vultr", "arguments": []}, ".arguments"),
        ({"driver": "vultr", "arguments": {"name": "x"}}, ".arguments.name"),
        ({"driver": "vultr", "zones": "ams"}, ".zones"),
        ({"driver": "vultr", "prices": {"a": "much"}}, ".prices.a"),
        ({"driver": "vultr", "processors": {"a": "2"}}, ".processors.a"),
        ({"driver": "vultr", "processors": {"a": 0}}, ".processors.a"),
        ({"driver": "vultr", "architecture": "vax"}, ".architecture"),
    ],
)
def test_a_wrong_config_of_libcloud_names_its_field(config: object, path: str) -> None:
    with pytest.raises(MisconfiguredError) as error:
        read_config(config)
    assert str(error.value).startswith(f"spec.providerConfig{path}: ")
    assert "; " in str(error.value)


def test_the_newest_image_of_a_driver_is_used() -> None:
    made = [
        NodeImage("1", "debian-12", None, {"created": "2025-01-01"}),
        NodeImage("2", "debian-13", None, {"created_at": "2026-01-01", "slug": "latest"}),
        NodeImage(3, "debian-13", None),
    ]
    assert matching_image(made, {"name": "debian-*"}) == "2"
    assert matching_image(made, {"id": "3"}) == "3"
    assert matching_image(made, {"id": "latest"}) == "2"
    for spec in ({}, {"owner": "x"}, {"name": "debian"}, {"id": "1", "name": "debian-13"}):
        with pytest.raises(MisconfiguredError, match=r"^spec\.bootImage"):
            matching_image(made, spec)


@pytest.mark.parametrize(
    "text", ["Unexpected API Error. (HTTP 500) ({})", "Unexpected API Error. (HTTP 500) {}"]
)
def test_failures_of_the_same_call_have_the_same_message(text: str) -> None:
    """Clouds add an id of the request, by which each would count as another error."""
    ids = ("Request-ID: req-1f-2", "Request ID req-9")
    shown = {
        f"{translate('openstack', 'list_nodes', BaseHTTPError(500, text.format(one)))}"
        for one in ids
    }
    (message,) = shown
    assert "Unexpected API Error. (HTTP 500); it is tried again" in message
