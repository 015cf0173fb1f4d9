"""User data of machines: numbered checks F74 to F76, what is refused, and that the scripts work."""

import base64
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from grange.api.kinds.nodepool import NodePoolSpec
from grange.machines.bootstrap.agent_package import AgentPackage, release_tag
from grange.machines.bootstrap.agent_setup import agent_files
from grange.machines.bootstrap.join_facts import JoinFacts
from grange.machines.bootstrap.user_data import compose_user_data
from grange.machines.bootstrap.user_data_template import VARIABLES
from grange.machines.providers.cloud_config import (
    BootFile,
    cloud_config_script,
    merge_cloud_config,
)
from grange.machines.providers.provider import MisconfiguredError

TOKEN = "abcdef.0123456789abcdef"  # noqa: S105  of tests

UNIT = ("daemon-reload", "enable grange-agent.service", "restart grange-agent.service")


def join(machine: str = "p-1", token: str = TOKEN) -> JoinFacts:
    return JoinFacts(
        "https://[fd00::1]:6443",
        token,
        f"sha256:{'0' * 64}",
        machine,
        "p",
        {"grange.dev/node-pool": "p", "a": ""},
        ("dedicated=p:NoSchedule",),
    )


def agent(text: str, package: AgentPackage = AgentPackage()) -> str:  # noqa: B008  it is immutable
    return compose_user_data(NodePoolSpec(user_data=text), join(), package)


def template(text: str) -> str:
    pool = NodePoolSpec(bootstrap="UserData", user_data=text)
    return compose_user_data(pool, join(), AgentPackage())


def files_of(text: str) -> dict[str, str]:
    return {item["path"]: item["content"] for item in yaml.safe_load(text)["write_files"]}


@pytest.mark.parametrize(
    "text", ["", "#cloud-config\n", "packages: [python3-venv]", "runcmd: []\nwrite_files: []"]
)
def test_f74_valid_cloud_config_is_merged(text: str) -> None:
    merged = yaml.safe_load(agent(text))
    assert merged["runcmd"] == [["/etc/grange/install-agent"]]
    assert merged.get("packages") == (yaml.safe_load(text) or {}).get("packages")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("packages: [", "line 1: "),
        ("a: secret-word\n\tb: 1", "line 2: "),
        ("- a", "no mapping"),
        ("plain text", "no mapping"),
        ("#!/bin/sh\necho", "no cloud-config"),
        ("## template: jinja\n#cloud-config\n", "no cloud-config"),
        ("when: 2026-99-99", "not YAML"),
        ("a: !!python/object:os.system {}", "line 1: "),
        ("[" * 1000, "not YAML"),
        ("runcmd: echo", "runcmd is no list"),
        ("write_files: {}", "write_files is no list"),
        ("write_files: [{content: a}]", r"write_files\[0\] has no path"),
        ("write_files: [{path: /etc/grange/agent.env}]", r"write_files\[0\]: /etc/grange/agent"),
    ],
)
def test_f74_other_user_data_are_refused(text: str, why: str) -> None:
    with pytest.raises(MisconfiguredError, match=rf"^spec\.userData: .*{why}.*; ") as error:
        agent(text)
    assert "secret-word" not in str(error.value)


def test_f75_user_files_come_first_then_ours_by_path() -> None:
    user = "write_files: [{path: /z}, {path: /b}]\nruncmd: [echo first]\nhostname: n\n"
    ours = [BootFile("/y", "2"), BootFile("/c", "1\n", "0700")]
    text = merge_cloud_config(user, ours, ["/c"])
    assert text.startswith("#cloud-config\n")
    merged = yaml.safe_load(text)
    assert [item["path"] for item in merged["write_files"]] == ["/z", "/b", "/c", "/y"]
    assert merged["write_files"][2] == {"path": "/c", "permissions": "0700", "content": "1\n"}
    assert merged["runcmd"] == ["echo first", ["/c"]]
    assert merged["hostname"] == "n"
    assert merge_cloud_config(user, ours[::-1], ["/c"]) == text


