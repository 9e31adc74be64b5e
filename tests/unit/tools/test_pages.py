"""Pages as a model reads them."""

from __future__ import annotations

import time

import pytest

from activities.tools.pages import readable


def test_pages_read_as_a_reader_sees_them() -> None:
    html = (
        "<title>Acme &amp; Co</title><style>p{}</style><script>if (a < b) '<p>'</script><!-- <p>no</p> -->"
        "<h1>Prices</h1><p>See <a class=b href='/p?a=1&amp;b=2'>the\n <b>list</b></a>, 3 < 4.</p>"
        "<ul><li>one<li>two</ul><noscript>no</noscript><a href='#top'>top</a> <img alt='A chart'>"
    )
    assert readable(html.encode(), "text/html", None, "http://acme.example/") == (
        "Acme & Co\n\n# Prices\n\nSee the list (http://acme.example/p?a=1&b=2), 3 < 4.\n\n"
        "- one\n- two\ntop [image: A chart]"
    )


@pytest.mark.parametrize(
    ("data", "kind", "charset", "text"),
    [
        ("grün".encode("latin-1"), "text/plain", "latin-1", "grün"),
        ("<meta charset='latin-1'>grün".encode("latin-1"), "text/html", None, "grün"),
        ("grün".encode(), "text/plain", "no-such-charset", "grün"),
        (b'{"a":1}', "application/problem+json", None, '{"a":1}'),
        (b"%PDF", "application/pdf", None, "[not text: application/pdf, 4 bytes]"),
        (b"a\0", "", None, "[not text: unknown type, 2 bytes]"),
    ],
)
def test_bodies_by_type_and_charset(data: bytes, kind: str, charset: str | None, text: str) -> None:
    assert readable(data, kind, charset, "http://x/") == text


@pytest.mark.parametrize(
    "piece", ["<a ", "<!--", "<script>", '<a href="', "<svg>", "<object></svg>", "<![", "&#", "< "]
)
def test_hostile_pages_take_linear_time(piece: str) -> None:
    start = time.monotonic()
    readable((piece * 100_000).encode(), "text/html", None, "http://x/")
    assert time.monotonic() - start < 5
