"""Credentials of a request are masked by name and by value, in every kind of body, and in a whole exchange."""

import base64
import gzip
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.cassette import loads
from mockllm.core.errors import UsageError
from mockllm.core.exchange import Exchange, Note, Request
from mockllm.core.http1 import scan
from mockllm.core.matching import reasons
from mockllm.core.redact import KNOWN, MASK, SECRET_HEADERS, SECRET_JSON, SECRET_QUERY
from mockllm.core.redaction import Redaction, redaction
from mockllm.core.response import End, Response, Segment
from mockllm.core.tape import dump
from tests.core.nasties import CHUNKED, CLOSE, LAST, OK, chunk, counted

KEY = b"sk-CANARY-0123456789"
STARS = b"*" * len(KEY)
M = MASK.encode()
BEARER = ((b"Authorization", b"Bearer " + KEY),)


def post(body: bytes | None, *headers: tuple[bytes, bytes], target: bytes = b"/v1") -> Request:
    return Request("POST", target, headers, body)


def masked(body: bytes, content_type: bytes = b"application/json", **more: list[str]) -> bytes | None:
    made = redaction(more.get("names", []), more.get("pointers", []))
    return made.request(post(body, (b"Content-Type", content_type))).body


# --- bodies by name


@pytest.mark.parametrize(
    "name", ["api_key", "access_token", "API_KEY", "Authorization", "x-api-key", "client_secret", "password"]
)
def test_a_known_field_is_masked_wherever_it_stands(name):
    value = {"messages": [{"tool": {name: "short", "n": 1}}], name: ["a", "b"], "other": {"deep": [[{name: 12345}]]}}
    assert json.loads(masked(json.dumps(value).encode())) == {
        "messages": [{"tool": {name: MASK, "n": 1}}],
        name: MASK,
        "other": {"deep": [[{name: MASK}]]},
    }


@pytest.mark.parametrize(
    "body",
    [
        b'{"max_tokens":100,"total_tokens":12,"completion_tokens":3,"token":"x","tokens":[1],"key":"k","keys":["a"]}',
        b'{"phone":"+49 30 1234567890","n":1234567890123456,"authors":"me","keyboard":"qwerty"}',
        b'{"api_key":null,"password":true,"access_token":"","client_secret":[],"api_key2":"x"}',
        b'{"properties":{"password":{"type":"string"}},"required":["password"]}',
        b'{"content":"my api_key: \\"x\\", max_tokens"}',
        b'  [1, 2.50 ,"api_key"] ',
        b'"api_key"',
        b"",
    ],
)
def test_t12_everything_else_stays_byte_for_byte(body):
    assert masked(body) == body


def test_a_body_without_a_credential_is_not_spelled_anew():
    body = b'{ "b" : 1.50,\n "a":"\\u00e9" }'
    assert masked(body) == body
    assert masked(body[:-1] + b', "api_key" : "x"}') == '{"b":1.5,"a":"é","api_key":"[redacted]"}'.encode()


def test_an_unknown_body_is_left_alone():
    request = post(None, *BEARER)
    assert Redaction().request(request).body is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"api_key": "x", "api_key": "y\\"z"}', b'{"api_key": "[redacted]", "api_key": "[redacted]"}'),
        (b'{"a":1}\n{"API_KEY" :\t"x","b":"api_key"}\n', b'{"a":1}\n{"API_KEY" :\t"[redacted]","b":"api_key"}\n'),
        (b'{"model":"m","access_token":"abc', b'{"model":"m","access_token":"[redacted]'),
        (b'\xef\xbb\xbf{"api_key":"x"}', b'\xef\xbb\xbf{"api_key":"[redacted]"}'),
        (b'{"n":NaN,"max_tokens":"x","api_key":""}', b'{"n":NaN,"max_tokens":"x","api_key":""}'),
        (b'{"a":"b","api_key":"[redacted]"', b'{"a":"b","api_key":"[redacted]"'),
        (b"\xff\xfe", b"\xff\xfe"),
    ],
)
def test_what_is_no_json_is_searched_as_it_stands(body, expected):
    assert masked(body) == expected
    assert masked(expected) == expected


