"""What a person runs: the `perdure` command, the embedded server, the scripted model and the demo."""
