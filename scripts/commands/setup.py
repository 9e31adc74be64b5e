"""`perdure setup`: makes the namespace ready."""

import json
from datetime import timedelta
from typing import Annotated

import typer
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest

from scripts.commands.running import run
from workers.attributes import SEARCH_ATTRIBUTES, missing_search_attributes
from workers.client import connect

TYPES = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
    "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
    "Datetime": IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
    "Double": IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE,
}


def setup(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Register the search attributes in the namespace; doing it again changes nothing."""
    run(_setup(as_json))


async def _setup(as_json: bool) -> int:
    client = await connect()
    missing = await missing_search_attributes(client)
    if missing:
        wanted = {name: TYPES[SEARCH_ATTRIBUTES[name]] for name in missing}
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace=client.namespace, search_attributes=wanted),
            timeout=timedelta(seconds=20),
        )
    if as_json:
        print(json.dumps({"namespace": client.namespace, "added": missing, "all": list(SEARCH_ATTRIBUTES)}))
        return 0
    print(f"namespace {client.namespace}: {', '.join(missing) or 'nothing'} added, {len(SEARCH_ATTRIBUTES)} in all")
    return 0
