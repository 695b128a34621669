"""URLs in a change file: http or https, spelled so that every program reads the same one, without a password."""

from __future__ import annotations

from holdfast.intake.fields import text_of
from holdfast.intake.values import Fault, Value, quoted


def url_of(value: Value, key: str) -> str:
    from urllib.parse import urlsplit

    url = text_of(value, key)
    # A password must not reach a log by way of an error message.
    shown = quoted(url) if "@" not in url else "the URL"
    # urlsplit drops line breaks and tabs in silence, so they are refused before it looks.
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise Fault(f"{key}: {shown} contains characters that a URL has not", key, hint="Percent-encode them.")
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        raise Fault(f"{key}: {shown} is not well formed", key) from None
    if "@" in parts.netloc:
        raise Fault(f"{key}: the URL must not carry a name or password", key)
    if parts.scheme not in ("http", "https") or not host:
        raise Fault(f"{key}: {shown} must begin with http:// or https:// and name a host", key)
    return url
