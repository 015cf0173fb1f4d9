"""A merge touches our own entries alone, and keeps what others wrote as they wrote it."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from grange.client import kubeconfig, kubeconfig_contexts
from grange.client.errors import KubeconfigError
from grange.client.kubeconfig_edit import edited

CA = b"-----BEGIN CERTIFICATE-----"
OURS = "ours"
COMMENTED = """\
# my clusters
apiVersion: v1
kind: Config
current-context: prod # careful
clusters:
  # the one that earns the money
  - cluster:
      server: https://prod.example # east
    name: prod
# people
users:
- name: prod
  user:
    token: "1"   # rotates
  # the end of the users
preferences: {}
contexts:
-
  name: prod
  context: {cluster: prod, user: prod}
# the end
"""


def merge(path: Path, name: str = "demo", home: str = "/data/demo", **more: Any) -> Any:
    server = more.pop("server", "https://127.0.0.1:6443")
    return kubeconfig_contexts.merge(path, name, server, CA, OURS, switch=False, home=home, **more)


def survives(before: str, after: str) -> bool:
    """Whether every line is still there, in order."""
    lines = iter(after.splitlines())
    return all(line in lines for line in before.splitlines())


def comments(text: str) -> list[str]:
    return [line.partition("#")[2] for line in text.splitlines() if "#" in line]


def test_comments_order_and_current_context_survive(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(COMMENTED)
    merged = merge(path)
    assert (merged.context, merged.current) == ("demo", False)
    text = path.read_text()
    assert comments(text) == comments(COMMENTED)
    assert survives(COMMENTED, text)
    assert kubeconfig.load([path]).server == "https://prod.example"
    assert kubeconfig.load([path], "demo").token == OURS
    merge(path, server="https://127.0.0.1:7443")
    assert kubeconfig.load([path], "demo").server == "https://127.0.0.1:7443"
    assert comments(path.read_text()) == comments(COMMENTED)


def test_foreign_entry_of_the_name_is_not_touched(tmp_path: Path) -> None:
    """A user entry with a client key was overwritten, and would have sent our token elsewhere."""
    path = tmp_path / "config"
    foreign = {"users": [{"name": "grange", "user": {"client-key-data": "a2V5"}}]}
    path.write_text(yaml.safe_dump(foreign))
    merged = merge(path, "grange")
    assert merged.context.startswith("grange-")
    assert merged.current
    document = yaml.safe_load(path.read_text())
    assert document["users"][0] == foreign["users"][0]
    assert kubeconfig.load([path]).token == OURS
    assert merge(path, "grange") == merged, "it finds its own entries again"
    assert len(yaml.safe_load(path.read_text())["users"]) == 2


def test_foreign_entry_in_another_file_counts(tmp_path: Path) -> None:
    """Of several entries of a name the first file's counts: its token would go to our server."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    theirs.write_text(yaml.safe_dump({"users": [{"name": "demo", "user": {"token": "theirs"}}]}))
    merged = merge(ours, others=[ours, theirs, tmp_path / "missing"])
    assert merged.context.startswith("demo-")
    assert kubeconfig.load([theirs, ours], merged.context).token == OURS


def test_each_data_directory_has_a_context(tmp_path: Path) -> None:
    path = tmp_path / "config"
    first, second = merge(path, "data", home="/a/data"), merge(path, "data", home="/b/data")
    assert (first.context, first.current) == ("data", True)
    assert second.context.startswith("data-")
    assert second.current, "one of ours may follow another"
    assert kubeconfig_contexts.current_home([path]) == (second.context, "/b/data")
    assert merge(path, "data", home="/a/data").context == "data"
    assert kubeconfig_contexts.current_home([tmp_path / "missing", path]) == ("data", "/a/data")


def test_names_that_are_all_taken_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("{}\n")
    for _ in range(3):
        taken = merge(path).context
        document = yaml.safe_load(path.read_text())
        for item in document["contexts"]:
            if item["name"] == taken:
                del item["context"]["extensions"]
        path.write_text(yaml.safe_dump(document))
    before = path.read_bytes()
    with pytest.raises(KubeconfigError, match="belong to something else"):
        merge(path)
    assert path.read_bytes() == before


def test_style_that_cannot_be_extended_keeps_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text('{"clusters": [{"name": "x"}]} # one line\n')
    with pytest.raises(KubeconfigError, match="without losing its comments"):
        merge(path)
    assert path.read_text() == '{"clusters": [{"name": "x"}]} # one line\n'
    path.write_text('{"clusters": [{"name": "x"}]}\n')
    merge(path)
    assert [item["name"] for item in yaml.safe_load(path.read_text())["clusters"]] == ["x", "demo"]


def test_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        return  # only root can give a link away
    real, link = tmp_path / "real", tmp_path / "config"
    real.write_text("{}\n")
    link.symlink_to(real)
    os.lchown(link, 12345, -1)
    with pytest.raises(KubeconfigError, match="symbolic link of another user"):
        merge(link)
    with pytest.raises(KubeconfigError, match="symbolic link of another user"):
        kubeconfig_contexts.write(link, "a", "https://g", CA, "t")
    assert real.read_text() == "{}\n"


NAMES = st.sampled_from(["a", "b c", "x: y", "#z", "-", "é", "true", "1"])
ITEMS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES}, optional={"user": st.dictionaries(NAMES, NAMES, max_size=2)}
    ),
    max_size=3,
    unique_by=lambda item: str(item["name"]),
)
DOCUMENTS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "users": ITEMS | st.none(),
        "clusters": ITEMS,
        "current-context": NAMES | st.just(""),
        "preferences": st.just({}),
    },
)


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS, DOCUMENTS, st.booleans(), st.sampled_from(["", "\n", "# end\n", "...\n"]))
def test_edited_text_has_what_is_wanted_and_keeps_comments(
    before: dict[str, Any], changes: dict[str, Any], indented: bool, end: str
) -> None:
    lines: list[str] = []
    for line in yaml.safe_dump(before, sort_keys=False).splitlines(keepends=True):
        deeper = indented and line.startswith(("-", " "))
        lines += [f"# before {len(lines)}\n", f"  {line}" if deeper else line]
    text = "".join(lines) + end
    if yaml.safe_load(text) != before:
        return
    wanted = {**before, **changes}
    result = edited(text, before, wanted)
    if result is None:
        return
    assert yaml.safe_load(result) == wanted
    more = {**before, "users": [*(before.get("users") or []), {"name": "new"}]}
    extended = edited(text, before, more)
    if extended is not None and before.get("users"):
        assert survives(text, extended)