def test_forms():
    form = b"application/x-www-form-urlencoded; charset=utf-8"
    assert masked(b"grant=x&client_secret=s%20t&max_tokens=3&password=&api%5Fkey=k", form) == (
        b"grant=x&client_secret=[redacted]&max_tokens=3&password=&api%5Fkey=[redacted]"
    )


MULTIPART = (
    b"preamble\r\n\r\nx\r\n--B\r\nContent-Type: text/plain\r\n"
    b'content-disposition: form-data; name="api_key"\r\nX: y\r\n\r\n%b\r\n'
    b'--B\r\nContent-Disposition: form-data; filename="a; name=password"; name=file\r\n\r\nRIFF\r\n\r\n\x00--B\r\n'
    b"\r\n--B\r\nContent-Disposition: form-data; name=access_token; x=y\r\n\r\n%b\r\n--B--\r\n"
)  # fmt: skip


def test_multipart_parts():
    kind = b"multipart/form-data; boundary=B"
    assert masked(MULTIPART % (b"one\r\ntwo", b""), kind) == MULTIPART % (M, b"")
    assert masked(MULTIPART % (b"", b"three"), kind) == MULTIPART % (b"", M)
    assert masked(b'--B\r\nContent-Disposition: form-data; name="password"\r\n\r\ncut o', kind) == (
        b'--B\r\nContent-Disposition: form-data; name="password"\r\n\r\n[redacted]'
    )
    within = b"--B\nContent-Disposition: x; name=password\n\n%b\n--B--"
    assert masked(within % b"a\nContent-Disposition: y; name=password\n\nb", kind) == within % M


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("/messages/0/content", {"messages": [{"content": MASK}, {"content": ["b"]}], "n": 1}),
        ("/messages/*/content", {"messages": [{"content": MASK}, {"content": MASK}], "n": 1}),
        ("/messages/1/content/0", {"messages": [{"content": "a"}, {"content": [MASK]}], "n": 1}),
        ("/messages", {"messages": MASK, "n": 1}),
        ("/n", {"messages": [{"content": "a"}, {"content": ["b"]}], "n": MASK}),
        ("/*", {"messages": MASK, "n": MASK}),
        ("/x/y", {"messages": [{"content": "a"}, {"content": ["b"]}], "n": 1}),
    ],
)
def test_places_of_a_body(pointer, expected):
    body = b'{"messages":[{"content":"a"},{"content":["b"]}],"n":1}'
    assert json.loads(masked(body, pointers=[pointer])) == expected


def test_what_stands_at_a_place_is_looked_for_by_value():
    made = redaction([], ["/user"])
    request, secrets = made.split(post(b'{"user":{"name":"somebody-0123456789","n":[12345678901234567890,null]}}'))
    assert json.loads(request.body) == {"user": MASK}
    assert secrets.cover(b"<somebody-0123456789 12345678901234567890>") == b"<" + b"*" * 19 + b" " + b"1" * 20 + b">"


def test_more_names():
    made = redaction(["X-Tenant", "seed"], [])
    request = made.request(
        Request(
            "POST", b"/v1?SEED=1&x-tenant=2&a=3", ((b"x-tenant", b"t"), (b"Seed", b"s")), b'{"Seed":4,"X-TENANT":"5"}'
        )
    )
    assert request.target == b"/v1?SEED=[redacted]&x-tenant=[redacted]&a=3"
    assert request.headers == ((b"x-tenant", M), (b"Seed", M))
    assert json.loads(request.body) == {"Seed": MASK, "X-TENANT": MASK}
    response = Response((Segment(0, before=OK + b"X-TENANT: t\r\n\r\n"),), End.COMPLETE, 0)
    assert made.exchange(Exchange(request, response)).response.wire == OK + b"X-TENANT: [redacted]\r\n\r\n"
    for names in ([""], ["a", " "]):
        with pytest.raises(UsageError, match=r"--redact \" ?\" is no name: name a header"):
            redaction(names, [])
    with pytest.raises(UsageError, match='--redact "Content-Length" is needed to read the answer'):
        redaction(["x", "Content-Length"], [])
    with pytest.raises(UsageError):
        redaction([], ["messages"])


