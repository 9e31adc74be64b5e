"""`python -m scripts.demo`, which `./scripts/run` calls: an agent run from nothing to its result."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from scripts.demo.play import DemoError, Options, play
from scripts.demo.project import play_project
from scripts.embedded import EmbeddedError


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="./scripts/run",
        description="Plays an agent run to its result. With OPENAI_API_KEY or OPENAI_BASE_URL set it uses that model;"
        " without, the scripted one, and it kills the worker twice on the way.",
    )
    parser.add_argument("--goal", metavar="TEXT", help="what the agent is to reach (default: the shipped scenario)")
    parser.add_argument("--bundle", metavar="NAME[@VERSION]", help="the agent's bundle (default: market-research)")
    parser.add_argument("--yes", action="store_true", help="approve everything it asks")
    parser.add_argument("--keep", action="store_true", help="leave the services up afterwards, until Ctrl-C")
    parser.add_argument(
        "--project",
        action="store_true",
        help="play a project of many sessions instead, while worker and server are killed five times at random",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of the random kills of --project")
    return parser.parse_args()


def playing_of(chosen: argparse.Namespace) -> Coroutine[Any, Any, int]:
    """What the command line asks for."""
    if chosen.project:
        return play_project(chosen.seed)
    return play(Options(goal=chosen.goal, bundle=chosen.bundle, yes=chosen.yes, keep=chosen.keep))


async def run(chosen: argparse.Namespace) -> int:
    """Plays; Ctrl-C, SIGTERM and a closed terminal end everything in good order."""
    playing = asyncio.ensure_future(playing_of(chosen))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, playing.cancel)
    try:
        return await playing
    except asyncio.CancelledError:
        return 130
    except (DemoError, EmbeddedError) as error:
        print(f"./scripts/run: {error}", file=sys.stderr)
        return 1


def main() -> None:
    """Ends with `os._exit`: an interpreter that shuts down with a Temporal client in it may crash on the way."""
    code = asyncio.run(run(options()))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
