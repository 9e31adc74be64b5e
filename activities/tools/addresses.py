"""Which addresses a fetch may connect to.

The check is on addresses, never on names, and the connection goes to the very address that was checked: a name that
resolves to something else a moment later (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import httpx

from activities.tools.errors import ToolError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Awaitable[list[str]]]

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_PLATFORM = frozenset({ipaddress.IPv4Address("168.63.129.16")})  # Azure's host agent: a public number, a private place
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")


@dataclass(frozen=True)
class Target:
    """A URL taken apart by the one parser that also makes the request."""

    url: httpx.URL
    host: str
    port: int

    def matches(self, globs: Iterable[str]) -> bool:
        """Whether any glob names the host, or the host with its port."""
        names = (self.host, f"{self.host}:{self.port}")
        return any(fnmatchcase(name, str(glob).lower()) for glob in globs for name in names)


def target_of(url: str) -> Target:
    """Raises `ToolError` for a URL that no honest page has."""
    try:
        parsed = httpx.URL(url)
        host = parsed.raw_host.decode("ascii").lower().rstrip(".")
    except (httpx.InvalidURL, ValueError) as error:
        raise ToolError(f"the URL is not valid: {error}") from error
    problem = None
    if _UNSAFE.search(url):
        problem = "holds spaces, backslashes or control characters"
    elif parsed.scheme not in ("http", "https"):
        problem = f"has the scheme {parsed.scheme!r}; only http and https are fetched"
    elif parsed.userinfo:
        problem = "holds a user name or password; leave them out"
    elif not host:
        problem = "names no host"
    elif _odd(host):
        problem = f"has a host in an odd form ({host}); write an address as four decimal numbers"
    if problem:
        raise ToolError(f"the URL {problem}")
    return Target(parsed, host, parsed.port or (443 if parsed.scheme == "https" else 80))


async def checked_addresses(target: Target, private: Sequence[str], resolve: Resolver) -> list[str]:
    """All addresses of the target's host, each allowed. Raises `ToolError` if one is not, or there are none."""
    literal = _address(target.host)
    found = [str(literal)] if literal else await resolve(target.host, target.port)
    for text in found:
        address = _address(text)
        if address is None or not (_public(address) or _exempt(target, address, private)):
            raise ToolError(
                f"{target.host} is on a private or reserved network ({text}), where fetch does not go;"
                " the operator may allow the host in PERDURE_FETCH_PRIVATE"
            )
    if not found:
        raise ToolError(f"the host {target.host} has no address")
    return found


async def system_resolver(host: str, port: int) -> list[str]:
    """Addresses as the system knows them, best first. Raises `ToolError` for an unknown host."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"the host {host} is not known") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _public(address: Address) -> bool:
    """Whether an address, and the one that it stands for, is on the open internet."""
    inner = _inside(address)
    if inner is not None:
        return _public(inner)
    return (
        address.is_global
        and not (address.is_multicast or address.is_reserved or address.is_unspecified)
        and not getattr(address, "is_site_local", False)
        and address not in _PLATFORM
    )


def _inside(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address carries: mapped, 6to4, Teredo, NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def _exempt(target: Target, address: Address, private: Sequence[str]) -> bool:
    """Whether the operator allowed this private place, as host, host:port, address or network."""
    plain = _inside(address) or address
    names = {name for host in (target.host, str(plain), f"[{plain}]") for name in (host, f"{host}:{target.port}")}
    return any(entry.lower() in names or ("/" in entry and _within(plain, entry)) for entry in private)


def _within(address: Address, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _odd(host: str) -> bool:
    """Numbers that are no dotted quad (`2130706433`, `0x7f.1`, `127.1`), which systems read as addresses; zones."""
    address = _address(host)
    if address is None:
        return "%" in host or _NUMBER.fullmatch(host.rsplit(".", 1)[-1]) is not None
    return isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None
