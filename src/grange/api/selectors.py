"""Label and field selectors: parsed once, matched often.

``Labels`` reads kubectl's text form and metav1.LabelSelector alike; ``Fields`` reads field
selectors, whose paths the kind declares. Both are immutable and safe to share.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from grange.api import names
from grange.api.meta import LabelSelector
from grange.base.errors import GrangeError

IN, NOT_IN, EXISTS, DOES_NOT_EXIST = "In", "NotIn", "Exists", "DoesNotExist"
GREATER, LESS = "Gt", "Lt"
OPERATORS = (IN, NOT_IN, EXISTS, DOES_NOT_EXIST)
NODE_OPERATORS = (*OPERATORS, GREATER, LESS)

_TOKEN = re.compile(r"\s+|(==|!=|[=<>!,()]|[^\s=<>!,()]+)")
_INTEGER = re.compile(r"([+-]?)0*(\d{1,19})", re.ASCII)
_TEXT_MAX = 16_384
_REQUIREMENTS_MAX = 256  # of a selector in a query: each is looked at for every object


class SelectorError(GrangeError):
    """The selector cannot be read; the message names the position."""


def as_integer(text: str) -> int | None:
    """The integer that Gt and Lt compare, leading zeros allowed; None when no int64."""
    found = _INTEGER.fullmatch(text)
    if found is None:
        return None
    number = int(found[1] + found[2])
    return number if -(2**63) <= number < 2**63 else None


@dataclass(frozen=True, slots=True)
class Requirement:
    """One ``key operator values`` condition on a set of labels."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet the requirement; a key that is absent meets the negative ones."""
        held = labels.get(self.key)
        match self.operator:
            case "In":
                return held in self.values if held is not None else False
            case "NotIn":
                return held not in self.values
            case "Exists":
                return held is not None
            case "DoesNotExist":
                return held is None
            case _:
                return held is not None and self._compare(held)

    def _compare(self, held: str) -> bool:
        number, bound = as_integer(held), as_integer(self.values[0]) if self.values else None
        if number is None or bound is None:
            return False
        return number > bound if self.operator == GREATER else number < bound

    def __str__(self) -> str:
        match self.operator:
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
            case "In" if len(self.values) == 1:
                return f"{self.key}={self.values[0]}"
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({','.join(sorted(self.values))})"
            case _:
                return f"{self.key}{'>' if self.operator == GREATER else '<'}{self.values[0]}"


_NOTHING = "grange.dev/nothing"


