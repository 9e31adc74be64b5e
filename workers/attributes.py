"""The search attributes of a run, and whether a namespace has them."""

from datetime import timedelta

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.service import RPCError

BUNDLE_DIGEST = "PerdureBundleDigest"
"""Came later than the others: a run that was opened before its namespace had it does without."""

SEARCH_ATTRIBUTES = {
    "PerdureStatus": "Keyword",
    "PerdureWaitingOn": "KeywordList",
    "PerdureBundle": "Keyword",
    "PerdureTurn": "Int",
    "PerdureCost": "Double",
    "PerdureParent": "Keyword",
    "PerdureSince": "Datetime",
    BUNDLE_DIGEST: "Keyword",
}


async def missing_search_attributes(client: Client) -> list[str]:
    """The search attributes that the namespace lacks; all of them where it does not tell."""
    try:
        answer = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace), timeout=timedelta(seconds=5)
        )
    except RPCError:
        return list(SEARCH_ATTRIBUTES)
    return [name for name in SEARCH_ATTRIBUTES if name not in answer.custom_attributes]
