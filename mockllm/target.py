"""Where a recorder sends requests, and through which proxy: what URLs and the environment say.

It connects to nothing.
"""

import base64
import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies

from mockllm.core.errors import UsageError

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """Where a recorder sends requests. `path` is put in front of every target and ends without a slash."""

    scheme: str
    host: str
    port: int
    path: bytes = b""

    @property
    def authority(self) -> bytes:
        """The value for the Host header: the port only where it is not the scheme's own, IPv6 in brackets."""
        bare = self.port == PORTS[self.scheme]
        return (_bracketed(self.host) if bare else place(self.host, self.port)).encode("ascii")

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority.decode()}{self.path.decode()}"

    def target_of(self, path: bytes, *, absolute: bool) -> bytes:
        """What stands in the request line for a path and query; `absolute` for a plain proxy (RFC 9112 §3.2.2)."""
        server = f"{self.scheme}://".encode() + self.authority if absolute else b""
        if path == b"*":  # OPTIONS, about the server itself (RFC 9112 §3.2.4)
            return server or path
        return server + self.path + path


@dataclass(frozen=True, slots=True)
class Proxy:
    """A forward proxy. `authorization` is a whole header line with its CRLF, or empty; it is a secret."""

    scheme: str
    host: str
    port: int
    authorization: bytes = field(default=b"", repr=False)

    def __str__(self) -> str:
        return f"{self.scheme}://{place(self.host, self.port)}"


def parse_target(url: str) -> Target:
    """An upstream's URL. Raises UsageError that says what is wrong with it, without a password or query it may hold."""
    shown = re.split("[?#]", url.rpartition("@")[2])[0]

    def wrong(what: str) -> UsageError:
        example = "http://127.0.0.1:8080 or https://api.example.com/v1"
        return UsageError(f"upstream {shown!r}: {what}; give a URL such as {example}")

    scheme, colon, _ = url.partition("://")
    if not colon:
        raise wrong("it has no scheme, http:// or https://")
    if scheme.lower() not in PORTS:
        raise wrong("its scheme is neither http:// nor https://")
    if re.search("[?#]", url):
        raise wrong("a query or fragment cannot stand in front of a request's path")
    try:
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise wrong("a name and password in the URL are not passed on, let the client send Authorization")
        host, port = _host_and_port(parts)
    except ValueError as error:
        raise wrong(str(error)) from None
    path = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~").encode("ascii")
    return Target(parts.scheme, host, port or PORTS[parts.scheme], path)


def proxy_for(target: Target) -> Proxy | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY (or the system) name, chosen as httpx does.

    As there, an entry of NO_PROXY means that name and those below it; with a leading dot only those below; an address
    and `localhost` mean exactly that host, an address range its first address; a scheme's own port (80, 443) matches
    only where the entry has a scheme, and then means every port. Unlike there: an entry that keeps httpx from starting
    is read where it makes sense (`[::1]:8080`), else ignored; an entry without a host is ignored; two spellings of an
    IPv6 address are one. Raises UsageError for a proxy that cannot be used.
    """
    found = getproxies()
    key = target.scheme if found.get(target.scheme) else "all"
    url = found.get(key)
    if not url or any(_exempts(entry.strip(), target) for entry in found.get("no", "").split(",")):
        return None
    name = f"{key.upper()}_PROXY"
    mend = f"set it to something like http://proxy:3128, or add {target.host} to NO_PROXY"
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in PORTS:
            what = "a SOCKS proxy" if parts.scheme.startswith("socks") else "neither an http:// nor an https:// proxy"
            raise UsageError(f"{name} names {what}, which mockllm cannot use; {mend}")
        host, port = _host_and_port(parts)
    except ValueError as error:
        raise UsageError(f"{name} is no proxy's URL: {error}; {mend}") from None
    authorization = b""
    if parts.username or parts.password:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        authorization = b"Proxy-Authorization: Basic " + base64.b64encode(pair.encode()) + b"\r\n"
    return Proxy(parts.scheme, host, port or PORTS[parts.scheme], authorization)


def _exempts(entry: str, target: Target) -> bool:
    """Whether one entry of NO_PROXY is about this target."""
    if entry == "*":
        return True
    scheme, _, rest = entry.lower().rpartition("://")
    address = ip_of(rest.partition("/")[0])
    try:
        parts = urlsplit(f"//{_bracketed(address) if address else rest}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return False
    wanted = None if port == PORTS.get(scheme) else port
    own = None if target.port == PORTS[target.scheme] else target.port
    if not host or scheme not in ("", "all", target.scheme) or wanted not in (None, own):
        return False
    pattern = host if scheme or address or rest == "localhost" else f"*{host}"
    if pattern.startswith("*."):
        return target.host.endswith(pattern[1:])
    if pattern.startswith("*"):
        return target.host == pattern[1:] or target.host.endswith(f".{pattern[1:]}")
    return target.host == pattern


def ip_of(text: str) -> str | None:
    """An IPv4 or IPv6 address in its usual spelling, or None."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def _host_and_port(parts: SplitResult) -> tuple[str, int | None]:
    """Raises ValueError that does not repeat the text: a password may stand where host or port was expected."""
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError("its port is not a number from 1 to 65535")
    if not parts.hostname:
        raise ValueError("it has no host")
    try:
        name = parts.hostname.encode("idna").decode("ascii").lower()
    except UnicodeError:
        name = ""
    host = ip_of(name) if ":" in name else name
    if not host or not re.fullmatch("[a-z0-9._:-]+", host):
        raise ValueError("its host is not a name that can be looked up")
    return host, port


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def place(host: str, port: int) -> str:
    return f"{_bracketed(host)}:{port}"
