"""What differs between two pod templates, as short paths for people."""

from grange.api.meta import Document


def changed_paths(before: Document, after: Document) -> list[str]:
    """The paths of what was added, removed or changed, without a leading ``spec``.

    Items of lists are matched by their names where they have some, else by position.
    """
    return [path.removeprefix("spec.") for path in _changes("", before, after)]


def _changes(path: str, before: object, after: object) -> list[str]:
    if before == after:
        return []
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted({*before, *after})
        items = [(_field(path, key), before.get(key), after.get(key)) for key in keys]
    elif isinstance(before, list) and isinstance(after, list):
        old, new = _keyed(before), _keyed(after)
        items = [(f"{path}[{key}]", old.get(key), new.get(key)) for key in {**old, **new}]
    else:
        return [path]
    return [found for item in items for found in _changes(*item)] or [path]  # order alone differs


def _field(path: str, key: str) -> str:
    if "." in key or "/" in key:
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def _keyed(items: list[object]) -> dict[object, object]:
    names = [item.get("name") for item in items if isinstance(item, dict)]
    if len(set(names)) == len(items) and all(names):
        return dict(zip(names, items, strict=True))
    return dict(enumerate(items))
