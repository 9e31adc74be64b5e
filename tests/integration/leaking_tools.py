"""Tools that are careless with the credential that they were given."""

import logging

from temporalio.exceptions import ApplicationError

from activities.tools import Operation, ToolError, tool


@tool(effect="once")
async def leak_result(*, op: Operation) -> dict[str, str]:
    """Answer with the credential."""
    return {"id": await op.credential("crm"), "header": f"Authorization: Bearer {await op.credential('crm')}"}


@tool(effect="idempotent")
async def leak_bytes(*, op: Operation) -> bytes:
    """Answer with the credential among binary data."""
    return b"\x00\xff" + (await op.credential("crm")).encode() + b"\xfe"


@tool(effect="once")
async def leak_refusal(*, op: Operation) -> str:
    """Quote the credential in a refusal."""
    raise ToolError(f"401 for Authorization: Bearer {await op.credential('crm')}")


@tool(effect="read")
async def leak_error(*, op: Operation) -> str:
    """Break with the credential in the message."""
    raise RuntimeError(f"cannot log in with {await op.credential('crm')}")


@tool(effect="read")
async def leak_failure(*, op: Operation) -> str:
    """Break with a failure of Temporal's, under a name that would park a run."""
    raise ApplicationError(f"no {await op.credential('crm')}", await op.credential("crm"), type="StoreUnavailable")


@tool(effect="idempotent")
async def leak_log(*, op: Operation) -> str:
    """Write the credential to the log, with a traceback that holds it too."""
    try:
        raise RuntimeError(await op.credential("crm"))
    except RuntimeError:
        logging.getLogger(__name__).exception("using %s", await op.credential("crm"))
    return "logged"
