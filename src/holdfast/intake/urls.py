"""URLs in a change file: http or https, spelled so that every program reads the same one, without a password."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.intake.fields import text_of
from holdfast.intake.values import Fault, Value, quoted
from holdfast.model.check import masked

if TYPE_CHECKING:
    from urllib.parse import SplitResult


def url_of(value: Value, key: str) -> str:
    url = text_of(value, key)
    parts = split_url(url, key)
    if "@" in parts.netloc:
        raise Fault(f"{key}: the URL must not carry a name or password", key)
    if masked(url) != url:
        raise Fault(
            f"{key}: the URL must not carry a token or password, not even as a parameter: a plan is kept and shown",
            key,
            hint="Use an address that needs none, or a command that reads it from a file.",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Fault(f"{key}: {shown_url(url)} must begin with http:// or https:// and name a host", key)
    return url


def split_url(url: str, key: str) -> SplitResult:
    """Its parts; its host and port can be asked for."""
    from urllib.parse import urlsplit

    # urlsplit drops line breaks and tabs in silence, so they are refused before it looks.
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise Fault(f"{key}: {shown_url(url)} contains characters that a URL has not", key, hint="Percent-encode them.")
    try:
        parts = urlsplit(url)
        _host, _port = parts.hostname, parts.port
    except ValueError:
        raise Fault(f"{key}: {shown_url(url)} is not well formed", key) from None
    return parts


def shown_url(url: str) -> str:
    """A password must not reach a log by way of an error message."""
    return quoted(url) if "@" not in url and masked(url) == url else "the URL"
