"""Copies between folders of the store: by hard links in a local folder, inside the service elsewhere.

Objects are never changed in place, so two names of one content are two objects: either can be deleted.
"""

import asyncio
import os
from collections.abc import Sequence
from errno import ENOTDIR
from pathlib import Path

import obstore
from obstore.exceptions import BaseError, NotFoundError

from activities.errors import StoreUnavailable
from activities.store import LocalStore, RemoteStore, Store, sync_folder

AT_ONCE = 64

Pair = tuple[str, str]


async def copy_objects(store: Store, pairs: Sequence[Pair]) -> list[str]:
    """Copies each key to its new one unless something is there; gives the keys that do not exist.

    Raises StoreUnavailable.
    """
    if isinstance(store, LocalStore):
        try:
            return await asyncio.to_thread(_link, store.folder, pairs)
        except OSError as error:
            raise StoreUnavailable(f"the store {store!r} failed: {error.strerror}") from None
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(pair: Pair) -> str | None:
        async with gate:
            return None if await _copy(store, *pair) else pair[0]

    return [key for key in await asyncio.gather(*map(one, pairs)) if key is not None]


async def _copy(store: Store, source: str, target: str) -> bool:
    if not isinstance(store, RemoteStore):
        data = await store.get(source)
        return data is not None and (await store.put_new(target, data) or True)
    try:
        await obstore.copy_async(store.store, source, target)
    except (NotFoundError, FileNotFoundError):
        return False
    except (BaseError, OSError) as error:
        raise StoreUnavailable(f"the store {store!r} failed: {type(error).__name__}") from None
    return True


def _link(top: Path, pairs: Sequence[Pair]) -> list[str]:
    if not top.is_dir():
        raise NotADirectoryError(ENOTDIR, "its folder is gone, or is no folder")
    folders, missing = dict[Path, None](), list[str]()
    for source, target in pairs:
        path = top / target
        if path.parent not in folders:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folders |= dict.fromkeys([path.parent, *path.parent.relative_to(top).parents])
        try:
            os.link(top / source, path)
        except FileExistsError:
            continue
        except FileNotFoundError:
            missing.append(source)
    for each in folders:
        sync_folder(top / each)
    return missing
