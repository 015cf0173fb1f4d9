"""Rules of metav1.LabelSelector and of its expressions."""

from typing import Any

from grange.api import names, selectors
from grange.api.validation.causes import Faults
from grange.api.validation.metadata import check_labels

EXPRESSIONS_MAX = 256  # of one selector: each is looked at for every object
_VALUES_MAX = 5_000  # of one expression: as many as a large cluster has nodes


def check_label_selector(selector: dict[str, Any], path: str, faults: Faults) -> None:
    """Labels and expressions of a selector at ``path``."""
    if labels := selector.get("matchLabels"):
        check_labels(labels, f"{path}.matchLabels", faults)
    expressions = selector.get("matchExpressions") or ()
    if len(expressions) > EXPRESSIONS_MAX:
        message = f"must have at most {EXPRESSIONS_MAX} items, has {len(expressions)}"
        faults.too_long(f"{path}.matchExpressions", message)
    for index, item in enumerate(expressions):
        at = f"{path}.matchExpressions[{index}]"
        check_requirement(item, at, selectors.OPERATORS, faults)


def check_requirement(
    item: dict[str, Any], path: str, operators: tuple[str, ...], faults: Faults
) -> None:
    """Key, operator and number of values of one expression."""
    key, operator, values = item.get("key", ""), item.get("operator", ""), item.get("values") or ()
    faults.named(f"{path}.key", key, names.check_qualified_name(key))
    if operator not in operators:
        faults.not_supported(f"{path}.operator", operator, operators)
    elif operator in (selectors.IN, selectors.NOT_IN):
        if not values:
            message = "must be specified when `operator` is 'In' or 'NotIn'"
            faults.required(f"{path}.values", message)
    elif operator in (selectors.EXISTS, selectors.DOES_NOT_EXIST):
        if values:
            message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            faults.forbidden(f"{path}.values", message)
    elif len(values) != 1:
        message = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        faults.required(f"{path}.values", message)
    if len(values) > _VALUES_MAX:
        message = f"must have at most {_VALUES_MAX} items, has {len(values)}"
        faults.too_long(f"{path}.values", message)
    for index, value in enumerate(values[:_VALUES_MAX]):
        faults.named(f"{path}.values[{index}]", value, names.check_label_value(value))
