"""Web pages as text for a model: what a reader would see, links kept."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urljoin

_RAW = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style", "textarea")}
_SKIPPED = frozenset({"noscript", "template", "svg", "iframe", "object", "canvas", "select"})
# fmt: off
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "fieldset", "figcaption",
    "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol",
    "p", "pre", "section", "table", "title", "tr", "ul",
})
# fmt: on
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_NAME = re.compile(r"(/?)([A-Za-z][^\s/>]*)")
_ATTRIBUTE = re.compile(r"(?<![\w-])([\w-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_\-]+)", re.IGNORECASE)
_TEXTUAL = re.compile(r"text/|application/(?:[\w.+-]*\+)?(?:json|xml|yaml|javascript|x-ndjson|toml)\b")


def readable(data: bytes, kind: str, charset: str | None, url: str) -> str:
    """The text of a body of the media type `kind`, found at `url`; a remark for what is not text."""
    if kind in ("text/html", "application/xhtml+xml"):
        found = _META_CHARSET.search(data[:4096])
        return _page(_decoded(data, charset or (found[1].decode("ascii") if found else None)), url)
    if _TEXTUAL.match(kind):
        return _decoded(data, charset)
    if not kind and b"\0" not in data:
        return _decoded(data, charset)
    return f"[not text: {kind or 'unknown type'}, {len(data)} bytes]"


def _decoded(data: bytes, charset: str | None) -> str:
    try:
        return data.decode(charset or "utf-8", "replace")
    except (LookupError, UnicodeError):  # a charset that there is not
        return data.decode("utf-8", "replace")


def _page(html: str, url: str) -> str:
    reader = _Reader(url)
    reader.read(html)
    lines = (" ".join(line.split()) for line in "".join(reader.out).splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Reader:
    """Collects text in `out`, in time linear in the page.

    Not `html.parser`: some of its releases take quadratic time over tags that never end, and raise on odd declarations.
    """

    def __init__(self, url: str) -> None:
        self.out: list[str] = []
        self._url = url
        self._skipped: tuple[str, int] = ("", 0)  # an element whose content is not shown, and how deep we are in it
        self._link: tuple[str, int] | None = None

    def read(self, html: str) -> None:
        """Goes through the page from one `<` to the next."""
        at = 0
        while (sign := html.find("<", at)) >= 0:
            self._text(html[at:sign])
            if html.startswith("<!--", sign):
                end, width = html.find("-->", sign + 4), 3
            elif html[sign + 1 : sign + 2].isalpha() or html[sign + 1 : sign + 2] in ("/", "!", "?"):
                end, width = html.find(">", sign + 1), 1
            else:
                self._text("<")
                at = sign + 1
                continue
            if end < 0:  # never closed: nothing after it is shown by a browser either
                at = len(html)
                break
            at = end + width
            if width == 1:
                at = self._tag(html, html[sign + 1 : end], at)
        self._text(html[at:])
        self._end_link()

    def _tag(self, html: str, tag: str, at: int) -> int:
        """Takes a tag, and gives where to go on."""
        match = _NAME.match(tag)
        if match is None:
            return at
        name = match[2].lower()
        if self._skipped[1]:
            self._skip(name, -1 if match[1] else 1)
        elif match[1]:
            self._end(name)
        elif name in _RAW:
            close = _RAW[name].search(html, at)
            return close.start() if close else len(html)
        elif name not in _SKIPPED:
            self._start(name, tag[:4000])
        elif not tag.endswith("/"):
            self._skipped = (name, 1)
        return at

    def _skip(self, name: str, step: int) -> None:
        skipped, depth = self._skipped
        if name == skipped:
            self._skipped = (skipped, depth + step)

    def _start(self, name: str, tag: str) -> None:
        if name in _BLOCKS:
            self.out.append(f"\n{_HEADINGS[name]} " if name in _HEADINGS else "\n- " if name == "li" else "\n")
        elif name in ("td", "th"):
            self.out.append(" | ")
        elif name == "img" and (alt := _attribute(tag, "alt")):
            self.out.append(f"[image: {alt}]")
        elif name == "base" and (href := _attribute(tag, "href")):
            self._url = self._absolute(href)
        elif name == "a":
            self._end_link()
            if href := _attribute(tag, "href"):
                self._link = (href, len(self.out))

    def _end(self, name: str) -> None:
        if name == "a":
            self._end_link()
        elif name in _BLOCKS:
            self.out.append("\n\n" if name in _HEADINGS or name in ("p", "title") else "\n")

    def _text(self, text: str) -> None:
        if text and not self._skipped[1]:
            self.out.append(re.sub(r"\s+", " ", unescape(text)))

    def _end_link(self) -> None:
        """`text (url)`; links within the page and scripts are only text."""
        if self._link is None:
            return
        (href, start), self._link = self._link, None
        text = "".join(self.out[start:]).strip()
        url = self._absolute(href)
        if text and not href.startswith("#") and url.startswith(("http://", "https://", "mailto:")):
            self.out.append(f" ({url})")

    def _absolute(self, href: str) -> str:
        try:
            return urljoin(self._url, href.strip())
        except ValueError:
            return ""


def _attribute(tag: str, name: str) -> str:
    """The value of an attribute, "" if there is none."""
    for match in _ATTRIBUTE.finditer(tag):
        if match[1].lower() == name:
            return unescape(match[2] or match[3] or match[4] or "")
    return ""
