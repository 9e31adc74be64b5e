"""Bundles: a folder becomes an immutable manifest, kept in the store by its digest.

A run is pinned to the digest: editing or deleting the folder later changes nothing for it.
"""

import json
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from activities.bundle_diff import difference, files_of
from activities.canonical import canonical, digest, sha256
from activities.errors import BundleConflict, BundleUnavailable, IncompatiblePayload, InvalidInput, UnknownBundle, cut
from activities.manifest import BundleFile, Manifest, ToolSpec
from activities.policy import check_rule
from activities.store import Store
from activities.tools import ToolSetupError
from workflows.messages import explain
from workflows.records import BundleRef

SHIPPED = Path(__file__).resolve().parent.parent / "workflows" / "bundles"

DIFF_BYTES = 2000
"""The most of a diff that a failure shows."""

Specs = Callable[[Sequence[str]], list[ToolSpec]]
"""Gives the tools that a bundle's globs name; raises ValueError for a name that no worker module has."""


class Bundles:
    """The bundle folders of a worker, and the manifests in the store."""

    def __init__(self, store: Store, folders: Iterable[Path]) -> None:
        self._store = store
        self._folders = [SHIPPED, *folders]
        self._manifests: dict[str, Manifest] = {}

    def known(self) -> dict[str, dict[str, Path]]:
        """Every bundle: name, version, folder. A later folder's bundle of the same name and version wins."""
        found: dict[str, dict[str, Path]] = {}
        for top in self._folders:
            for path in sorted(top.glob("*/*/bundle.toml")) if top.is_dir() else []:
                found.setdefault(path.parent.parent.name, {})[path.parent.name] = path.parent
        return found

    async def pin(self, wanted: str, specs: Specs) -> tuple[BundleRef, Manifest]:
        """Resolves `name` or `name@version` to a manifest in the store.

        Raises UnknownBundle, BundleConflict when the version was used before with other content, and InvalidInput for a
        bundle file that does not load.
        """
        folder = self._folder(wanted)
        manifest = build(folder.parent.name, folder.name, folder, specs)
        await self._claim(manifest, folder)
        data = canonical(manifest.model_dump(mode="json"))
        found = sha256(data)
        await self._store.put_new(f"bundles/{found}.json", data)
        self._manifests[found] = manifest
        return BundleRef(name=manifest.name, version=manifest.version, digest=found), manifest

    def read(self, wanted: str, specs: Specs) -> Manifest:
        """A bundle as its folder has it now; nothing is stored and no version is claimed. Raises UnknownBundle and
        InvalidInput."""
        folder = self._folder(wanted)
        return build(folder.parent.name, folder.name, folder, specs)

    async def manifest(self, wanted: str) -> Manifest:
        """The manifest of that digest. Raises BundleUnavailable when it is gone or damaged."""
        if wanted not in self._manifests:
            data = await self._store.get(f"bundles/{wanted}.json")
            if data is None:
                raise BundleUnavailable(f"manifest {wanted} is not in the store: restore bundles/{wanted}.json")
            if sha256(data) != wanted:
                raise BundleUnavailable(f"manifest {wanted} is damaged: restore bundles/{wanted}.json")
            self._manifests[wanted] = _read(data, wanted)
        return self._manifests[wanted]

    def _folder(self, wanted: str) -> Path:
        name, _, version = wanted.partition("@")
        known = self.known()
        versions = known.get(name)
        if versions is None:
            raise UnknownBundle(f"there is no bundle {name!r}; there are: {', '.join(sorted(known))}")
        if not version:
            return versions[max(versions, key=version_order)]
        if version not in versions:
            names = ", ".join(f"{name}@{v}" for v in sorted(versions, key=version_order))
            raise UnknownBundle(f"there is no bundle {wanted!r}; there are: {names}")
        return versions[version]

    async def _claim(self, manifest: Manifest, folder: Path) -> None:
        key, files = claim_key(manifest.name, manifest.version), files_of(folder)
        data = json.dumps({"folder_digest": manifest.folder_digest, "files": files}, ensure_ascii=False).encode()
        if await self._store.put_new(key, data):
            return
        claimed = json.loads(await self._store.get(key) or b"{}")
        held = claimed.get("folder_digest")
        if held != manifest.folder_digest:
            said = difference(claimed.get("files", files), files, ("used", "now"))
            raise BundleConflict(
                f"bundle {manifest.name}@{manifest.version} was used before with other content "
                f"({str(held)[:12]}, now {manifest.folder_digest[:12]}): give the changed bundle a new version folder"
                + (f"\n{cut(said, DIFF_BYTES)}" if said else "")
            )


def claim_key(name: str, version: str) -> str:
    """Where the content of a version is claimed at its first use."""
    return f"bundles/names/{name}/{version}.json"


def _read(data: bytes, wanted: str) -> Manifest:
    """A stored manifest. What a newer release added is ignored here; in a bundle file it would be refused."""
    try:
        return Manifest.model_validate_json(data, extra="ignore")
    except ValidationError as error:
        raise IncompatiblePayload(f"manifest {wanted} does not fit this release: {explain(error)}") from None


def version_order(version: str) -> tuple[tuple[int, int | str], ...]:
    """Dotted numbers compare as numbers (10 after 2); words come before numbers."""
    return tuple((1, int(part)) if part.isdigit() else (0, part) for part in version.split("."))


def build(name: str, version: str, folder: Path, specs: Specs) -> Manifest:
    """Reads a bundle folder. Raises InvalidInput that names the file and the field."""
    where = f"bundle {name}@{version}"
    try:
        text = (folder / "bundle.toml").read_bytes()
        prompt = (folder / "prompt.md").read_text("utf-8")
        file = BundleFile.model_validate(_with_options(tomllib.loads(text.decode("utf-8"))))
        for when in [rule.when for rule in file.policy] + [rule.when for rule in file.effect]:
            check_rule(when)
        tools = specs(file.tools)
    except ValidationError as error:
        raise InvalidInput(f"{where}: bundle.toml: {explain(error)}") from None
    except (OSError, ValueError, ToolSetupError) as error:
        raise InvalidInput(f"{where}: {error}") from None
    if unknown := [option for option in file.options if not any(tool.name == option for tool in tools)]:
        raise InvalidInput(f"{where}: bundle.toml: [{unknown[0]}] is neither a section nor a tool of this bundle")
    digests = {
        "prompt": digest(prompt),
        "model_config": digest([model.model_dump() for model in file.model]),
        "tool_schema": digest([tool.digest for tool in tools]),
        "policy": digest([rule.model_dump() for rule in file.policy]),
    }
    contents = sha256(text + b"\0" + prompt.encode())
    return Manifest(
        name=name, version=version, folder_digest=contents, prompt=prompt, file=file, tools=tools, digests=digests
    )


def _with_options(tables: dict[str, Any]) -> dict[str, Any]:
    """A table that is not one of the bundle's own is taken for the options of the tool of that name."""
    own = {key: value for key, value in tables.items() if key in BundleFile.model_fields and key != "options"}
    options = {key: value for key, value in tables.items() if key not in own}
    return {**own, "options": options}
