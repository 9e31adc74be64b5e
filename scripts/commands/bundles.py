"""`perdure bundles`: which bundles there are, what their digests are, who uses them, and what differs between two."""

import json
import sys
from collections import defaultdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from temporalio.client import Client

from activities.bundle_diff import difference, files_of, tools_of
from activities.bundles import Bundles, VersionClaim, build, claim_of, contents_of, version_order
from activities.canonical import sha256
from activities.errors import BundleUnavailable, InvalidInput
from activities.manifest import Manifest
from activities.store import Store, open_store
from activities.tools import load_tools
from activities.world import spec_of
from scripts.commands.running import DONE, NO, Refused, run
from workers.causes import Seen
from workers.client import Unreachable, connect
from workers.open_runs import listed
from workers.settings import Settings, read_settings

SHOWN_RUNS = 5


def bundles(
    name: Annotated[str | None, typer.Argument(metavar="[NAME[@VERSION]]", help="only these")] = None,
    other: Annotated[str | None, typer.Argument(metavar="[NAME@VERSION]", help="show what differs")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON")] = False,
) -> None:
    """List the bundles with their digests and the open runs that use them; with two versions, what differs.

    Exit code 1 when a folder is not what its version was when it was first used, when the record of that is damaged,
    and when two versions differ.
    """
    run(_differ(name, other, as_json) if name and other else _list(name or "", as_json))


class _Known:
    """Every version in a folder or in the store."""

    def __init__(self, settings: Settings) -> None:
        self.store: Store = open_store(settings.store)
        known = Bundles(self.store, settings.bundle_folders).known()
        self.folders = {(name, version): path for name, found in known.items() for version, path in found.items()}
        self.registry = load_tools(settings.tool_modules)
        self.stored: dict[tuple[str, str], dict[str, Manifest]] = defaultdict(dict)
        self.damaged: list[str] = []

    async def read(self) -> "_Known":
        """Reads the manifests of the store; one that does not fit this release has no part in it."""
        for key in await self.store.keys("bundles"):
            digest = key.removeprefix("bundles/").removesuffix(".json")
            if "/" in digest or (data := await self.store.get(key)) is None:
                continue
            if sha256(data) != digest:
                self.damaged.append(key)
                continue
            try:
                found = Manifest.model_validate_json(data, extra="ignore")
            except ValueError:
                continue
            self.stored[found.name, found.version][digest] = found
        return self

    def names(self) -> list[tuple[str, str]]:
        """All of them, by name and by version as a number."""
        return sorted({*self.folders, *self.stored}, key=lambda one: (one[0], version_order(one[1])))

    def built(self, one: tuple[str, str]) -> Manifest | None:
        """As the folder has it now; None where there is no folder, or one that does not load."""
        if one not in self.folders:
            return None
        try:
            return build(*one, self.folders[one], lambda globs: [spec_of(tool) for tool in self.registry.match(globs)])
        except InvalidInput:
            return None

    async def first_use(self, one: tuple[str, str]) -> dict[str, Any]:
        """Whether the version was used, whether its folder is not what it was then, so that a start would be refused
        (BundleConflict), and what is wrong with the record of that."""
        try:
            claim = await claim_of(self.store, *one)
        except BundleUnavailable as error:
            return {"used": True, "changed": False, "damaged": error.message}
        changed = claim is not None and one in self.folders and claim.folder_digest != contents_of(self.folders[one])
        return {"used": claim is not None, "changed": changed, "damaged": None}

    async def claim(self, one: tuple[str, str]) -> VersionClaim | None:
        """What the version was at its first use. Raises Refused for a record of it that is damaged."""
        try:
            return await claim_of(self.store, *one)
        except BundleUnavailable as error:
            raise Refused(error.message) from None

    async def texts(self, wanted: str) -> dict[str, str]:
        """What a version says: as it was at its first use, else as its folder has it; and its tools."""
        name, _, version = wanted.partition("@")
        one = (name, version)
        if one not in self.names():
            there = ", ".join(f"{n}@{v}" for n, v in self.names() if n == name) or ", ".join(
                sorted({n for n, _ in self.names()})
            )
            raise Refused(f"there is no bundle {wanted!r}; there are: {there}")
        claim = await self.claim(one)
        files = dict(claim.files) if claim is not None else {}
        manifest = self.built(one) or next(iter(self.stored[one].values()), None)
        if not files:
            files = (
                files_of(self.folders[one])
                if one in self.folders
                else {"prompt.md": manifest.prompt if manifest else ""}
            )
        return {**files, **(tools_of(manifest) if manifest else {})}


async def _differ(one: str, other: str, as_json: bool) -> int:
    known = await _Known(read_settings()).read()
    said = difference(await known.texts(one), await known.texts(other), (one, other))
    print(
        json.dumps({"from": one, "to": other, "diff": said}, ensure_ascii=False) if as_json else said or "no difference"
    )
    return NO if said else DONE


async def _list(wanted: str, as_json: bool) -> int:
    settings = read_settings()
    known, runs = await _Known(settings).read(), await _runs(settings)
    names = {f"{name}@{version}": (name, version) for name, version in known.names()}
    lines = [
        await _line(known, one, None if runs is None else [seen for seen in runs if seen.bundle == title])
        for title, one in {**names, **{seen.bundle: _split(seen.bundle) for seen in runs or [] if seen.bundle}}.items()
        if not wanted or wanted in (title, one[0])
    ]
    if wanted and not lines:
        raise Refused(f"there is no bundle {wanted!r}")
    if as_json:
        print(json.dumps(lines, ensure_ascii=False, indent=1))
    else:
        _show(lines, [seen for seen in runs or [] if not seen.bundle])
    for key in known.damaged:
        print(
            f"perdure: {key} in the store is damaged: the runs that are pinned to it stop; restore it", file=sys.stderr
        )
    return NO if known.damaged or any(line["changed"] or line["damaged"] for line in lines) else DONE


def _split(bundle: str) -> tuple[str, str]:
    name, _, version = bundle.partition("@")
    return name, version


async def _line(known: _Known, one: tuple[str, str], runs: list[Seen] | None) -> dict[str, Any]:
    """A version with the open runs that use it, by the digest of the manifest that each is pinned to.

    `elsewhere`: those whose manifest is not in this store: another installation's. `unsaid`: those that do not say a
    digest. `open_runs` is without the former.
    """
    digests = sorted(known.stored[one])
    by_digest: dict[str, list[str]] = defaultdict(list)
    for seen in runs or []:
        by_digest[seen.digest].append(seen.workflow_id)
    unsaid = sorted(by_digest.pop("", []))
    mine = {digest: sorted(by_digest.pop(digest)) for digest in digests if digest in by_digest}
    return {
        "bundle": "@".join(one),
        "digests": digests,
        "folder": str(known.folders[one]) if one in known.folders else None,
        **await known.first_use(one),
        "open_runs": None if runs is None else sorted([*unsaid, *(run for each in mine.values() for run in each)]),
        "by_digest": mine,
        "unsaid": unsaid,
        "elsewhere": {digest: sorted(each) for digest, each in by_digest.items()},
    }


async def _runs(settings: Settings) -> list[Seen] | None:
    """The open runs; None without Temporal."""
    try:
        client: Client = await connect(settings)
    except Unreachable:
        return None
    return [seen async for seen in listed(client)]


def _unknown(line: dict[str, Any]) -> str:
    return "used, and not in the store" if line["used"] else "not used yet"


def _show(lines: list[dict[str, Any]], unknown: list[Seen]) -> None:
    console, table = Console(emoji=False, soft_wrap=True), Table(box=None)
    for name in ("bundle", "digest", "open runs", "folder"):
        table.add_column(name, overflow="fold")
    for line in lines:
        place = line["folder"] or ("gone; the store has it" if line["digests"] else "not here")
        place = ("[red]changed since its first use[/] " if line["changed"] else "") + place
        place = "[red]the record of its first use is damaged[/] " * (line["damaged"] is not None) + place
        rows = [(digest, line["by_digest"].get(digest, []), place) for digest in line["digests"] or [""]]
        rows += [("not said", line["unsaid"], place)] if line["unsaid"] else []
        rows += [(digest, runs, "of another installation") for digest, runs in line["elsewhere"].items()]
        for number, (digest, runs, where) in enumerate(rows):
            used = "?" if line["open_runs"] is None else str(len(runs))
            used += f" ({', '.join(runs[:SHOWN_RUNS])})" if runs else ""
            table.add_row(line["bundle"] if not number else "", digest[:12] or _unknown(line), used, where)
    console.print(table)
    for line in lines:
        if line["damaged"]:
            console.print(line["damaged"], markup=False, highlight=False)
    if unknown or any(line["unsaid"] for line in lines):
        remedy = "`perdure setup` registers what is missing; then start the workers anew"
        console.print(f"some open runs do not say which they use ({remedy})")
