"""Resource quantities: exact arithmetic over ``500m``, ``1.5Gi``, ``2e3``.

A quantity is a decimal number with a binary (Ki … Ei), decimal (n, u, m, k … E) or exponent suffix.
Values are kept as exact fractions; ``milli`` and ``value`` round up, as schedulers must.
"""

import re
from fractions import Fraction
from functools import lru_cache

from grange.base.errors import GrangeError

_FORM = re.compile(
    r"([+-]?)(?:(\d+)(?:\.(\d*))?|\.(\d+))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?\d{1,3}))?", re.ASCII
)
# Twice the digits of the largest value Kubernetes stores; more is an attack on the multiplier.
DIGITS_MAX = 40
_EXPONENT_MAX = 60
PATTERN = (
    r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)"
    r"([KMGTPE]i|[numkMGTPE]|[eE][+-]?(00[0-9]|0?([1-5]?[0-9]|60)))?$"
)
"""The same for schemas, in the words that RE2 and JSON Schema share; at most ``DIGITS_MAX`` long."""

_SUFFIX: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_BINARY = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")
_DECIMAL = ("E", "P", "T", "G", "M", "k", "", "m", "u", "n")

Quantity = str | int | float


class QuantityError(GrangeError):
    """Not a quantity: correct the value."""


def _refuse(text: object) -> QuantityError:
    return QuantityError(
        f'"{text}" is not a quantity: write a number with an optional suffix, '
        "like 500m, 2, 1.5Gi or 100M"
    )


@lru_cache(maxsize=8192)
def _parse(text: str) -> Fraction:
    match = _FORM.fullmatch(text) if len(text) <= DIGITS_MAX else None
    if match is None:
        raise _refuse(text)
    sign, whole, fraction, bare, suffix, exponent = match.groups()
    digits = (whole or "") + (fraction or bare or "")
    number = Fraction(int(digits), 10 ** len(fraction or bare or ""))
    if exponent:
        power = int(exponent)
        if abs(power) > _EXPONENT_MAX:
            raise _refuse(text)
        number *= Fraction(10) ** power
    elif suffix:
        number *= _SUFFIX[suffix]
    return -number if sign == "-" else number


def parse(q: Quantity) -> Fraction:
    """The exact value of a quantity on the wire (text, or a bare JSON number).

    Raises:
        QuantityError: it is no quantity.
    """
    if isinstance(q, str):
        return _parse(q)
    if isinstance(q, bool) or not isinstance(q, int | float):
        raise _refuse(q)
    return Fraction(q) if isinstance(q, int) else _parse(repr(q))


@lru_cache(maxsize=8192)
def _milli(text: str) -> int:
    number = _parse(text)
    return -(-number.numerator * 1000 // number.denominator)


@lru_cache(maxsize=8192)
def _value(text: str) -> int:
    number = _parse(text)
    return -(-number.numerator // number.denominator)


def milli(q: Quantity) -> int:
    """Thousandths, rounded up: CPU in millicores.

    Raises:
        QuantityError: it is no quantity.
    """
    if isinstance(q, str):
        return _milli(q)
    number = parse(q)
    return -(-number.numerator * 1000 // number.denominator)


def value(q: Quantity) -> int:
    """Whole units, rounded up: memory in bytes, counts of devices.

    Raises:
        QuantityError: it is no quantity.
    """
    if isinstance(q, str):
        return _value(q)
    number = parse(q)
    return -(-number.numerator // number.denominator)


def format_milli(thousandths: int) -> str:
    """So many thousandths in canonical form: 1500 → ``1500m``, 2000 → ``2``."""
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def format_binary(units: int) -> str:
    """So many units with the largest binary suffix that loses nothing: 1048576 → ``1Mi``."""
    if units:
        for suffix in _BINARY:
            size = int(_SUFFIX[suffix])
            if units % size == 0:
                return f"{units // size}{suffix}"
    return str(units)


def format_decimal(number: Fraction) -> str:
    """A number with the largest decimal suffix that loses nothing; below nano it rounds up."""
    for suffix in _DECIMAL:
        size = _SUFFIX.get(suffix, Fraction(1))
        scaled = number / size
        if scaled.denominator == 1 and (scaled != 0 or suffix == ""):
            return f"{scaled.numerator}{suffix}"
    nano = number * 10**9
    return f"{-(-nano.numerator // nano.denominator)}n"
