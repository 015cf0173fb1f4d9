"""kubeconfig files are read as kubectl reads them and written without harm to others' entries."""

import base64
import stat
from pathlib import Path

import pytest
import yaml

from grange.client import kubeconfig, kubeconfig_contexts
from grange.client.access import Access, ServiceAccountAccess
from grange.client.errors import KubeconfigError

BEARER = "t0ken"
CA = b"-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"


def config(**overrides: object) -> dict[str, object]:
    document: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://h:6443"}}],
        "users": [{"name": "u", "user": {"token": "t0ken"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    document.update(overrides)
    return document


def save(path: Path, document: object) -> Path:
    path.write_text(yaml.safe_dump(document))
    return path


def test_write_then_load_gives_the_access_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kubeconfig"
    kubeconfig_contexts.write(path, "grange", "https://127.0.0.1:6443", CA, BEARER)
    access = kubeconfig.load([path])
    assert access == Access("https://127.0.0.1:6443", "grange", "default", CA, BEARER)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_secrets_are_not_in_the_repr(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    kubeconfig_contexts.write(path, "grange", "https://h", CA, BEARER)
    assert "t0ken" not in repr(kubeconfig.load([path]))


def test_first_file_with_an_entry_wins_and_missing_are_skipped(tmp_path: Path) -> None:
    first = save(tmp_path / "1", config(**{"current-context": None}))
    second = save(
        tmp_path / "2",
        config(
            clusters=[{"name": "c", "cluster": {"server": "https://other"}}],
            contexts=[{"name": "y", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
            **{"current-context": "y"},
        ),
    )
    access = kubeconfig.load([tmp_path / "missing", first, second])
    assert (access.context, access.server, access.namespace) == ("y", "https://h:6443", "n")
    assert kubeconfig.load([first, second], "x").context == "x"


def test_files_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(CA)
    (tmp_path / "me.crt").write_bytes(b"cert")
    (tmp_path / "me.key").write_bytes(b"key")
    cluster = {
        "server": "https://h/",
        "certificate-authority": "ca.crt",
        "tls-server-name": "inner",
        "insecure-skip-tls-verify": True,
    }
    user = {"client-certificate": "me.crt", "client-key": "me.key", "tokenFile": "token"}
    path = save(
        tmp_path / "config",
        config(clusters=[{"name": "c", "cluster": cluster}], users=[{"name": "u", "user": user}]),
    )
    access = kubeconfig.load([path])
    assert access.server == "https://h"
    assert access.ca_pem == CA
    assert (access.certificate_pem, access.key_pem) == (b"cert", b"key")
    assert access.token_file == tmp_path / "token"
    assert access.server_name == "inner"
    assert access.insecure


def test_inline_data_wins_over_files(tmp_path: Path) -> None:
    cluster = {
        "server": "https://h",
        "certificate-authority": "missing.crt",
        "certificate-authority-data": base64.b64encode(CA).decode(),
    }
    path = save(tmp_path / "config", config(clusters=[{"name": "c", "cluster": cluster}]))
    assert kubeconfig.load([path]).ca_pem == CA


def test_config_emptied_by_kubectl_is_readable(tmp_path: Path) -> None:
    path = save(
        tmp_path / "config",
        {
            "clusters": None,
            "users": None,
            "contexts": None,
            "current-context": "",
            "preferences": {},
        },
    )
    with pytest.raises(KubeconfigError, match="current-context: not set"):
        kubeconfig.load([path])


BROKEN: list[tuple[str, dict[str, object], str]] = [
    ("no server", {"clusters": [{"name": "c", "cluster": {}}]}, r"clusters\[c\].cluster.server"),
    ("no cluster", {"clusters": []}, r"contexts\[x\].context.cluster: no cluster named 'c'"),
    ("no user", {"users": []}, r"contexts\[x\].context.user: no user named 'u'"),
    ("no context", {"contexts": []}, r"contexts: no context named 'x'"),
    ("wrong type", {"users": [{"name": "u", "user": {"token": 12}}]}, r"users\[0\].user.token"),
    ("no name", {"users": [{"user": {}}]}, r"users\[0\].*name"),
    (
        "bad base64",
        {
            "clusters": [
                {"name": "c", "cluster": {"server": "https://h", "certificate-authority-data": "%"}}
            ]
        },
        "certificate-authority-data: not base64",
    ),
    (
        "missing file",
        {
            "clusters": [
                {"name": "c", "cluster": {"server": "https://h", "certificate-authority": "no.crt"}}
            ]
        },
        r"certificate-authority: cannot read .*no.crt",
    ),
    (
        "key missing",
        {"users": [{"name": "u", "user": {"client-certificate-data": "aGk="}}]},
        "client-key: missing",
    ),
    ("exec", {"users": [{"name": "u", "user": {"exec": {}}}]}, r"user.exec: not supported"),
    (
        "proxy",
        {"clusters": [{"name": "c", "cluster": {"server": "https://h", "proxy-url": "http://p"}}]},
        "proxy-url",
    ),
]


@pytest.mark.parametrize(
    ("change", "message"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN]
)
def test_broken_config_names_file_and_field(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = save(tmp_path / "config", config(**change))
    with pytest.raises(KubeconfigError, match=message) as caught:
        kubeconfig.load([path])
    assert str(path) in str(caught.value)


def test_malformed_yaml_is_located_but_not_quoted(tmp_path: Path) -> None:
    """The text around a fault may hold a token."""
    path = tmp_path / "config"
    path.write_text("users:\n- token: 's3cret\n  x: [")
    with pytest.raises(KubeconfigError, match=r"not YAML at line \d+") as caught:
        kubeconfig.load([path])
    assert "s3cret" not in str(caught.value)


def test_no_file_at_all_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="grange up"):
        kubeconfig.load([tmp_path / "none"])


def test_merge_keeps_what_others_wrote(tmp_path: Path) -> None:
    users = [{"name": "u", "user": {"exec": {"command": "login", "x-unknown": 1}}}]
    extra = config(preferences={"colors": True}, users=users)
    path = save(tmp_path / "config", extra)
    kubeconfig_contexts.merge(path, "grange", "https://g", CA, "t", switch=False)
    document = yaml.safe_load(path.read_text())
    assert document["current-context"] == "x"
    assert document["preferences"] == {"colors": True}
    assert document["users"][0] == users[0]
    assert [item["name"] for item in document["contexts"]] == ["x", "grange"]
    assert kubeconfig.load([path], "grange").server == "https://g"


def test_merge_switches_when_asked_or_without_current_context(tmp_path: Path) -> None:
    path = save(tmp_path / "config", config())
    kubeconfig_contexts.merge(path, "grange", "https://g", CA, "t", switch=True)
    assert kubeconfig.load([path]).context == "grange"
    fresh = tmp_path / "fresh"
    kubeconfig_contexts.merge(fresh, "grange", "https://g", CA, "t", switch=False)
    assert kubeconfig.load([fresh]).context == "grange"


def test_merge_again_replaces_in_place(tmp_path: Path) -> None:
    path = tmp_path / "config"
    kubeconfig_contexts.merge(path, "grange", "https://one", CA, "t", switch=True)
    kubeconfig_contexts.merge(path, "grange", "https://two", CA, "t", switch=True)
    document = yaml.safe_load(path.read_text())
    assert len(document["clusters"]) == len(document["users"]) == len(document["contexts"]) == 1
    assert kubeconfig.load([path]).server == "https://two"


def test_merge_into_something_else_leaves_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("- a list\n")
    with pytest.raises(KubeconfigError, match="mapping"):
        kubeconfig_contexts.merge(path, "grange", "https://g", CA, "t", switch=True)
    assert path.read_text() == "- a list\n"
    assert [item.name for item in tmp_path.iterdir()] == ["config"]


def test_merge_follows_a_symbolic_link(tmp_path: Path) -> None:
    """Many keep their configuration elsewhere and link to it."""
    real = save(tmp_path / "real", config())
    link = tmp_path / "config"
    link.symlink_to(real)
    kubeconfig_contexts.merge(link, "grange", "https://g", CA, "t", switch=True)
    assert link.is_symlink()
    assert kubeconfig.load([real]).context == "grange"


def test_unwritable_place_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KubeconfigError, match="file/config"):
        kubeconfig_contexts.write(tmp_path / "file" / "config", "grange", "https://g", CA, "t")


def test_in_cluster_reads_the_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_bytes(CA)
    (tmp_path / "namespace").write_text("prod\n")
    access = kubeconfig.in_cluster(tmp_path, "fd00::1", "443")
    assert access.server == "https://[fd00::1]:443"
    assert (access.namespace, access.ca_pem) == ("prod", CA)
    assert access.token_file == tmp_path / "token"


def test_in_cluster_outside_of_one_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="KUBERNETES_SERVICE_HOST"):
        kubeconfig.in_cluster(tmp_path, "", "")
    with pytest.raises(KubeconfigError, match="token"):
        kubeconfig.in_cluster(tmp_path, "h", "443")


def test_a_pod_without_a_kubeconfig_uses_its_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_bytes(CA)
    account = ServiceAccountAccess(tmp_path, "10.0.0.1", "443")
    missing = tmp_path / "missing"
    assert kubeconfig.find([missing], "", account).server == "https://10.0.0.1:443"
    with pytest.raises(KubeconfigError, match="no kubeconfig found"):
        kubeconfig.find([missing], "", None)


def test_kubeconfig_or_context_precedes_service_account(tmp_path: Path) -> None:
    """A pod may work for another cluster, and a context that is meant is never replaced in silence."""
    account = ServiceAccountAccess(tmp_path, "10.0.0.1", "443")
    path = save(tmp_path / "config", config())
    assert kubeconfig.find([path], "", account) == kubeconfig.load([path])
    with pytest.raises(KubeconfigError, match="no kubeconfig found"):
        kubeconfig.find([tmp_path / "missing"], "x", account)
    with pytest.raises(KubeconfigError, match="cannot read it"):
        kubeconfig.find([tmp_path / ("x" * 300)], "", account)
