"""Numbers of things in messages: ``1 pod``, ``3 pods``."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """The number with its noun.

    Args:
        count: how many.
        noun: of one.
        plural: of several; by default the noun with an s.
    """
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"


def be(count: int) -> str:
    """``is`` after one thing, ``are`` after several or none."""
    return "is" if count == 1 else "are"
