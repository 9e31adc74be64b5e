"""The subcommands of `perdure`, one module each."""
