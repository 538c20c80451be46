"""What a recorder asks the real server: routes, targets and heads, as pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.exchange import Headers
from mockllm.core.forward import Mount, is_chunked, origin_form, request_head, route, wants_websocket

TARGETS = st.text(st.sampled_from("/a?:.=&%20@#[]*"), min_size=0, max_size=20).map(lambda text: ("/" + text).encode())
PREFIXES = st.text(st.sampled_from("/ab"), min_size=1, max_size=4).map(lambda text: ("/" + text.strip("/")).encode())
NAMES = st.sampled_from([b"A", b"a", b"X-Y", b"Content-Length", b"Connection", b"TE", b"Hosts", b"Mock", b"Proxying"])
DROPPED = st.sampled_from([b"Expect", b"upgrade", b"HTTP2-Settings", b"Proxy-X", b"proxy-authorization", b"mockllm-x"])
VALUES = st.binary(max_size=8).filter(lambda value: b"\r" not in value and b"\n" not in value)


@given(TARGETS)
def test_a_path_is_its_own_origin_form(target: bytes) -> None:
    assert origin_form(target) == target


@given(TARGETS, st.sampled_from([b"http", b"https", b"HTTP"]), st.sampled_from([b"h", b"h:1", b"u@h", b"[::1]:2"]))
def test_scheme_and_host_are_taken_off(target: bytes, scheme: bytes, host: bytes) -> None:
    assert origin_form(b"%s://%s%s" % (scheme, host, target)) == target


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"*", b"*"),
        (b"http://h", b"/"),
        (b"http://h?a=b", b"/?a=b"),
        (b"http://h?a=/b", b"/?a=/b"),
        (b"http://h?a=http://x/y", b"/?a=http://x/y"),
        (b"/x?url=http://h/y", b"/x?url=http://h/y"),
        (b"//h/x", b"//h/x"),
        (b"", b""),
        (b"://x", b"://x"),
    ],
)
def test_forms_of_a_target(target: bytes, expected: bytes) -> None:
    assert origin_form(target) == expected


@given(TARGETS)
def test_the_empty_mount_takes_everything_as_it_is(target: bytes) -> None:
    mount = Mount(b"", 0)
    assert route(target, [mount]) == (mount, target)


@given(PREFIXES, st.one_of(st.just(b""), TARGETS, TARGETS.map(lambda target: b"?" + target)))
def test_a_mount_takes_off_its_prefix(prefix: bytes, rest: bytes) -> None:
    mount = Mount(prefix, 3)
    assert route(prefix + rest, [mount]) == (mount, rest if rest.startswith(b"/") else b"/" + rest)


@given(st.lists(PREFIXES, max_size=5, unique=True), TARGETS)
def test_the_longest_prefix_that_ends_at_a_border_wins(prefixes: list[bytes], target: bytes) -> None:
    mounts = [Mount(prefix, index) for index, prefix in enumerate(prefixes)]
    found = route(target, mounts)
    path = target.partition(b"?")[0]
    candidates = [prefix for prefix in prefixes if path == prefix or path.startswith(prefix + b"/")]
    assert (found[0].prefix if found else None) == max(candidates, key=len, default=None)


@given(st.lists(st.one_of(st.tuples(NAMES, VALUES), st.tuples(DROPPED, VALUES)), max_size=8))
def test_every_other_header_stays_as_it_came(headers: Headers) -> None:
    dropped = ("expect", "upgrade", "http2-settings", "proxy-", "mockllm-")
    kept = [(name, value) for name, value in headers if not name.decode().lower().startswith(dropped)]
    lines = b"".join(b"%s: %s\r\n" % pair for pair in kept)
    assert request_head("GET", b"/x", "1.1", tuple(headers), host=b"h") == b"GET /x HTTP/1.1\r\n" + lines + b"\r\n"


def test_host_is_replaced_where_it_stood() -> None:
    headers = ((b"A", b"1"), (b"hOsT", b"mock"), (b"B", b"2"))
    head = request_head("PUT", b"/x", "1.0", headers, host=b"real:1", proxy_headers=b"Proxy-Authorization: x\r\n")
    assert head == b"PUT /x HTTP/1.0\r\nA: 1\r\nhOsT: real:1\r\nB: 2\r\nProxy-Authorization: x\r\n\r\n"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (
            ((b"ACCEPT-Encoding", b"gzip"), (b"B", b"1"), (b"accept-encoding", b"br")),
            b"ACCEPT-Encoding: id\r\nB: 1\r\n",
        ),
        (((b"B", b"1"),), b"B: 1\r\nAccept-Encoding: id\r\n"),
        ((), b"Accept-Encoding: id\r\n"),
    ],
)
def test_accept_encoding_is_replaced_on_demand(headers: Headers, expected: bytes) -> None:
    head = request_head("GET", b"/", "1.1", headers, host=b"h", accept_encoding=b"id")
    assert head == b"GET / HTTP/1.1\r\n" + expected + b"\r\n"
    as_it_came = request_head("GET", b"/", "1.1", headers, host=b"h")
    assert as_it_came == b"GET / HTTP/1.1\r\n" + b"".join(b"%s: %s\r\n" % pair for pair in headers) + b"\r\n"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), False),
        (((b"Transfer-Encoding", b"chunked"),), True),
        (((b"transfer-encoding", b"gzip, Chunked "),), True),
        (((b"Transfer-Encoding", b"gzip"), (b"Transfer-Encoding", b"chunked")), True),
        (((b"Transfer-Encoding", b"identity"),), False),
        (((b"TE", b"chunked"),), False),
    ],
)
def test_a_body_in_chunks(headers: Headers, expected: bool) -> None:
    assert is_chunked(headers) is expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((), False),
        (((b"Upgrade", b" WebSocket "),), True),
        (((b"upgrade", b"h2c"),), False),
        (((b"Sec-WebSocket-Version", b"13"),), False),
    ],
)
def test_a_websocket(headers: Headers, expected: bool) -> None:
    assert wants_websocket(headers) is expected
