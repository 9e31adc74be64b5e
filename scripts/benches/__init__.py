"""The parts of the bench: see `scripts/bench.py`."""
