"""Records what the durability tests hold the code to, after a change that is meant.

    python -m tests.durable.record schemas      the schemas of the durable records

Look at the difference before committing it: what is taken out here is a promise to runs that are alive.
"""

import json
import sys

from tests.durable.schemas import DURABLE, schema_of
from tests.durable.test_schemas import FOLDER


def record_schemas() -> None:
    """Writes the schema of every durable record."""
    FOLDER.mkdir(exist_ok=True)
    for model in DURABLE:
        text = json.dumps(schema_of(model), indent=1, sort_keys=True, ensure_ascii=False)
        (FOLDER / f"{model.__name__}.json").write_text(text + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["schemas"]:
        sys.exit(__doc__)
    record_schemas()
