"""Settings are checked when they are made, and report what is wrong and what would be right."""

from pathlib import Path

import pytest

from grange.app import machine, pki, process, up
from grange.app.flags import given
from grange.app.locations import default_data_dir, kubeconfig_paths, service_account
from grange.app.settings import ListenAddress, Settings, SettingsError, parse_listen


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"disable": frozenset({"schedular"})}, "schedular.*scheduler, controllers"),
        ({"listen": ListenAddress(port=70000)}, "70000"),
        ({"nodes": 0}, "--nodes 0"),
        ({"nodes": 100_000}, "between 1 and"),
        ({"cluster_dns": "10.0.0.1:53"}, "--cluster-dns 10.0.0.1:53: must be an address"),
    ],
)
def test_a_setting_out_of_bounds_is_refused_by_name(
    tmp_path: Path, wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings(data_dir=tmp_path, **wrong)  # type: ignore[arg-type]  # each has its own type


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        (":8443", ("127.0.0.1", 8443)),
        ("localhost", ("localhost", 6443)),
        ("[::1]:6443", ("::1", 6443)),
        ("[::1]", ("::1", 6443)),
    ],
)
def test_listen_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_listen(text) == expected


def test_only_this_machine_is_served_unless_it_is_asked_for(tmp_path: Path) -> None:
    """A holder of the token runs programs here, so no network sees the door by default."""
    assert Settings(data_dir=tmp_path).host == "127.0.0.1"
    assert Settings(data_dir=tmp_path).listen == ListenAddress("127.0.0.1", 6443)
    context = up.command.make_context("up", [])
    assert "listen" not in given(Settings, context.params)


def test_a_listen_address_without_a_number_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"127\.0\.0\.1:6443"):
        parse_listen("127.0.0.1:https")


def test_places_come_from_the_environment_in_order() -> None:
    assert default_data_dir({"GRANGE_DATA_DIR": "/d", "HOME": "/h"}) == Path("/d")
    assert default_data_dir({"XDG_DATA_HOME": "/x", "HOME": "/h"}) == Path("/x/grange")
    assert default_data_dir({"HOME": "/h"}) == Path("/h/.local/share/grange")
    assert kubeconfig_paths({"KUBECONFIG": "/a::/b:/a"}) == (Path("/a"), Path("/b"))
    assert kubeconfig_paths({"HOME": "/h"}) == (Path("/h/.kube/config"),)


def test_identity_differs_by_directory_and_not_by_spelling(tmp_path: Path) -> None:
    one = Settings(data_dir=tmp_path / "a")
    same = Settings(data_dir=tmp_path / "b" / ".." / "a")
    other = Settings(data_dir=tmp_path / "b")
    assert one.identity == same.identity != other.identity


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Web_1.example.com", "web-1"),
        ("-lab-", "lab"),
        ("büro", "b-ro"),
        ("", "localhost"),
        ("½", "localhost"),
        ("h" * 70, "h" * 58),
    ],
)
def test_node_is_named_after_the_host_in_valid_letters(host: str, name: str) -> None:
    assert machine.node_name(host) == name


def test_nodes_share_the_machine(tmp_path: Path) -> None:
    whole, parts = (machine.shares(nodes, tmp_path / "made" / "later") for nodes in (1, 3))
    assert len({part.name for part in parts}) == 3
    assert sum(part.cpu_milli for part in parts) <= whole[0].cpu_milli
    assert sum(part.memory_bytes for part in parts) <= whole[0].memory_bytes
    assert 0 < sum(part.disk_bytes for part in parts) <= whole[0].disk_bytes
    assert parts[0].capacity()["cpu"].endswith("m")
    assert parts[0].capacity()["ephemeral-storage"].endswith("Mi")


def test_a_record_of_a_dead_or_recycled_process_counts_as_none(tmp_path: Path) -> None:
    assert process.find(tmp_path) is None
    process.record(tmp_path, "https://127.0.0.1:1")
    found = process.find(tmp_path)
    assert found is not None
    assert found.url == "https://127.0.0.1:1"
    text = (tmp_path / process.FILE).read_text().replace(str(found.start), str(found.start - 1))
    (tmp_path / process.FILE).write_text(text)
    assert process.find(tmp_path) is None
    process.forget(tmp_path)
    assert process.find(tmp_path) is None


def test_a_pod_is_reported_of_its_cluster_by_its_environment() -> None:
    there = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    account = service_account(there)
    assert account is not None
    assert (account.host, account.port) == ("10.0.0.1", "443")
    assert str(account.directory) == "/var/run/secrets/kubernetes.io/serviceaccount"
    for name in there:
        assert service_account({**there, name: ""}) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "host.example"])  # noqa: S104  not bound
def test_listening_beyond_loopback_needs_a_name_or_a_stated_risk(tmp_path: Path, host: str) -> None:
    with pytest.raises(SettingsError, match=r"--tls-san NAME.*--insecure-listen"):
        Settings(data_dir=tmp_path, listen=ListenAddress(host))
    Settings(data_dir=tmp_path, listen=ListenAddress(host), insecure_listen=True)
    named = Settings(data_dir=tmp_path, listen=ListenAddress(host), tls_names=("api.example",))
    assert "api.example" in pki.wanted(named)[1]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "https://127.0.0.1:1"),  # noqa: S104  not bound
        ("::", "https://[::1]:1"),
        ("10.0.0.5", "https://10.0.0.5:1"),
        ("::1", "https://[::1]:1"),
    ],
)
def test_kubeconfig_names_an_address_that_can_be_reached(
    tmp_path: Path, host: str, url: str
) -> None:
    settings = Settings(data_dir=tmp_path, listen=ListenAddress(host), insecure_listen=True)
    assert settings.address(1) == url
    assert not {"0.0.0.0", "::"} & set(pki.wanted(settings)[1])  # noqa: S104  not bound


@pytest.mark.parametrize(
    ("listen", "names", "url"),
    [
        ("127.0.0.1:6443", (), ""),
        ("127.0.0.1:6443", ("grange.example",), ""),
        ("localhost:6443", (), ""),
        ("0.0.0.0:6443", ("10.0.0.1", "grange.example"), "https://10.0.0.1:7"),
        ("10.0.0.2:6443", ("grange.example",), "https://grange.example:7"),
        ("[2001:db8::1]:6443", ("2001:db8::1",), "https://[2001:db8::1]:7"),
    ],
)
def test_address_outside_is_one_that_the_certificate_names(
    tmp_path: Path, listen: str, names: tuple[str, ...], url: str
) -> None:
    settings = Settings(data_dir=tmp_path, listen=parse_listen(listen), tls_names=names)
    assert settings.address_outside(7) == url
