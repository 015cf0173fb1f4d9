"""What to do about a pull that failed, by what the container runtime answers; pure."""

_DENIED = ("401", "403", "unauthorized", "authorization failed", "denied", "insufficient_scope")
_AWAY = (
    *("connection refused", "no such host", "i/o timeout", "network is unreachable"),
    *("connection reset", "context deadline exceeded", "no route to host"),
)
# The first sign that is found decides: a registry that is away is not one that lacks an image.
_REMEDIES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("no space left",), "free space on the disk of the container runtime"),
    (
        ("x509", "http response to https client"),
        "configure the registry in the container runtime of the node, with its certificate",
    ),
    (
        _AWAY,
        "check the registry's name and the way from the node to it, or bring the image to the node",
    ),
    (_DENIED, ""),
    (("no match for platform",), "use an image for the architecture of the node"),
    (
        ("not found", "manifest unknown", "name unknown"),
        "check the image's name and tag, and that it was pushed",
    ),
)
_NO_CREDENTIALS = "check the image's name, and name a Secret with credentials for the registry in imagePullSecrets"
_WRONG_CREDENTIALS = "check the credentials in the Secrets that imagePullSecrets names"


def with_remedy(message: str, *, gave_credentials: bool) -> str:
    """The answer of a runtime with what to do about it; the answer alone where that is not known.

    Args:
        message: the answer.
        gave_credentials: the registry was given some.
    """
    lowered = message.lower()
    for signs, remedy in _REMEDIES:
        if any(sign in lowered for sign in signs):
            denied = _WRONG_CREDENTIALS if gave_credentials else _NO_CREDENTIALS
            return f"{message}; {remedy or denied}"
    return message