@pytest.mark.parametrize("pool", ["Agent", "UserData"])
def test_f75_too_long_user_data_are_refused(pool: str) -> None:
    room = 16_000 - len(agent("#")) if pool == "Agent" else 16_000
    text = f"a: {'x' * (room - 4)}\n"
    spec = NodePoolSpec(bootstrap=pool, user_data=text)
    assert len(compose_user_data(spec, join(), AgentPackage())) <= 16_000
    spec = NodePoolSpec(bootstrap=pool, user_data=text + "b: é")
    with pytest.raises(MisconfiguredError, match="more than 16000; shorten"):
        compose_user_data(spec, join(), AgentPackage())


@pytest.mark.parametrize(
    ("version", "tag", "requirement"),
    [
        ("1.2.3", "v1.2.3", "grange==1.2.3"),
        ("v1.2.3", "v1.2.3", "grange==1.2.3"),
        ("1.2.3-rc.1", "v1.2.3-rc.1", "grange==1.2.3-rc.1"),
        ("latest", "latest", "grange"),
        ("", "", "grange"),
        ("dev", "dev", "grange==dev"),
        ("12", "12", "grange==12"),
        ("very.1", "very.1", "grange==very.1"),
    ],
)
def test_f76_versions_have_one_spelling(version: str, tag: str, requirement: str) -> None:
    assert release_tag(version) == tag
    assert AgentPackage(version).requirement == requirement


def test_f76_a_url_has_the_version_filled_in() -> None:
    package = AgentPackage("v1.2.0", "https://h/{tag}/grange-{version}-py3-none-any.whl")
    assert package.requirement == "grange @ https://h/v1.2.0/grange-1.2.0-py3-none-any.whl"
    assert AgentPackage("", "https://h/g.whl").requirement == "grange @ https://h/g.whl"
    install = files_of(agent("", package))["/etc/grange/install-agent"]
    assert f"pip-version-check '{package.requirement}'; do" in install


@pytest.mark.parametrize(
    ("version", "url"),
    [
        ("1 2", ""),
        ("$(id)", ""),
        ("", "ftp://h/g"),
        ("1.0", "https://h/g'x"),
        ("", "https://{tag}"),
    ],
)
def test_f76_a_malformed_package_is_refused(version: str, url: str) -> None:
    with pytest.raises(MisconfiguredError, match=r"^agent "):
        AgentPackage(version, url)


def test_f76_nothing_of_one_machine_is_in_the_next() -> None:
    pool = NodePoolSpec(user_data="write_files: [{path: /a}]")
    first = compose_user_data(pool, join("p-1"), AgentPackage())
    second = compose_user_data(pool, join("p-2", "ghijkl.0123456789abcdef"), AgentPackage())
    assert "p-1" not in second
    assert TOKEN not in second
    assert compose_user_data(pool, join("p-1"), AgentPackage()) == first


def test_the_token_is_in_a_private_file_only() -> None:
    files = {file.path: file for file in agent_files(join(), AgentPackage())}
    holding = [path for path, file in files.items() if TOKEN in file.content]
    assert holding == ["/etc/grange/agent.env"]
    assert files["/etc/grange/agent.env"].permissions == "0600"
    assert TOKEN not in repr(join()) + repr(files)


@pytest.mark.parametrize("bad", ["$(id)", "a b", "a'b", "a\nb", "a;b"])
def test_facts_that_shells_treat_specially_are_refused(bad: str) -> None:
    facts = JoinFacts("https://h:1", TOKEN, "sha256:0", "p-1", "p", {"key": bad})
    with pytest.raises(MisconfiguredError, match=r"^labels .* of machine p-1: "):
        facts.variables()
    with pytest.raises(MisconfiguredError, match=r"^token of machine p-1: ") as error:
        JoinFacts("https://h:1", bad, "sha256:0", "p-1", "p").variables()
    assert bad not in str(error.value)


def test_a_template_has_its_variables_replaced() -> None:
    text = (
        "#!/bin/sh\nkubeadm join {{ grange.endpoint }} --token {{grange.token}} # {{ v1.region }}"
    )
    assert template(text) == (
        f"#!/bin/sh\nkubeadm join [fd00::1]:6443 --token {TOKEN} # {{{{ v1.region }}}}"
    )
    for name in VARIABLES:
        assert "grange." not in template(f"{{{{ grange.{name} }}}}").replace("grange.dev/", "")


