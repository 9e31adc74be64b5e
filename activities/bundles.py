"""Bundles: a folder becomes an immutable manifest, kept in the store by its digest.

A run is pinned to the digest: editing or deleting the folder later changes nothing for it.
"""

import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

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


class VersionClaim(BaseModel):
    """The content of a version at its first use: the digest of its folder, and its files by name."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    folder_digest: str
    files: dict[str, str] = Field(default_factory=dict)


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
                if any(part.startswith(".") for part in path.parts[-3:-1]):
                    continue  # one that somebody is about to make
                found.setdefault(path.parent.parent.name, {})[path.parent.name] = path.parent
        return found

    async def pin(self, wanted: str, specs: Specs) -> tuple[BundleRef, Manifest]:
        """Resolves `name` or `name@version` to a manifest in the store.

        Raises as `look` does.
        """
        folder = self._folder(wanted)
        ref, manifest = await self._look(folder, specs)
        claim = VersionClaim(folder_digest=manifest.folder_digest, files=files_of(folder))
        if not await self._store.put_new(claim_key(ref.name, ref.version), claim.model_dump_json().encode()):
            await self._check_claim(manifest, folder)  # somebody else may have been first
        await self._store.put_new(f"bundles/{ref.digest}.json", canonical(manifest.model_dump(mode="json")))
        self._manifests[ref.digest] = manifest
        return ref, manifest

    async def look(self, wanted: str, specs: Specs) -> tuple[BundleRef, Manifest]:
        """What a start with `name` or `name@version` would take; nothing is stored and no version is claimed.

        Raises UnknownBundle, BundleConflict when the version was used before with other content, InvalidInput for a
        bundle file that does not load, and BundleUnavailable when the record of its first use is damaged.
        """
        return await self._look(self._folder(wanted), specs)

    async def _look(self, folder: Path, specs: Specs) -> tuple[BundleRef, Manifest]:
        manifest = build(folder.parent.name, folder.name, folder, specs)
        await self._check_claim(manifest, folder)
        found = sha256(canonical(manifest.model_dump(mode="json")))
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

    async def _check_claim(self, manifest: Manifest, folder: Path) -> None:
        claim = await claim_of(self._store, manifest.name, manifest.version)
        if claim is not None and claim.folder_digest != manifest.folder_digest:
            said = difference(claim.files, files_of(folder), ("used", "now")) if claim.files else ""
            raise BundleConflict(
                f"bundle {manifest.name}@{manifest.version} was used before with other content "
                f"({claim.folder_digest[:12]}, now {manifest.folder_digest[:12]}): give the changed bundle a new "
                "version folder" + (f"\n{cut(said, DIFF_BYTES)}" if said else "")
            )


def claim_key(name: str, version: str) -> str:
    """Where the content of a version is claimed at its first use."""
    return f"bundles/names/{name}/{version}.json"


async def claim_of(store: Store, name: str, version: str) -> VersionClaim | None:
    """The claim of a version; None where it was never used. Raises BundleUnavailable when it is damaged."""
    key = claim_key(name, version)
    data = await store.get(key)
    try:
        return None if data is None else VersionClaim.model_validate_json(data)
    except ValidationError:
        raise BundleUnavailable(
            f"the record of the first use of bundle {name}@{version} is damaged: restore {key}, or delete it, and the "
            "next start takes the folder as it is"
        ) from None


def _read(data: bytes, wanted: str) -> Manifest:
    """A stored manifest. What a newer release added is ignored here; in a bundle file it would be refused."""
    try:
        return Manifest.model_validate_json(data, extra="ignore")
    except ValidationError as error:
        raise IncompatiblePayload(f"manifest {wanted} does not fit this release: {explain(error)}") from None


def version_order(version: str) -> tuple[tuple[int, int | str], ...]:
    """Dotted numbers compare as numbers (10 after 2); a version with a word in it (`2.bak`) comes before all of
    them."""
    parts = [(1, int(part)) if part.isascii() and part.isdigit() else (0, part) for part in version.split(".")]
    return (int(all(kind for kind, _ in parts)), ""), *parts


def build(name: str, version: str, folder: Path, specs: Specs) -> Manifest:
    """Reads a bundle folder. Raises InvalidInput that names the file and the field."""
    where = f"bundle {name}@{version}"
    try:
        text = (folder / "bundle.toml").read_bytes()
        prompt = (folder / "prompt.md").read_text("utf-8")
        if not prompt.strip():
            raise ValueError("prompt.md is empty")
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
    return Manifest(
        name=name,
        version=version,
        folder_digest=_contents(text, prompt),
        prompt=prompt,
        file=file,
        tools=tools,
        digests=digests,
    )


def contents_of(folder: Path) -> str | None:
    """The digest of what makes a bundle folder's content; None where that cannot be read."""
    try:
        return _contents((folder / "bundle.toml").read_bytes(), (folder / "prompt.md").read_text("utf-8"))
    except (OSError, ValueError):
        return None


def _contents(text: bytes, prompt: str) -> str:
    return sha256(text + b"\0" + prompt.encode())


def _with_options(tables: dict[str, Any]) -> dict[str, Any]:
    """A table that is not one of the bundle's own is taken for the options of the tool of that name."""
    own = {key: value for key, value in tables.items() if key in BundleFile.model_fields and key != "options"}
    options = {key: value for key, value in tables.items() if key not in own}
    return {**own, "options": options}
