"""Quantities are exact, round up and refuse what they cannot read."""

from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

from grange.api import quantity

SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(1 << 10),
    "Mi": Fraction(1 << 20),
    "Gi": Fraction(1 << 30),
    "Ti": Fraction(1 << 40),
    "Pi": Fraction(1 << 50),
    "Ei": Fraction(1 << 60),
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", Fraction(0)),
        ("500m", Fraction(1, 2)),
        ("1.5Gi", Fraction(3 << 29)),
        ("2e3", Fraction(2000)),
        ("2E3", Fraction(2000)),
        ("1E", Fraction(10**18)),
        ("12e-1", Fraction(6, 5)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("-3", Fraction(-3)),
        ("+3k", Fraction(3000)),
        (3, Fraction(3)),
        (0.1, Fraction(1, 10)),
        (1e16, Fraction(10**16)),
    ],
)
def test_parse_is_exact(text: quantity.Quantity, value: Fraction) -> None:
    assert quantity.parse(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "1 Gi",
        "1gi",
        "1K",
        "1e",
        "e3",
        "--1",
        "1.2.3",
        "0x10",
        "1e999",
        "9" * 50,
        "½",
        "\u0661",
        "1_000",
    ],
)
def test_parse_refuses_what_is_no_quantity(text: str) -> None:
    with pytest.raises(quantity.QuantityError, match="is not a quantity: write a number"):
        quantity.parse(text)


def test_parse_refuses_booleans_and_other_types() -> None:
    for wrong in (True, None, [1]):
        with pytest.raises(quantity.QuantityError):
            quantity.parse(wrong)  # type: ignore[arg-type] # wrong on purpose


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 10**15), st.integers(0, 999), st.sampled_from(sorted(SUFFIXES)), st.booleans()
)
def test_parse_agrees_with_arithmetic(whole: int, part: int, suffix: str, negative: bool) -> None:
    sign = "-" if negative else ""
    expected = (whole + Fraction(part, 1000)) * SUFFIXES[suffix] * (-1 if negative else 1)
    assert quantity.parse(f"{sign}{whole}.{part:03d}{suffix}") == expected


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**12), st.sampled_from(sorted(SUFFIXES)))
def test_milli_and_value_round_up_to_the_next_whole(number: int, suffix: str) -> None:
    exact = quantity.parse(f"{number}{suffix}")
    for whole, scale in (
        (quantity.milli(f"{number}{suffix}"), 1000),
        (quantity.value(f"{number}{suffix}"), 1),
    ):
        assert 0 <= whole - exact * scale < 1


def test_milli_and_value_take_bare_numbers() -> None:
    assert quantity.milli(2) == 2000
    assert quantity.milli(0.0001) == 1
    assert quantity.value(2) == 2
    assert quantity.value(1.5) == 2


@settings(max_examples=200, deadline=None)
@given(st.integers(-(10**18), 10**18))
def test_formats_read_back_as_they_were(number: int) -> None:
    assert quantity.parse(quantity.format_milli(number)) == Fraction(number, 1000)
    assert quantity.parse(quantity.format_binary(number)) == number
    assert quantity.parse(quantity.format_decimal(Fraction(number, 1000))) == Fraction(number, 1000)


def test_formats_choose_the_largest_suffix_that_loses_nothing() -> None:
    assert quantity.format_binary(3 << 30) == "3Gi"
    assert quantity.format_binary(1000) == "1000"
    assert quantity.format_milli(1500) == "1500m"
    assert quantity.format_decimal(Fraction(0)) == "0"
    assert quantity.format_decimal(Fraction(1500)) == "1500"
    assert quantity.format_decimal(Fraction(1, 3)) == "333333334n"
