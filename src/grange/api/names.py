"""Names: what may identify an object, a port, a label or a variable.

Every check returns None when the value is fine and otherwise a message that describes what would be,
so that callers attach the field's path themselves.
"""

import hashlib
import re
from functools import lru_cache

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_SUBDOMAIN = re.compile(SUBDOMAIN)
_QUALIFIED = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PORT_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_ENV_NAME = re.compile(r"[ -<>-~]+")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")

DNS_LABEL_MAX = 63
DNS_SUBDOMAIN_MAX = 253
CONFIG_KEY_MAX = 253
PORT_NAME_MAX = 15
DIGEST_LENGTH = 10  # 40 bits: two of one namespace meet by chance once in a million million
_QUALIFIED_MAX = DNS_SUBDOMAIN_MAX + 1 + DNS_LABEL_MAX

_REMEMBERED = 2048  # label keys and values come again and again; checking one costs a microsecond


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


def check_dns_label(name: str) -> str | None:
    """RFC 1123 label (namespaces, containers, volumes): a message, or None when it is one."""
    if len(name) > DNS_LABEL_MAX:
        return _too_long(DNS_LABEL_MAX)
    if _LABEL.fullmatch(name):
        return None
    return (
        "must be a lower-case label: letters a-z, digits and '-', "
        "beginning and ending with a letter or digit"
    )


def check_dns_1035_label(name: str) -> str | None:
    """RFC 1035 label (services): a message, or None when it is one."""
    if len(name) > DNS_LABEL_MAX:
        return _too_long(DNS_LABEL_MAX)
    if _LABEL_1035.fullmatch(name):
        return None
    return (
        "must be a lower-case label: letters a-z, digits and '-', "
        "beginning with a letter and ending with a letter or digit"
    )


def check_dns_subdomain(name: str) -> str | None:
    """RFC 1123 subdomain (most objects): a message, or None when it is one."""
    if len(name) > DNS_SUBDOMAIN_MAX:
        return _too_long(DNS_SUBDOMAIN_MAX)
    if _SUBDOMAIN.fullmatch(name):
        return None
    return (
        "must be a lower-case DNS name: letters a-z, digits, '-' and '.', "
        "every part beginning and ending with a letter or digit"
    )


def check_path_segment(name: str) -> str | None:
    """A name that may be any part of a path: a message, or None when it is one."""
    if name in {".", ".."}:
        return f"may not be '{name}'"
    for part in ("/", "%"):
        if part in name:
            return f"may not contain '{part}'"
    return _too_long(DNS_SUBDOMAIN_MAX) if len(name) > DNS_SUBDOMAIN_MAX else None


def check_qualified_name(name: str) -> str | None:
    """Label or annotation key, ``[prefix/]name``: a message, or None when it is one."""
    # Nothing long is remembered: a stranger may send a different megabyte each time.
    if len(name) > _QUALIFIED_MAX:
        return f"must be no more than {_QUALIFIED_MAX} characters"
    return _check_qualified_name(name)


@lru_cache(maxsize=_REMEMBERED)
def _check_qualified_name(name: str) -> str | None:
    prefix, slash, local = name.rpartition("/")
    if slash:
        fault = check_dns_subdomain(prefix)
        if fault:
            return f"prefix part {fault}"
    if len(local) > DNS_LABEL_MAX:
        return f"name part {_too_long(DNS_LABEL_MAX)}"
    if _QUALIFIED.fullmatch(local):
        return None
    return (
        "name part must consist of letters, digits, '-', '_' and '.', "
        "beginning and ending with a letter or digit, like 'example.com/my-name'"
    )


def check_label_value(value: str) -> str | None:
    """Value of a label; it may be empty: a message, or None when it is one."""
    if not value:
        return None
    if len(value) > DNS_LABEL_MAX:
        return _too_long(DNS_LABEL_MAX)
    return _check_label_value(value)


@lru_cache(maxsize=_REMEMBERED)
def _check_label_value(value: str) -> str | None:
    if _QUALIFIED.fullmatch(value):
        return None
    return (
        "must be empty or consist of letters, digits, '-', '_' and '.', "
        "beginning and ending with a letter or digit"
    )


def check_port_name(name: str) -> str | None:
    """Name of a container's port (IANA service name): a message, or None when it is one."""
    if len(name) > PORT_NAME_MAX:
        return _too_long(PORT_NAME_MAX)
    if _PORT_NAME.fullmatch(name) and not name.isdigit():
        return None
    return "must consist of a-z, digits and single '-' between them, with at least one letter"


def check_env_name(name: str) -> str | None:
    """Name of an environment variable: a message, or None when it is one."""
    if _ENV_NAME.fullmatch(name):
        return None
    return "must consist of printable ASCII characters other than '='"


def check_config_key(name: str) -> str | None:
    """Key in a ConfigMap or Secret, which may become a file name: a message, or None."""
    if len(name) > CONFIG_KEY_MAX:
        return _too_long(CONFIG_KEY_MAX)
    if name == ".":
        return "must not be '.'"
    if name.startswith(".."):
        return "must not begin with '..'"
    if _CONFIG_KEY.fullmatch(name):
        return None
    return "must consist of letters, digits, '-', '_' and '.'"


def digest(*parts: str) -> str:
    """``DIGEST_LENGTH`` hexadecimal digits that differ where the parts do."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGEST_LENGTH]


def shortened(text: str, digest: str) -> str:
    """A DNS label of at most 63 characters: what is readable of the text, then the digest."""
    room = DNS_LABEL_MAX - DIGEST_LENGTH - 1
    readable = "".join(c if c.isascii() and c.isalnum() else "-" for c in text.lower())[:room]
    return f"{readable.strip('-')}-{digest}".lstrip("-")


def label_value(name: str) -> str:
    """The name as a label value: itself where it is one, else shortened with a hash."""
    return name if check_label_value(name) is None else shortened(name, digest(name))


def job_pod_name(job: str, role: str, index: int) -> str:
    """The name of a job's pod: the same in every attempt, so that no index runs twice at a time."""
    return "-".join((job, role.lower(), str(index)) if role else (job, str(index)))
