"""The wiring: settings, the client with its converter, and the worker processes."""
