"""Credentials are masked by name in what is written, and nothing else is touched."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.exchange import Request
from mockllm.core.matching import pairs_of, reasons
from mockllm.core.redact import (
    KNOWN,
    MASK,
    SECRET_HEADERS,
    SECRET_JSON,
    SECRET_QUERY,
    redact_headers,
    redact_pairs,
    redact_target,
    redact_url,
    secret_pairs,
)

CANARY = b"sk-CANARY-0123456789"
M = MASK.encode()


@pytest.mark.parametrize("name", sorted(SECRET_HEADERS))
@pytest.mark.parametrize("spell", [bytes.lower, bytes.upper, bytes.title])
def test_t9_credential_headers_are_masked_whole_and_keep_their_name(name, spell):
    assert redact_headers(((spell(name), b"Bearer " + CANARY),)) == ((spell(name), M),)


def test_t9_the_named_headers_are_among_them():
    assert {b"authorization", b"proxy-authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"cookie"} <= (
        SECRET_HEADERS
    )


def test_t12_other_headers_stay_and_so_do_order_and_duplicates():
    headers = (
        (b"Host", b"x"),
        (b"COOKIE", b"a=1"),
        (b"X-Tokens", b"123456789012345678"),
        (b"cookie", b"b=2"),
        (b"x-api-key-id", b"sk-1"),
        (b"Host", b""),
    )
    assert redact_headers(headers) == (headers[0], (b"COOKIE", M), headers[2], (b"cookie", M), *headers[4:])


@pytest.mark.parametrize(
    ("target", "written"),
    [
        (b"/v1/models", b"/v1/models"),
        (b"*", b"*"),
        (b"", b""),
        (b"/v1?key=abc", b"/v1?key=" + M),
        (b"/v1?alt=sse&key=abc", b"/v1?alt=sse&key=" + M),
        (b"/v1?key=abc&alt=sse", b"/v1?key=" + M + b"&alt=sse"),
        (b"/v1?key=a&x&&y=&key=b&", b"/v1?key=" + M + b"&x&&y=&key=" + M + b"&"),
        (b"/v1?KEY=abc&Api_Key=d", b"/v1?KEY=" + M + b"&Api_Key=" + M),
        (b"/v1?api-key=a&apikey=b&access_token=c", b"/v1?api-key=" + M + b"&apikey=" + M + b"&access_token=" + M),
        (b"/v1?k%65y=abc", b"/v1?k%65y=" + M),
        (b"/v1?key=a=b/c?d;e#f", b"/v1?key=" + M),
        (b"/v1?key", b"/v1?key"),
        (b"/v1?key=", b"/v1?key="),
        (b"/v1?key=&a=1", b"/v1?key=&a=1"),
        (b"/v1?", b"/v1?"),
        (b"/v1?=abc", b"/v1?=abc"),
        (b"/v1?a=1;key=abc;b", b"/v1?a=1;key=" + M),
        (b"/v1?a=1?key=abc", b"/v1?a=1?key=" + M),
        (b"/v1?a?key=abc", b"/v1?a?key=" + M),
        (b"/v1?keys=1&max_tokens=99&monkey=2&token=3", b"/v1?keys=1&max_tokens=99&monkey=2&token=3"),
        (b"/key=abc", b"/key=abc"),
        (b"/%zz?a=%&b=\xff+", b"/%zz?a=%&b=\xff+"),
        (b"http://user:pass@host:80/v1?key=abc", b"http://host:80/v1?key=" + M),
        (b"HTTPS://u@v@host", b"HTTPS://host"),
        (b"http://host/a@b", b"http://host/a@b"),
        (b"http://host?x=a@b", b"http://host?x=a@b"),
        (b"/http://u:p@host/", b"/http://u:p@host/"),
    ],
)
def test_targets(target, written):
    assert redact_target(target) == written
    assert redact_target(written) == written


SECRET_NAMES = st.sampled_from(sorted(SECRET_QUERY)).flatmap(
    lambda name: st.sampled_from([name, name.upper(), b"".join(b"%%%02x" % byte for byte in name)])
)
VALUES = st.binary(max_size=5).map(lambda tail: CANARY + tail.replace(b"&", b""))
HARMLESS = st.text("xyz%_-", max_size=4).map(str.encode)
PIECES = st.tuples(SECRET_NAMES, VALUES) | st.tuples(HARMLESS, st.sampled_from([b"", b"1", b"%26", b"a=b"]))


@given(st.lists(PIECES))
def test_no_secret_is_left_and_every_other_byte_is(pieces):
    target = b"/v1?" + b"&".join(name + b"=" + value for name, value in pieces)
    written = redact_target(target)
    assert CANARY not in written
    kept = (name + b"=" + (M if value.startswith(CANARY) else value) for name, value in pieces)
    assert written == b"/v1?" + b"&".join(kept)


BYTES = st.lists(
    st.sampled_from(
        [b"http://", b"/", b"?", b"&", b";", b"=", b"@", b":", b"key", b"%6bey", b"x", b"%26", b"+", b"\xff"]
    )
).map(b"".join)


@given(BYTES | st.binary())
def test_t9_a_redacted_target_still_matches_and_redacting_twice_changes_nothing(target):
    written = redact_target(target)
    assert redact_target(written) == written
    assert pairs_of(written) == pairs_of(target)
    assert reasons(Request("POST", target), Request("POST", written)) == ()


@given(st.text(min_size=1), st.text(min_size=1))
def test_t9_replay_matches_with_another_key(one, other):
    asked = Request("POST", b"/v1?alt=sse&key=" + quote(one, safe="").encode(), ((b"Authorization", b"Bearer a"),))
    recorded = Request("POST", b"/v1?alt=sse&key=" + quote(other, safe="").encode(), ((b"Authorization", M),))
    assert reasons(asked, recorded) == ()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (b"session=abc", b"session=[redacted]"),
        (b"session=abc; Path=/; HttpOnly", b"session=[redacted]; Path=/; HttpOnly"),
        (
            b'a="x,y=z" ;expires=Wed, 21 Oct 2026 07:28 GMT; Max-Age=0;SECURE; SameSite=None; Domain=.x; Partitioned',
            b"a=[redacted];expires=Wed, 21 Oct 2026 07:28 GMT; Max-Age=0;SECURE; SameSite=None; Domain=.x; Partitioned",
        ),
        (b"a=b=c; expires=0;", b"a=[redacted]; expires=0;"),
        (b"gone=; Max-Age=0", b"gone=; Max-Age=0"),
        (b"gone=", b"gone="),
        (b"", b""),
        (b"bare", M),
        (b"a=b; Path=/, c=d; Path=/", M),
        (b"a=b; Path=/; secret=s", M),
        (b"a=b; HttpOnly=s", M),
        (b"a=b; expires=Wed, 21 Oct, c=d", M),
        (b"a=b; \xff", M),
    ],
)
def test_t9_of_a_cookie_that_is_set_only_the_value_is_masked(value, written):
    for name in (b"Set-Cookie", b"set-cookie2"):
        assert redact_headers(((name, value),)) == ((name, written),)
        assert redact_headers(((name, written),)) == ((name, written),)


@pytest.mark.parametrize(
    ("url", "written"),
    [
        (b"https://me:pw@host/x?key=1&a=2#b", b"https://host/x?key=[redacted]&a=2#b"),
        (b"//me@host/x#access_token=1&state=2", b"//host/x#access_token=[redacted]&state=2"),
        (b"/x#a?key=1", b"/x#a?key=[redacted]"),
        (b"x?a=me@host", b"x?a=me@host"),
        (b"", b""),
    ],
)
def test_urls_in_headers(url, written):
    assert redact_url(url) == written
    assert redact_url(written) == written
    for name in (b"Referer", b"Location", b"content-location"):
        assert redact_headers(((name, url), (b"X", url))) == ((name, written), (b"X", url))


def test_more_names():
    names = KNOWN.and_also(["X-Tenant", "Seed"])
    assert redact_headers(((b"X-TENANT", b"1"), (b"seed", b"2"), (b"Cookie", b"a")), names) == (
        (b"X-TENANT", M),
        (b"seed", M),
        (b"Cookie", M),
    )
    assert redact_target(b"/?seed=1&key=2&a=3", names) == b"/?seed=[redacted]&key=[redacted]&a=3"
    assert {"x-tenant", "seed"} | SECRET_JSON == names.fields
    assert KNOWN.and_also([]) == KNOWN


def test_what_is_masked_of_pairs():
    assert secret_pairs(b"a=1&KEY=2&&key=&x;key=3&api%5Fkey=4", SECRET_QUERY) == [
        (b"key", b"2"),
        (b"key", b"3"),
        (b"api_key", b"4"),
    ]
    assert redact_pairs(b"a=1&KEY=2&&key=&x;key=3", SECRET_QUERY) == b"a=1&KEY=[redacted]&&key=&x;key=[redacted]"


def test_t12_no_name_of_a_field_is_a_number_of_tokens():
    assert (
        not {"max_tokens", "max_completion_tokens", "total_tokens", "prompt_tokens", "token", "tokens", "key"}
        & SECRET_JSON
    )
