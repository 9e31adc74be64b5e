"""For the processes of tools: a rename to `a.txt` hangs once, with a mark, so that a test can kill what is at work."""

import os
import sys
import time

MARK, OVER = os.environ.get("SLOW_MARK", ""), os.environ.get("SLOW_OVER") == "1"
rename = os.rename


def slow(source: str, target: str, **at: int) -> None:
    over = target in os.listdir(at["dst_dir_fd"])
    if target == "a.txt" and over is OVER and not os.path.exists(MARK):
        with open(MARK, "x"):
            time.sleep(60)
    rename(source, target, **at)


if MARK and sys.argv[0].endswith("child.py"):
    os.rename = slow  # type: ignore[assignment]
