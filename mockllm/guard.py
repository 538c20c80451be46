"""Who may use the control plane: this machine, or whoever has the token.

A web page that a developer has open must not steer a mock through the browser (CSRF, DNS rebinding), so Host and Origin
are looked at too. It knows no route.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Guard:
    """`host` is the address that the server listens on; `token` the secret that lets anyone in who sends it, an empty
    one nobody.
    """

    host: str = "127.0.0.1"
    token: str | None = None

    def refusal(self, headers: Mapping[str, str]) -> str | None:
        """Why a request with these headers (names in lower case, values in Latin-1) may not; None where it may."""
        if self.token:
            given = headers.get("mockllm-token", headers.get("authorization", "").removeprefix("Bearer "))
            if hmac.compare_digest(given.encode("latin-1", "replace"), self.token.encode(errors="replace")):
                return None
            if not is_loopback(self.host):
                return "send the control token as mockllm-token: TOKEN, or as Authorization: Bearer TOKEN"
        elif not is_loopback(self.host):
            return "this server listens on more than this machine: start it with --control-token, and send the token"
        if not is_loopback(_name(headers.get("host", ""))):
            return "the Host header names another machine: ask for 127.0.0.1 or localhost"
        origin = headers.get("origin")
        if origin is not None and not is_loopback(_name(origin.partition("://")[2])):
            return "a page of another machine may not use this"
        return None


def is_loopback(host: str) -> bool:
    """Does a host name or address mean this machine only?"""
    if host.lower().rstrip(".") == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _name(authority: str) -> str:
    """The host of a Host header, without its port."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""
