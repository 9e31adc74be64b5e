"""A tool of the corpus."""

from activities.tools import tool


@tool(effect="once", timeout=2)
async def vanish(where: str) -> str:
    """Acts, perhaps."""
    raise ConnectionError("the other side did not answer")
