"""`perdure worker`, with the bench's model inside: `python -m scripts.benches.worker`."""

import activities.world
from scripts.benches.model import InProcess
from scripts.cli import main

if __name__ == "__main__":
    setattr(activities.world, "Gateway", InProcess)  # noqa: B010, the world makes its gateway by this name
    main()