def test_a_compressed_body_with_a_credential_in_it_is_kept_decoded():
    headers = ((b"Content-Encoding", b" GZIP"), (b"Content-Type", b"application/json"), *BEARER)
    for body, kept in [
        (gzip.compress(b'{"api_key":"x"}', mtime=0), b'{"api_key":"[redacted]"}'),
        (gzip.compress(b'{"a":"' + KEY + b'"}', mtime=0)[:-4], b'{"a":"[redacted]"}'),
        (gzip.compress(b"a" + KEY + b"!", mtime=0) + b"more", b"a[redacted]!"),
    ]:
        request = Redaction().request(post(body, *headers))
        assert request.body == kept
        assert request.headers == (headers[1], (b"Authorization", M))
        assert Redaction().request(request) == request
    for body in (gzip.compress(b'{"max_tokens":1}', mtime=0), b"not gzip", b"", gzip.compress(b"{}", mtime=0) + b"x"):
        kept = Redaction().request(post(body, *headers))
        assert (kept.body, kept.headers[:2]) == (body, headers[:2])
    brotli = post(b"\x8b" + KEY, (b"Content-Encoding", b"br"), *BEARER)
    assert Redaction().request(brotli).body == b"\x8b" + M


# --- what is looked for by value


BASIC = base64.b64encode(b"someone:pass:word-0123456789")


@pytest.mark.parametrize(
    ("headers", "target", "found"),
    [
        (BEARER, b"/", [KEY]),
        (((b"AUTHORIZATION", b"bearer\t " + KEY),), b"/", [KEY]),
        (((b"Authorization", KEY),), b"/", [KEY]),
        (((b"Proxy-Authorization", b"Custom-Scheme " + KEY),), b"/", [KEY]),
        (
            ((b"Authorization", b"Basic " + BASIC),),
            b"/",
            [BASIC, b"someone:pass:word-0123456789", b"pass:word-0123456789"],
        ),
        (((b"Authorization", b"Basic " + base64.b64encode(KEY + b":")),), b"/", [KEY, KEY + b":"]),
        (((b"Authorization", b"Basic not base64 at all!"),), b"/", [b"not base64 at all!"]),
        (((b"x-api-key", b" " + KEY + b" "), (b"X-Goog-Api-Key", b"Bearer " + KEY)), b"/", [KEY]),
        (((b"x-api-key", b"two words 0123456789"),), b"/", [b"two words 0123456789"]),
        (
            ((b"Cookie", b'a=1; session="cookie-0123456789"; c=x=y-0123456789abc'),),
            b"/",
            [b"cookie-0123456789", b"x=y-0123456789abc"],
        ),
        ((), b"/v1?key=" + KEY, [KEY]),
        ((), b"/v1?api_key=key%2Dwith+space%2F0123", [b"key%2Dwith+space%2F0123", b"key-with space/0123"]),
        ((), b"http://me:pass%20word-0123456789@host/", [b"me:pass word-0123456789", b"pass word-0123456789"]),
        (((b"X-Other", KEY), (b"Host", KEY)), b"/?token=" + KEY, []),
        (((b"Authorization", b"Bearer ollama"), (b"x-api-key", b"EMPTY")), b"/?key=short", []),
    ],
)
def test_t9_credentials_of_a_head(headers, target, found):
    secrets = Redaction().split(Request("POST", target, headers))[1]
    for value in found:
        assert secrets.cover(b"<" + value + b">") == b"<" + b"*" * len(value) + b">"
    assert bool(secrets) == bool(found)