def test_an_unknown_variable_is_refused() -> None:
    with pytest.raises(MisconfiguredError, match=r"no variable grange\.tokn; use one of grange\.s"):
        template("{{ grange.tokn }}")


def test_a_cloud_config_runs_where_there_is_no_cloud_init(tmp_path: Path) -> None:
    secret, order = tmp_path / "in" / "secret file", tmp_path / "order"
    text = (
        f"write_files:\n- {{path: {secret}, content: \"it's $HOME\\n\", permissions: '0600'}}\n"
        f"- {{path: {tmp_path / 'plain'}, permissions: 0o640}}\n"
        f'runcmd:\n- echo 1 >>{order}\n- [sh, -c, "echo \\"$0\\" >>{order}", "2 3"]\n'
    ).replace("0o640", "0640")
    for _ in range(2):
        subprocess.run(["sh", "-c", cloud_config_script(text)], check=True, timeout=300)
    assert secret.read_text() == "it's $HOME\n"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "plain").stat().st_mode & 0o777 == 0o640
    assert order.read_text() == "1\n2 3\n" * 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("packages: [a]", "packages needs cloud-init"),
        ("write_files: [{path: /a, owner: b}]", r"write_files\[0\]\.owner needs cloud-init"),
        (
            f"write_files: [{{path: /a, content: !!binary {base64.b64encode(b'a').decode()}}}]",
            "text",
        ),
        ("write_files: [{path: /a, permissions: u+x}]", "octal"),
        ("runcmd: [[1]]", r"runcmd\[0\] is no command"),
    ],
)
def test_what_needs_cloud_init_is_refused_without_it(text: str, why: str) -> None:
    with pytest.raises(MisconfiguredError, match=rf"^spec\.userData: .*{why}.*; "):
        cloud_config_script(text)


@pytest.mark.parametrize("systemd", [True, False])
def test_the_agent_is_installed_once_and_started(*, systemd: bool, tmp_path: Path) -> None:
    """The files as a host gets them, below another root; python, pip and systemd are stand-ins."""
    root, programs = tmp_path / "root", tmp_path / "programs"
    for directory in (programs, root / "var/log", root / ("run/systemd/system" * systemd)):
        directory.mkdir(parents=True, exist_ok=True)
    log, started = tmp_path / "log", tmp_path / "started"
    os.mkfifo(started)
    record = f'#!/bin/sh\n[ "$1" = -c ] || echo "${{0##*/}} $*" >>{log}\n'
    grange = f'#!/bin/sh\necho "$GRANGE_JOIN_TOKEN $*" >{started}\n'
    made = '[ "$2" != venv ] || { mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; }\n'
    pip = f'[ "$2" != pip ] || cp {programs}/grange "${{0%/*}}/grange"\n'
    for name, text in (
        ("python3.14", record + made + pip),
        ("systemctl", record),
        ("grange", grange),
    ):
        (programs / name).write_text(text)
        (programs / name).chmod(0o700)
    text = agent("", AgentPackage("1.2.0"))
    script = cloud_config_script(re.sub(r"(?<=[\s=])/(etc|opt|run|var)/", rf"{root}/\1/", text))
    variables = {"PATH": f"{programs}:{os.defpath}"}
    command = (
        f"agent --server https://[fd00::1]:6443 --ca-hash sha256:{'0' * 64} --node-name p-1 "
        f"--data-dir {root}/var/lib/grange --label a= --label grange.dev/node-pool=p "
        "--taint dedicated=p:NoSchedule\n"
    )
    for _ in range(2):
        subprocess.run(["sh", "-c", script], check=True, timeout=300, env=variables)
        if not systemd:
            assert started.read_text() == f"{TOKEN} {command}"  # waits for it
    assert log.read_text().splitlines() == [
        f"python3.14 -m venv {root}/opt/grange",
        "python -m pip install --quiet --disable-pip-version-check grange==1.2.0",
        *([f"systemctl {what}" for what in UNIT] * 2 * systemd),
    ]
    run = (root / "etc/grange/run-agent").read_text()
    assert shlex.split(run, comments=True) == [
        "exec",
        f"{root}/opt/grange/bin/grange",
        *command.split(),
    ]
    unit = (root / "etc/systemd/system/grange-agent.service").read_text()
    assert f"\nExecStart={root}/etc/grange/run-agent\n" in unit
