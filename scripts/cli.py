"""The command `perdure`."""

import typer

from scripts.commands.checkpoints import checkpoints
from scripts.commands.decide import answer, approve, deny, resolve
from scripts.commands.doctor import doctor
from scripts.commands.effects import effects
from scripts.commands.estimate import estimate
from scripts.commands.files import files
from scripts.commands.pending import pending
from scripts.commands.runs import runs
from scripts.commands.setup import setup
from scripts.commands.verify import verify
from scripts.commands.worker import worker

app = typer.Typer(
    name="perdure",
    help="Run agents that survive anything. Runs are started with the plain `temporal` CLI.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    *(worker, setup, runs, pending, approve, deny, answer, resolve),
    *(checkpoints, verify, files, doctor, estimate, effects),
):
    app.command()(command)


@app.callback()
def _root() -> None:
    """Run agents that survive anything. Runs are started with the plain `temporal` CLI."""


def main() -> None:
    """The entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
