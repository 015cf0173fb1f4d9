"""Rules of the restart policy of a container, and of its ``restartPolicyRules``."""

from typing import Any

from grange.api.restart_policies import EXIT_CODE_OPERATORS, RESTART_POLICIES
from grange.api.validation.causes import Faults

_RULES_MAX = 20
_CODES_MAX = 255
_ACTIONS = ("Restart",)


def check_restart_rules(container: dict[str, Any], path: str, faults: Faults) -> None:
    """Every rule of the restarts of a container."""
    policy = container.get("restartPolicy")
    if policy is not None and policy not in RESTART_POLICIES:
        faults.not_supported(f"{path}.restartPolicy", policy, tuple(RESTART_POLICIES))
    rules = container.get("restartPolicyRules")
    if not rules:
        return
    if policy is None:
        faults.required(f"{path}.restartPolicy", "must be set where there are restartPolicyRules")
    if len(rules) > _RULES_MAX:
        faults.invalid(f"{path}.restartPolicyRules", len(rules), f"at most {_RULES_MAX} rules")
    for index, rule in enumerate(rules):
        at = f"{path}.restartPolicyRules[{index}]"
        if rule.get("action") not in _ACTIONS:
            faults.not_supported(f"{at}.action", rule.get("action", ""), _ACTIONS)
        codes = rule.get("exitCodes")
        if codes is None:
            faults.required(f"{at}.exitCodes", "a rule needs exit codes")
            continue
        if codes.get("operator") not in EXIT_CODE_OPERATORS:
            operator = codes.get("operator", "")
            faults.not_supported(f"{at}.exitCodes.operator", operator, tuple(EXIT_CODE_OPERATORS))
        values = codes.get("values") or ()
        if len(values) > _CODES_MAX:
            faults.invalid(f"{at}.exitCodes.values", len(values), f"at most {_CODES_MAX} values")
