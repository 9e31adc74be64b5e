"""How every command runs: one exit code, one line for what went wrong, and no crash on the way out."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn

from temporalio.service import RPCError, RPCStatusCode

from activities.errors import Failure, StoreUnavailable
from activities.tools import ToolSetupError
from workers.client import Unreachable
from workers.settings import SettingsError
from workers.storage import PayloadUnavailable

DONE, NO, USAGE, OUT_OF_REACH = 0, 1, 2, 3


class Refused(Exception):
    """The answer is no, or something is wrong with what was asked about."""


def run(work: Coroutine[Any, Any, int]) -> NoReturn:
    """Runs a command to its exit code: 0 done, 1 no, 2 wrong usage, 3 a service is out of reach."""
    try:
        code = asyncio.run(work)
    except (SettingsError, ToolSetupError) as error:
        code = _say(error, USAGE)
    except (Unreachable, StoreUnavailable, PayloadUnavailable) as error:
        code = _say(error, OUT_OF_REACH)
    except Refused as error:
        code = _say(error, NO)
    except Failure as error:
        code = _say(error.message, NO)
    except RPCError as error:
        away = error.status in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED)
        code = _say(error, OUT_OF_REACH if away else NO)
    except KeyboardInterrupt:
        code = 130
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the SDK's threads can crash the interpreter's own way out


def _say(error: Exception | str, code: int) -> int:
    print(f"perdure: {plain(error)}", file=sys.stderr)
    return code


def plain(text: Any) -> str:
    """A text without the control characters by which it could rule a terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in str(text))