def test_credentials_of_a_body():
    for content_type, body in {
        b"application/json": b'{"api_key":"%b"}',
        b"text/plain": b'no json "api_key" : "%b"',
        b"application/x-www-form-urlencoded": b"a=1&password=%b",
        b"multipart/form-data; boundary=B": b'--B\r\nContent-Disposition: form-data; name="api_key"\r\n\r\n%b\r\n--B--',
    }.items():
        asked = post(body % KEY, (b"content-type", content_type))
        request, secrets = Redaction().split(asked)
        assert request.body == body % M
        assert secrets.cover(KEY + b"!") == STARS + b"!"


def test_t9_a_credential_is_masked_elsewhere_in_the_request():
    body = b'{"prompt":"my key is %b","escaped":"\\u0073k-CANARY-0123456789"}' % KEY
    target = b"/bot" + KEY + b"/x?q=" + KEY.replace(b"-", b"%2D")
    request = Redaction().request(post(body, *BEARER, (b"X-Debug", b"<" + KEY + b">"), target=target))
    assert request.headers == ((b"Authorization", M), (b"X-Debug", b"<[redacted]>"))
    assert request.target == b"/bot[redacted]/x?q=[redacted]"
    assert request.body == b'{"prompt":"my key is [redacted]","escaped":"[redacted]"}'


def test_t9_replay_matches_with_another_key():
    def asked(key: bytes) -> Request:
        body = json.dumps({"prompt": f"my key is {key.decode()}", "api_key": key.decode()}).encode()
        return post(body, (b"Authorization", b"Bearer " + key), target=b"/v1/" + key + b"?key=" + key)

    recorded = Redaction().request(asked(KEY))
    for key in (KEY, b"another-one-of-another-length"):
        assert reasons(Redaction().request(asked(key)), recorded) == ()