class Labels:
    """A conjunction of requirements on labels.

    The empty selector matches everything; the selector of None (an absent metav1.LabelSelector)
    matches nothing, as in Kubernetes.
    """

    __slots__ = ("_equal", "_nothing", "_rest", "requirements")

    def __init__(self, requirements: Sequence[Requirement] = (), *, nothing: bool = False) -> None:
        self.requirements = tuple(requirements)
        self._nothing = nothing
        # Most selectors are plain equalities: those are compared without a call each.
        self._equal = tuple(
            (item.key, item.values[0])
            for item in self.requirements
            if item.operator == IN and len(item.values) == 1
        )
        self._rest = tuple(
            item for item in self.requirements if item.operator != IN or len(item.values) != 1
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``a=b,c in (d,e),!f``; the empty text matches everything.

        Raises:
            SelectorError: the text is no label selector.
        """
        return cls(_LabelParser(text).requirements())

    @classmethod
    def of(cls, selector: LabelSelector | Mapping[str, Any] | None) -> Self:
        """The selector of a metav1.LabelSelector, as a view or a document.

        Raises:
            SelectorError: an expression lacks its key or has an unknown operator.
        """
        if selector is None:
            return cls(nothing=True)
        if isinstance(selector, LabelSelector):
            labels: Mapping[str, str] = selector.match_labels
            expressions = [(e.key, e.operator, e.values) for e in selector.match_expressions]
        else:
            labels = selector.get("matchLabels") or {}
            expressions = [
                (e.get("key", ""), e.get("operator", ""), tuple(e.get("values") or ()))
                for e in selector.get("matchExpressions") or []
            ]
        requirements = [Requirement(key, IN, (labels[key],)) for key in sorted(labels)]
        for key, operator, values in expressions:
            if not key or operator not in OPERATORS:
                raise SelectorError(
                    f'label selector expression "{key} {operator}" needs a key and one of the '
                    f"operators {', '.join(OPERATORS)}"
                )
            requirements.append(Requirement(key, operator, values))
        return cls(requirements)

    @property
    def empty(self) -> bool:
        """Whether it matches everything."""
        return not self.requirements and not self._nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet all requirements."""
        if self._nothing:
            return False
        for key, wanted in self._equal:
            if labels.get(key) != wanted:
                return False
        return all(item.matches(labels) for item in self._rest)

    def __str__(self) -> str:
        if self._nothing:  # the empty text would match everything
            return f"{_NOTHING},!{_NOTHING}"
        return ",".join(str(item) for item in self.requirements)

    def __repr__(self) -> str:
        return "Labels(nothing)" if self._nothing else f"Labels({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Labels):
            return NotImplemented
        return (self.requirements, self._nothing) == (other.requirements, other._nothing)

    def __hash__(self) -> int:
        return hash((self.requirements, self._nothing))


class _LabelParser:
    """A cursor over the tokens of a label selector."""

    def __init__(self, text: str) -> None:
        if len(text) > _TEXT_MAX:
            raise SelectorError(f"label selector is longer than {_TEXT_MAX} characters")
        self._text = text
        self._tokens = list(_tokens(text))
        self._next = 0

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        if not self._tokens:
            return found
        while True:
            found.append(self._requirement())
            if len(found) > _REQUIREMENTS_MAX:
                raise SelectorError(
                    f"label selector has more than {_REQUIREMENTS_MAX} requirements"
                )
            word, position = self._take()
            if word == "":
                return found
            if word != ",":
                raise self._fault(position, f'expected "," but found "{word}"')

    def _requirement(self) -> Requirement:
        word, position = self._take()
        if word == "!":
            return Requirement(self._key(*self._take()), DOES_NOT_EXIST)
        key = self._key(word, position)
        operator, at = self._peek()
        if operator in ("", ","):
            return Requirement(key, EXISTS)
        self._next += 1
        match operator:
            case "=" | "==":
                return Requirement(key, IN, (self._value(),))
            case "!=":
                return Requirement(key, NOT_IN, (self._value(),))
            case "in":
                return Requirement(key, IN, self._values())
            case "notin":
                return Requirement(key, NOT_IN, self._values())
            case ">" | "<":
                return self._bound(key, operator)
        raise self._fault(at, f'expected =, !=, in, notin, > or < but found "{operator}"')

    def _bound(self, key: str, operator: str) -> Requirement:
        position = self._peek()[1]
        bound = self._value()
        if as_integer(bound) is None:
            raise self._fault(position, f'"{operator}" needs an integer, not "{bound}"')
        return Requirement(key, GREATER if operator == ">" else LESS, (bound,))

    def _key(self, word: str, position: int) -> str:
        if word == "" or word[0] in "=!,()<>":
            raise self._fault(position, f'expected a label key but found "{word or "the end"}"')
        fault = names.check_qualified_name(word)
        if fault:
            raise self._fault(position, f'label key "{word}": {fault}')
        return word

    def _value(self) -> str:
        word, position = self._peek()
        if word in ("", ",", ")"):
            return ""
        self._next += 1
        fault = names.check_label_value(word)
        if fault:
            raise self._fault(position, f'label value "{word}": {fault}')
        return word

    def _values(self) -> tuple[str, ...]:
        word, position = self._take()
        if word != "(":
            raise self._fault(position, f'expected "(" but found "{word or "the end"}"')
        values = [self._value()]
        while True:
            word, position = self._take()
            if word == ")":
                # Sorted and without doubles, so that equal selectors compare equal.
                return tuple(sorted(dict.fromkeys(values)))
            if word != ",":
                raise self._fault(position, f'expected "," or ")" but found "{word or "the end"}"')
            values.append(self._value())

    def _peek(self) -> tuple[str, int]:
        if self._next < len(self._tokens):
            return self._tokens[self._next]
        return "", len(self._text)

    def _take(self) -> tuple[str, int]:
        found = self._peek()
        self._next += 1
        return found

    def _fault(self, position: int, message: str) -> SelectorError:
        return SelectorError(f'label selector "{self._text}": {message} at position {position}')


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    # Every character is space, an operator or part of a word: nothing is passed over.
    for match in _TOKEN.finditer(text):
        if match.group(1) is not None:
            yield match.group(1), match.start(1)


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """``path=value``, or its negation."""

    path: str
    value: str
    negated: bool = False


class Fields:
    """A conjunction of (in)equalities on the fields that a kind lets be selected."""

    __slots__ = ("requirements",)

    def __init__(self, requirements: Sequence[FieldRequirement] = ()) -> None:
        self.requirements = tuple(requirements)

    @classmethod
    def parse(cls, text: str) -> Self:
        r"""Read ``spec.nodeName=x,status.phase!=Failed``; ``\,``, ``\=`` and ``\\`` escape.

        Raises:
            SelectorError: a term has no operator or no path, or an escape is unknown.
        """
        if len(text) > _TEXT_MAX:
            raise SelectorError(f"field selector is longer than {_TEXT_MAX} characters")
        found = []
        for term, position in _split(text, ","):
            if not term:
                continue
            path, negated, value = _field_term(text, term, position)
            found.append(FieldRequirement(path, _unescape(text, value, position), negated))
            if len(found) > _REQUIREMENTS_MAX:
                raise SelectorError(
                    f"field selector has more than {_REQUIREMENTS_MAX} requirements"
                )
        return cls(found)

    @property
    def empty(self) -> bool:
        """Whether it matches everything."""
        return not self.requirements

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths it reads, in order and without doubles."""
        return tuple(dict.fromkeys(item.path for item in self.requirements))

    def matches(self, reader: Callable[[str], str]) -> bool:
        """Whether all requirements hold; ``reader`` gives a path's value, empty when absent."""
        return all((reader(item.path) == item.value) != item.negated for item in self.requirements)

    def exact(self, path: str) -> str | None:
        """The value that the path must equal, or None when it is not fixed: for indexes."""
        for item in self.requirements:
            if item.path == path and not item.negated:
                return item.value
        return None

    def __str__(self) -> str:
        return ",".join(
            f"{item.path}{'!=' if item.negated else '='}{_escape(item.value)}"
            for item in self.requirements
        )

    def __repr__(self) -> str:
        return f"Fields({str(self)!r})"


def _split(text: str, separator: str) -> Iterator[tuple[str, int]]:
    """Pieces between separators that no backslash escapes, with their positions."""
    start = at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] == separator:
            yield text[start:at], start
            start = at + 1
        at += 1
    yield text[start:], start


def _field_term(text: str, term: str, position: int) -> tuple[str, bool, str]:
    match = re.match(r"([^=!\\]+)(!=|==|=)(.*)", term, re.DOTALL)
    if match is None:
        raise SelectorError(
            f'field selector "{text}": expected path=value or path!=value but found "{term}" '
            f"at position {position}"
        )
    return match.group(1).strip(), match.group(2) == "!=", match.group(3)


def _unescape(text: str, value: str, position: int) -> str:
    out = []
    characters = iter(value)
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if escaped not in ("\\", ",", "="):
                raise SelectorError(
                    f'field selector "{text}": "\\{escaped}" is no escape in the term '
                    f"at position {position}; use \\\\, \\, or \\="
                )
            out.append(escaped)
        elif character in "=,":
            raise SelectorError(
                f'field selector "{text}": "{character}" in a value must be escaped as '
                f'"\\{character}", in the term at position {position}'
            )
        else:
            out.append(character)
    return "".join(out)


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
