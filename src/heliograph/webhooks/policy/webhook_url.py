"""Strict parser of webhook URLs; domain/network/ssrf.py decides which addresses are allowed.

All other parsers interpret an accepted URL in the same way: it has no userinfo (a webhook's login is stored
separately), no fragment and no escapes in the host. IP addresses are in canonical form, unlike 2130706433, 0177.1 or
0x7f.1.
"""

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import unquote

import msgspec

from heliograph.domain.mail.address import normalize_domain
from heliograph.domain.text import CONTROL_CHARACTER, quoted

URL_MAX = 2048  # characters
PORTS = {"http": 80, "https": 443}

_URL = re.compile(r"(https?)://([^/?#\\]*)(/[^?#]*)?(\?[^#]*)?", re.ASCII | re.IGNORECASE)
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::(.*))?", re.DOTALL)
_PATH = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")
# some parsers read a host as an IPv4 address if its last label matches
_NUMERIC_LABEL = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
# Host name without a dot, in the operator's own network
_SINGLE_LABEL = re.compile("[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_LOGIN = re.compile(r"(https?://)([^/?#\\@]*)@(.*)", re.ASCII | re.IGNORECASE | re.DOTALL)
_USERINFO = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    scheme: str  # http | https
    host: str  # lower-case A-labels without a trailing dot, or an IP address without brackets
    port: int
    path_and_query: str
    ip: str | None  # the same as `host` if that is an IP address
    authority: str  # host and port as in a Host header

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path_and_query}"


def split_login(url: str) -> tuple[str, str | None]:
    """Split a URL into the URL without userinfo, and `user:password`.

    The login is None if the URL has no userinfo, and empty if the userinfo is empty.
    """
    match = _LOGIN.fullmatch(url) if len(url) <= URL_MAX else None
    if not match:
        return url, None
    if not _USERINFO.fullmatch(match[2]):  # the message must not contain the password
        raise ValueError(
            "in user and password, encode everything except ASCII letters, digits and -._~!$&'()*+,;= as %XX"
        )
    user, colon, password = match[2].partition(":")
    login = f"{unquote(user)}:{unquote(password)}" if user or colon else ""
    if ":" in unquote(user) or CONTROL_CHARACTER.search(login):
        raise ValueError("the user name must not contain a colon, and neither it nor the password control characters")
    return match[1] + match[3], login


@lru_cache(maxsize=4096)  # caches valid URLs only, so that long invalid ones use no memory
def parse_target(url: str) -> Target:
    """Parse a webhook URL. Raises ValueError with a message for the user who entered the URL."""
    if len(url) > URL_MAX:
        raise ValueError(f"the URL is longer than {URL_MAX} characters")
    match = _URL.fullmatch(url)
    if not match:  # the message must not contain the URL, which may contain a password
        raise ValueError(
            "the URL has a fragment (#…): leave it out" if "#" in url else "expected http:// or https:// and a host"
        )
    scheme, authority, path, query = match[1].lower(), match[2], match[3] or "/", match[4] or ""
    if not _PATH.fullmatch(path + query):
        raise ValueError(
            "path and query may contain only ASCII letters, digits and -._~!$&'()*+,;=:@/?: encode others as %XX"
        )
    if "@" in authority:
        raise ValueError("the URL has a user name or password before the host: leave it out")
    authority_match = _AUTHORITY.fullmatch(authority)
    if not authority_match:
        raise ValueError(f"the host is not valid: {quoted(authority)}")
    host, ip = parse_host(authority_match[1])
    port, url_host = _port(authority_match[2], scheme), f"[{host}]" if ":" in host else host
    return Target(
        scheme=scheme,
        host=host,
        port=port,
        path_and_query=path + query,
        ip=ip,
        authority=url_host if port == PORTS[scheme] else f"{url_host}:{port}",
    )


def _port(text: str | None, scheme: str) -> int:
    if text is None:
        return PORTS[scheme]
    if not re.fullmatch("[1-9][0-9]{0,4}", text) or int(text) > 65535:
        raise ValueError(f"the port is not a number from 1 to 65535: {quoted(text)}")
    return int(text)


def parse_host(text: str) -> tuple[str, str | None]:
    """Return the normalised host, and the same as IP address if the host is one, else None."""
    try:
        if text.startswith("["):
            ip = str(IPv6Address(text[1:-1].replace("%", "no zones")))
            return ip, ip
        name = text.removesuffix(".")
        if _NUMERIC_LABEL.fullmatch(name.rpartition(".")[2]):
            ip = str(IPv4Address(name))
            return ip, ip
    except ValueError:
        raise ValueError(f"not an IP address in its usual form (192.0.2.1 or [2001:db8::1]): {quoted(text)}") from None
    host = name.lower() if _SINGLE_LABEL.fullmatch(name) else normalize_domain(name)
    if host is None:
        raise ValueError(f"the host is not a valid name: {quoted(text)}")
    return host, None
