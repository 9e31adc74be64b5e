"""The files that the scripted model plays.

A script is a TOML file; its name without `.toml` is the model's name:

    [variables]                  # optional: texts used more than once, as ${report}
    report = "# Report …"

    [[turn]]                     # played when the request holds no assistant message yet, and so on
    text = "I read the page first."
    expect = "five competitors"  # optional: must occur in the last tool or user message
    delay = 0.5                  # optional: seconds before the answer begins

    [[turn.calls]]
    tool = "crm.find"            # or crm__find
    arguments = { url = "${sites}/index.html" }

With `when = ["text", …]` at the top the script is played when all of these texts occur in the first user message,
whatever the model is called; of several such the one with the most texts.

A turn may also have `finish_reason` and `refusal`; a call may have `id`, and `arguments_text` (a raw string, to play a
model that writes malformed arguments) in the place of `arguments`, and `unoffered = true` (to play a model that makes
up a tool).
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_-]*)\}")
TOOL_NAME = r"^[A-Za-z0-9_.-]{1,64}$"


class ScriptError(Exception):
    """A script that cannot be played; the message names the file, the place and the reason."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Call(_Part):
    """One tool call of a turn."""

    tool: str = Field(pattern=TOOL_NAME)
    arguments: dict[str, Any] = {}
    arguments_text: str | None = None
    id: str | None = None
    unoffered: bool = False

    @property
    def wire_name(self) -> str:
        """The tool's name as a model writes it: a dot becomes `__`."""
        return self.tool.replace(".", "__")

    @property
    def wire_arguments(self) -> str:
        """The arguments as a model writes them: JSON, or whatever the script says."""
        if self.arguments_text is not None:
            return self.arguments_text
        return json.dumps(self.arguments, ensure_ascii=False)


class Turn(_Part):
    """One answer of the model. `delay` is in seconds."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    delay: float = Field(default=0.0, ge=0)
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"] | None = None
    refusal: str | None = None
    expect: str | None = None

    @property
    def end(self) -> str:
        """The finish reason: the script's, else what the turn holds."""
        return self.finish_reason or ("tool_calls" if self.calls else "stop")


class Script(_Part):
    """A model's answers, in order."""

    description: str = ""
    when: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    turn: tuple[Turn, ...] = Field(min_length=1)


def load_scripts(folder: Path, variables: Mapping[str, str]) -> dict[str, Script]:
    """Every `*.toml` of `folder`, by name, with `${name}` replaced.

    Raises ScriptError for a folder without scripts, a file that is not a script, or a variable that nobody gave.
    """
    scripts = {path.stem: load_script(path, variables) for path in sorted(folder.glob("*.toml"))}
    if not scripts:
        raise ScriptError(f"{folder}: no script here; a script is a file NAME.toml with [[turn]] tables")
    return scripts


def load_script(path: Path, variables: Mapping[str, str]) -> Script:
    """One script file; raises ScriptError."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ScriptError(f"{path}: not readable as TOML: {error}") from error
    own = data.get("variables", {})
    known = dict(variables)
    if isinstance(own, dict):
        known |= {name: _fill(value, variables, str(path)) for name, value in own.items()}
    try:
        script = Script.model_validate(_fill({**data, "variables": {}}, known, str(path)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ScriptError(f"{path}: {place}: {first['msg']}") from error
    _check(script, path)
    return script


def _fill(value: Any, variables: Mapping[str, str], place: str) -> Any:
    """`value` with the variables of every string in it replaced."""
    if isinstance(value, dict):
        return {key: _fill(item, variables, f"{place}: {key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, variables, f"{place}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def known(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in variables:
            names = ", ".join(sorted(variables)) or "none"
            raise ScriptError(
                f"{place}: unknown variable ${{{name}}} (given: {names}); give it with --var {name}=VALUE"
            )
        return variables[name]

    return VARIABLE.sub(known, value)


def _check(script: Script, path: Path) -> None:
    """What the types cannot say: one form of arguments per call, and JSON-able ones."""
    for number, turn in enumerate(script.turn):
        for index, call in enumerate(turn.calls):
            place = f"{path}: turn[{number}].calls[{index}]"
            if call.arguments and call.arguments_text is not None:
                raise ScriptError(f"{place}: has arguments and arguments_text; keep one")
            try:
                json.dumps(call.arguments, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise ScriptError(f"{place}: arguments are not JSON: {error}; write dates as strings") from error
