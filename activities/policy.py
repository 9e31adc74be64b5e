"""Policy: the bundle's rules over the final arguments of a call. First match wins.

A rule that cannot be evaluated (a missing field, a wrong type, a result that is not a boolean) asks a person, and
denies where the rule denies: an error never lets a call through. No match: read is allowed, everything else asks.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from activities.manifest import EffectRule, Manifest, Rule, ToolSpec
from activities.tools import Registry
from workflows.records import Effect

if TYPE_CHECKING:
    import cel

DEFAULT_TIMEOUT = 86_400.0


@dataclass(frozen=True)
class Ruling:
    """What policy says of one call, which rule said it, and how long (seconds) a person has to answer."""

    decision: Literal["allow", "ask", "deny"]
    reason: str
    timeout: float = DEFAULT_TIMEOUT


def rule_call(manifest: Manifest, tool: ToolSpec, arguments: dict[str, Any]) -> Ruling:
    """The ruling on a call with these final arguments."""
    for number, rule in enumerate(manifest.file.policy, 1):
        if not fnmatchcase(tool.name, rule.tool):
            continue
        matched = evaluate(rule.when, arguments)
        if matched is False:
            continue
        return _ruling(rule, number, matched)
    if tool.effect == "read":
        return Ruling("allow", "reading is allowed")
    return Ruling("ask", f"no policy rule covers {tool.name}, which has an effect ({tool.effect})")


def _ruling(rule: Rule, number: int, matched: bool | str) -> Ruling:
    where = f"policy rule {number} ({rule.tool}{' when ' + rule.when if rule.when else ''})"
    timeout = DEFAULT_TIMEOUT if rule.timeout is None else rule.timeout
    if isinstance(matched, str):
        decision: Literal["ask", "deny"] = "deny" if rule.decision == "deny" else "ask"
        return Ruling(decision, f"{where} cannot be evaluated: {matched}", timeout)
    return Ruling(rule.decision, f"{where}: {rule.reason}" if rule.reason else where, timeout)


def recovery_effect(manifest: Manifest, tool: ToolSpec, arguments: dict[str, Any]) -> Effect:
    """The class by which a call recovers: the bundle's `[[effect]]` rules, else the declared one."""
    rules: list[EffectRule] = manifest.file.effect
    for rule in rules:
        if fnmatchcase(tool.name, rule.tool) and evaluate(rule.when, arguments) is True:
            return rule.effect
    return tool.effect


def limits_of(registry: Registry, spec: ToolSpec, final: dict[str, Any]) -> dict[str, Any]:
    """How a call with these final arguments runs: how long at most, and whether alone in the workspace."""
    tool = registry.get(spec.name)
    return {"timeout": spec.timeout} if tool is None else {"timeout": tool.seconds(final), "writes": tool.writes}


def check_rule(when: str | None) -> None:
    """Raises ValueError for an expression that does not parse."""
    if when is not None:
        _compiled(when)


def evaluate(when: str | None, arguments: dict[str, Any]) -> bool | str:
    """True or False; a text that says what is wrong when there is no such answer."""
    if when is None:
        return True
    try:
        result = _compiled(when).execute({"arguments": arguments})
    except Exception as error:  # noqa: BLE001 - whatever a rule raises is not a yes
        return f"{type(error).__name__}: {str(error)[:120]}"
    return result if isinstance(result, bool) else f"its value is {type(result).__name__}, not a boolean"


@lru_cache(maxsize=1024)
def _compiled(when: str) -> "cel.Program":
    import cel  # with it comes a terminal library, which a worker without such rules need not wait for

    return cel.compile(when)
