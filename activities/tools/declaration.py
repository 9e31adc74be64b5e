"""Declaring a tool: the `tool` decorator and the `Tool` it makes.

A tool's signature and docstring are its whole description: the JSON Schema shown to a model and the validation of what
the model sends come from the same pydantic model, so they cannot differ.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

from pydantic import TypeAdapter

from activities.tools.errors import ToolDeclarationError
from activities.tools.signature import Arguments, arguments_of, described, parameters_of

Effect = Literal["read", "idempotent", "once"]
OnUnknown = Literal["review", "skip", "retry"]
Guard = Callable[[dict[str, Any], dict[str, Any]], str | None]
Deadline = Callable[[dict[str, Any]], float]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_Side = TypeVar("_Side", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True, eq=False)
class Tool:
    """A declared tool. Calling it calls the function.

    `timeout` and `key_valid` are in seconds; `schema` is the JSON Schema of the arguments; `wire_name` is the name as a
    model sees it, with dots written `__`. A `guard` gets the final arguments and the bundle's options for the tool and
    gives a reason to ask a person although policy would allow the call, or None. A `question` is put to a person, never
    executed. `writes`: it changes the workspace, and such calls of a run come one at a time. `lookup_fn` finds out
    whether an operation happened, `compensate_fn` undoes one.
    """

    fn: Callable[..., Any]
    name: str
    description: str
    effect: Effect
    on_unknown: OnUnknown
    local: bool
    timeout: float
    key_valid: float
    guard: Guard | None
    question: bool
    writes: bool
    deadline: Deadline | None
    takes_op: bool
    arguments: Arguments = field(repr=False)
    lookup_fn: Callable[..., Any] | None = field(default=None, init=False)
    compensate_fn: Callable[..., Any] | None = field(default=None, init=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function gives: for an async tool, an awaitable."""
        return self.fn(*args, **kwargs)

    @property
    def wire_name(self) -> str:
        return wire_name(self.name)

    @property
    def schema(self) -> dict[str, Any]:
        return self.arguments.schema

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.fn)

    @property
    def module(self) -> str:
        return self.fn.__module__

    def seconds(self, arguments: dict[str, Any]) -> float:
        """How long a call with these final arguments may take."""
        return self.timeout if self.deadline is None else min(self.timeout, self.deadline(arguments))

    def bind(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """JSON arguments as keyword arguments for the function, without `op`. Raises `pydantic.ValidationError`."""
        return self.arguments.bind(arguments)

    def canonical(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The final arguments as JSON values, defaults filled in. Raises `pydantic.ValidationError`."""
        return self.arguments.canonical(arguments)

    def lookup(self, fn: _Side) -> _Side:
        """Declares how to find out whether an operation happened: `fn(op)` gives its result, or None when it surely
        did not happen. It raises when it cannot tell."""
        _check_side(self.name, "lookup", fn, 1)
        object.__setattr__(self, "lookup_fn", fn)
        return fn

    def compensate(self, fn: _Side) -> _Side:
        """Declares how to undo an operation: `fn(op, result)`."""
        _check_side(self.name, "compensate", fn, 2)
        object.__setattr__(self, "compensate_fn", fn)
        return fn

    def revive(self, body: str) -> Any:
        """A recorded result body as the value that `compensate` declares for its result: text as it is, everything
        else out of JSON. Raises `pydantic.ValidationError`."""
        wanted = parameters_of(self.compensate_fn)[1].annotation if self.compensate_fn else Any
        if wanted is str:
            return body
        if wanted in (inspect.Parameter.empty, Any):
            return _json_or_text(body)
        return TypeAdapter(wanted).validate_json(body)


def tool(
    *bare: Any,
    effect: Effect | None = None,
    name: str | None = None,
    local: bool = False,
    timeout: float = 30,
    on_unknown: OnUnknown = "review",
    key_valid: str | float = "24h",
    guard: Guard | None = None,
    question: bool = False,
    writes: bool = False,
    deadline: Deadline | None = None,
) -> Callable[[Callable[..., Any]], Tool]:
    """Declares a function as a tool.

    `effect` is required: `read` changes nothing, `idempotent` means that the other side honours
    `op.idempotency_key` for `key_valid` ("24h", "7d" or seconds), `once` is everything else; `on_unknown` says what
    happens to a `once` tool whose outcome is unknown. `local` marks a quick read without credentials. `writes`
    says that it changes the workspace: of such calls one runs at a time. `timeout` is in seconds; a `deadline` gives
    those of one call out of its final arguments, where they may be fewer. Raises `ToolDeclarationError`.
    """
    if bare or effect is None or effect not in get_args(Effect):
        where = getattr(bare[0], "__qualname__", "a tool") if bare else name or "a tool"
        raise ToolDeclarationError(
            f'{where} declares no valid effect (got {effect!r}); write @tool(effect="read"), "idempotent" or "once"'
        )

    def declare(fn: Callable[..., Any]) -> Tool:
        named = name or fn.__name__
        _check(named, fn, effect, local, timeout, on_unknown, guard)
        parameters = parameters_of(fn)
        description, notes = described(fn)
        return Tool(
            fn=fn,
            name=named,
            description=description,
            effect=effect,
            on_unknown=on_unknown,
            local=local,
            timeout=float(timeout),
            key_valid=_seconds(named, key_valid),
            guard=guard,
            question=question,
            writes=writes,
            deadline=deadline,
            takes_op=any(parameter.name == "op" for parameter in parameters),
            arguments=arguments_of(named, parameters, notes),
        )

    return declare


def wire_name(name: str) -> str:
    """`crm.refund` -> `crm__refund`: models accept no dots in names."""
    return name.replace(".", "__")


def _check(
    name: str,
    fn: Callable[..., Any],
    effect: Effect,
    local: bool,
    timeout: float,
    on_unknown: OnUnknown,
    guard: Guard | None,
) -> None:
    """Raises for what can be said without looking at the signature."""
    problem = None
    if not _NAME.fullmatch(name) or len(wire_name(name)) > 64:
        problem = "has a bad name; give name= of at most 64 of A-Z a-z 0-9 _ . - (a dot counts twice)"
    elif inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        problem = "is a generator; return the whole result instead"
    elif local and effect != "read":
        problem = f"is local but its effect is {effect}; only read tools may be local"
    elif on_unknown not in get_args(OnUnknown):
        problem = f'has on_unknown={on_unknown!r}; choose "review", "skip" or "retry"'
    elif on_unknown != "review" and effect != "once":
        problem = f"has on_unknown={on_unknown!r} but its effect is {effect}; on_unknown belongs to once tools"
    elif not 0 < timeout < float("inf"):
        problem = f"has timeout={timeout!r}; give a number of seconds above zero"
    elif guard is not None and not callable(guard):
        problem = "has a guard that cannot be called; give a function (arguments, options)"
    if problem:
        raise ToolDeclarationError(f"the tool {name!r} {problem}")


def _check_side(name: str, kind: str, fn: Callable[..., Any], count: int) -> None:
    """A lookup takes `op`, a compensation `op` and the result."""
    if len(parameters_of(fn)) != count:
        wanted = "(op)" if count == 1 else "(op, result)"
        raise ToolDeclarationError(f"the {kind} of the tool {name!r} must take exactly {wanted}")


def _seconds(name: str, duration: str | float) -> float:
    match = _DURATION.fullmatch(str(duration).strip())
    seconds = float(match[1]) * _SECONDS[match[2] or "s"] if match else 0.0
    if seconds <= 0:
        raise ToolDeclarationError(f'the tool {name!r} has key_valid={duration!r}; write "90s", "30m", "24h" or "7d"')
    return seconds


def _json_or_text(body: str) -> Any:
    try:
        return TypeAdapter(Any).validate_json(body)
    except ValueError:
        return body
