"""The command `perdure`. A command's module is imported when it is called: some of them need seconds for that."""

import importlib
import importlib.metadata
import sys
from typing import Any

import typer
from typer.core import TyperGroup

HELP = "Run agents that survive anything. Runs are started with the plain `temporal` CLI."

COMMANDS: dict[str, tuple[str, str]] = {
    "worker": ("worker", "Serve runs until SIGTERM or Ctrl+C"),
    "setup": ("setup", "Register the search attributes in the namespace"),
    "doctor": ("doctor", "Check the installation, and name what mends it"),
    "runs": ("runs", "List the open runs with what each waits for"),
    "pending": ("pending", "Show what waits for people, in all runs"),
    "approve": ("decide", "Let the agent run a call"),
    "deny": ("decide", "Do not let the agent run a call"),
    "answer": ("decide", "Answer a question of the agent"),
    "resolve": ("decide", "Say what became of a call whose outcome nobody knows"),
    "effects": ("effects", "Show the effects of a run, or all that are in doubt"),
    "show": ("show", "Show a run as a tree, or follow it"),
    "diff": ("diff", "Compare two paths from their common checkpoint on"),
    "files": ("files", "List the files of a run's workspace, or print one"),
    "checkpoints": ("checkpoints", "List a run's checkpoints"),
    "fork": ("fork", "Begin a new run from a checkpoint of another one"),
    "verify": ("verify", "Check every record of a run"),
    "replay": ("replay", "Replay runs with the code of today, calling nothing"),
    "rehearse": ("rehearse", "Hold a run's past against another bundle, offline"),
    "project": ("project", "Look at a project of many sessions, follow or fork it"),
    "bundles": ("bundles", "List bundles, their digests and runs, or the difference of two"),
    "build-id": ("builds", "Print the build id of this code"),
    "deploy": ("deploy", "Check a build against the open runs, and make it current"),
    "patches": ("builds", "List the patches, and the open runs that need each"),
    "estimate": ("estimate", "Reckon what durable execution saves"),
}
"""Name: the module below `scripts/commands/` that has a function of that name, and a line of help."""


class Commands(TyperGroup):
    """The commands by name."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Imports the command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"scripts.commands.{COMMANDS[cmd_name][0]}")
        found = getattr(module, cmd_name.replace("-", "_"))
        if isinstance(found, typer.Typer):  # with commands of its own
            return typer.main.get_command(found)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(cmd_name)(found)
        return typer.main.get_command(alone)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Help that imports nothing."""
        formatter.write_usage("perdure", "COMMAND [ARGUMENTS]…")
        formatter.write_paragraph()
        formatter.write_text(HELP)
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])
        formatter.write_paragraph()
        formatter.write_text("perdure COMMAND --help says more. perdure --version names the version.")


def main() -> None:
    """The entry point of the console script."""
    for text in sys.argv[1:]:
        if text.encode("utf-8", "replace").decode() != text:
            print(f"perdure: an argument is not UTF-8: {text!a}", file=sys.stderr)
            sys.exit(2)
    if sys.argv[1:] == ["--version"]:
        print(f"perdure {importlib.metadata.version('perdure')}")
        return
    Commands(name="perdure", help=HELP)(sys.argv[1:] or ["--help"])


if __name__ == "__main__":
    main()