NAMES = st.sampled_from(
    [*sorted(SECRET_JSON)[:6], *(name.decode() for name in sorted(SECRET_QUERY)), "n", "max_tokens", "content"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([KEY.decode(), "short", "", MASK]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from([*sorted(SECRET_HEADERS)[:5], b"X", b"Referer"]),
        st.sampled_from([KEY, b"Bearer " + KEY, b"a=b", b""]),
    )
).map(tuple)


@given(VALUES, HEADERS, st.sampled_from([b"/", b"/?key=" + KEY, b"/x?a=" + KEY, b"http://u:p@h/"]))
def test_doing_it_twice_changes_nothing_and_leaves_no_credential(value, headers, target):
    request = Request("POST", target, headers, json.dumps(value).encode())
    once, secrets = Redaction().split(request)
    assert Redaction().split(once)[0] == once
    text = dump(Exchange(once, Response((), End.CLIENT, 0)))
    assert KEY not in secrets.patterns or KEY not in text
    assert [name for name, _ in once.headers] == [name for name, _ in headers]


# --- exchanges


def exchange(*segments: Segment, end: End = End.COMPLETE, request: Request | None = None, **more: object) -> Exchange:
    last = segments[-1].at if segments else 0
    asked = request or post(b"{}", *BEARER)
    return Exchange(asked, Response(segments, end, last, method="POST", target=asked.target), **more)


def test_a_whole_exchange_without_a_credential_stays_as_it_is():
    text = (
        b"# a comment\n"
        b'{"mockllm":1,"origin":"written","request":{"method":"POST","target":"/v1"}}\n'
        b'[1,"wire","HTTP/1.1 200 OK\\r\\nContent-Le",{"odd":1}]\n[0,"wire","ngth: 4\\r\\n\\r\\n"]\n'
        b'[2,"data","ab"]\n[0,"data","cd"]\n# another\n[0,"end","complete",{"by":"me"}]\n'
    )
    [given_one] = loads(text)
    assert Redaction().exchange(given_one) == given_one
    assert dump(Redaction().exchange(given_one)) == dump(given_one)


def test_a_whole_exchange_is_masked_by_name_and_by_value():
    echo = b'{"a":"' + KEY + b'"}'
    found = Redaction().exchange(
        exchange(
            Segment(1, before=CHUNKED.replace(b"\r\n\r\n", b"\r\nSet-Cookie: s=1; Path=/\r\nX: " + KEY + b"\r\n\r\n")),
            Segment(2, echo[:9], b"9\r\n", b"\r\n"),
            Segment(3, echo[9:], b"%x\r\n" % len(echo[9:]), b"\r\n"),
            Segment(3, before=LAST),
            meta={"upstream": "http://me:pw@mac:8080/", "more": [{"key": f"<{KEY.decode()}>", "n": 1}]},
            end_meta={"by": KEY.decode()},
            extras={0: {"h2": True}, 2: {"seen": KEY.decode()}},
            notes=(Note(0, f"# {KEY.decode()} at https://u:p@h/x"), Note(4, "# end"), Note(5, "# after")),
        )
    )
    cover = echo.replace(KEY, STARS)
    assert found.request == Redaction().request(post(b"{}", *BEARER))
    assert found.response.wire == (
        CHUNKED.replace(b"\r\n\r\n", b"\r\nSet-Cookie: s=[redacted]; Path=/\r\nX: " + STARS + b"\r\n\r\n")
        + chunk(cover[:9]) + chunk(cover[9:]) + LAST
    )  # fmt: skip
    assert found.meta == {"upstream": "http://mac:8080/", "more": [{"key": "<[redacted]>", "n": 1}]}
    assert found.end_meta == {"by": MASK}
    assert found.extras == {0: {"h2": True}, 2: {"seen": MASK}}
    assert found.notes == (Note(0, "# [redacted] at https://h/x"), Note(4, "# end"), Note(5, "# after"))
    assert Redaction().exchange(found) == found
    assert loads(dump(found)) == [found]


def test_lines_that_are_cut_anew_lose_no_comment():
    found = Redaction().exchange(
        exchange(
            Segment(1, before=counted(len(KEY) + 1) + KEY[:3]),
            Segment(2, before=KEY[3:]),
            Segment(3, b"x"),
            request=replace(post(b"{}", *BEARER), early=True),
            extras={0: {"odd": 1}, -1: {"kept": 1}},
            notes=(Note(-1, "# a"), Note(1, "# b"), Note(2, "# c"), Note(3, "# d"), Note(4, "# e")),
        )
    )
    assert [segment.data for segment in found.response.segments] == [b"", b"***", b"*" * 17, b"x"]
    assert found.extras == {-1: {"kept": 1}}
    assert [(note.index, note.text) for note in found.notes] == [
        (-1, "# a"),
        (1, "# b"),
        (2, "# c"),
        (4, "# d"),
        (5, "# e"),
    ]
    assert loads(dump(found)) == [found]


def test_a_compressed_body_with_a_credential_is_decoded_and_marked():
    body = gzip.compress(b"<" + KEY + b">", mtime=0)
    head = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    found = Redaction().exchange(exchange(Segment(0, before=head), Segment(1, body), meta={"origin": "x"}))
    assert scan(found.response).body == b"<" + STARS + b">"
    assert found.meta == {"origin": "x", "decoded": True}
    assert Redaction().exchange(found) == found
    without = exchange(Segment(0, before=head), Segment(1, body), request=post(b"{}"))
    assert Redaction().exchange(without) == without


@pytest.mark.parametrize("wire", [b"", b"garbage", OK, OK + b"Content-Encoding: gzip\r\n", CLOSE])
def test_exchanges_without_a_body(wire):
    segments = [Segment(0, before=wire)] if wire else []
    assert Redaction().exchange(exchange(*segments, end=End.RST)).response.wire == wire


def test_known_names_are_the_default():
    assert Redaction() == redaction([], [])
    assert Redaction().names == KNOWN
