"""Which requests match, and what is said of those that do not."""

import json
from itertools import product

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mockllm.core.exchange import Request
from mockllm.core.matching import MAX_DIFFERENCES, any_target, explain, key, keys, path_of, reasons
from mockllm.core.redact import KNOWN, SECRET_HEADERS, SECRET_JSON
from mockllm.core.rules import Matcher, Rules, parse_match

CHAT = {
    "model": "m",
    "stream": True,
    "temperature": 0,
    "messages": [{"role": "system", "content": "kind"}, {"role": "user", "content": "hello"}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "adds", "parameters": {}}}],
}


def post(value, target=b"/v1/chat/completions"):
    return Request("POST", target, (), value if isinstance(value, bytes) else json.dumps(value).encode())


def changed(**fields):
    return CHAT | fields


def form(*parts, boundary=b"b", target=b"/v1/chat/completions"):
    """A form of parts, each its headers and its content."""
    pieces = (b"--" + boundary + b"\r\n" + head + b"\r\n\r\n" + content + b"\r\n" for head, content in parts)
    told = b"multipart/form-data; boundary=" + boundary
    return Request("POST", target, ((b"Content-Type", told),), b"".join(pieces) + b"--" + boundary + b"--\r\n")


MODEL = (b'Content-Disposition: form-data; name="model"', b"whisper-1")
FILE = b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav'
AUDIO = (FILE, b"RIFF\x00\xff\r\n--")


USER = {"role": "user", "content": "hello"}

# Requests of one row are equal; of two rows, different in the named field against the first row.
ROWS = [
    (
        None,
        [
            post(CHAT),
            post(json.dumps(CHAT, indent=2).encode()),
            post(dict(reversed(CHAT.items()))),
            post(changed(temperature=0.0)),
            post(CHAT, b"http://127.0.0.1:8800/v1/chat/completions"),
            post(CHAT, b"http://user:pass@mac/v1/chat/completions?"),
            post(CHAT, b"/v1/chat/completions?key=one"),
            post(CHAT, b"/v1/chat/completions?&&API_KEY=[redacted]&"),
            post(changed(api_key="sk-1")),
            post(changed(Access_Token=["[redacted]"], password=None)),
        ],
    ),
    ("method", [Request("PUT", b"/v1/chat/completions", (), json.dumps(CHAT).encode())]),
    ("method", [Request("post", b"/v1/chat/completions", (), json.dumps(CHAT).encode())]),
    ("path", [post(CHAT, b"/v1/completions")]),
    ("path", [post(CHAT, b"/v1/chat/completions/")]),
    ("path", [post(CHAT, b"/v1//chat/completions")]),
    ("path", [post(CHAT, b"/v1/chat/%63ompletions")]),
    ("path", [post(CHAT, b"/V1/chat/completions")]),
    ("path", [post(CHAT, b"/"), post(CHAT, b"http://mac"), post(CHAT, b"http://mac:80?key=x")]),
    ("path", [post(CHAT, b"//mac/v1/chat/completions")]),
    (
        "query",
        [
            post(CHAT, b"/v1/chat/completions?a=1&b=2"),
            post(CHAT, b"/v1/chat/completions?b=2&a=1"),
            post(CHAT, b"/v1/chat/completions?%61=%31&&b=2&k%65y=9"),
            post(CHAT, b"http://mac/v1/chat/completions?a=1&b=2"),
        ],
    ),
    ("query", [post(CHAT, b"/v1/chat/completions?a=1")]),
    ("query", [post(CHAT, b"/v1/chat/completions?a=2&b=2")]),
    ("query", [post(CHAT, b"/v1/chat/completions?a=1&a=2"), post(CHAT, b"/v1/chat/completions?a=1&key=&a=2")]),
    ("query", [post(CHAT, b"/v1/chat/completions?a=2&a=1")]),
    ("query", [post(CHAT, b"/v1/chat/completions?a"), post(CHAT, b"/v1/chat/completions?a=")]),
    ("query", [post(CHAT, b"/v1/chat/completions?a=+"), post(CHAT, b"/v1/chat/completions?a=%20")]),
    ("query", [post(CHAT, b"/v1/chat/completions?a=%2B"), post(CHAT, b"/v1/chat/completions?a=%2b")]),
    ("query", [post(CHAT, b"/v1/chat/completions?A=1")]),
    ("body", [post(changed(temperature=0.7))]),
    ("body", [post(changed(temperature=False))]),
    ("body", [post(changed(temperature=None))]),
    ("body", [post(changed(temperature="0"))]),
    ("body", [post(changed(stream=False))]),
    ("body", [post({name: value for name, value in CHAT.items() if name != "stream"})]),
    ("body", [post(changed(seed=2**53)), post(changed(seed=2.0**53))]),
    ("body", [post(changed(seed=2**53 + 1))]),
    ("body", [post(changed(messages=list(reversed(CHAT["messages"]))))]),
    ("body", [post(changed(messages=CHAT["messages"][1:]))]),
    ("body", [post(changed(messages=[*CHAT["messages"][:1], USER | {"content": "hello!"}]))]),
    ("body", [post(json.dumps(CHAT).replace("adds", "adds two numbers").encode())]),
    ("body", [post(json.dumps(CHAT).encode()[:-1])]),
    ("body", [post(json.dumps(CHAT).encode() + b"\xff")]),
    ("body", [post(b"")]),
    ("body", [post(b"{}"), post(b" { } ")]),
    ("body", [post(b"[]")]),
    ("body", [post(b"1"), post(b"1.0")]),
    ("body", [post(b'{"a":1,"a":1}')]),
    ("body", [post(b'{"a":1, "a":1}')]),
    ("body", [post(b"\x00\xff")]),
    ("body", [post(b"hello")]),
    ("body", [post(b"hello ")]),
    ("body", [post(changed(max_tokens=5))]),
    ("body", [post(changed(api_key={"description": "a key"}))]),
    ("body", [post(changed(api_key={"description": "another key"}))]),
    (
        "body",
        [
            form(MODEL, AUDIO),
            form(MODEL, AUDIO, boundary=b"------4f3c"),
            form(MODEL, (FILE.lower().replace(b'"file"', b"file"), AUDIO[1]), boundary=b"x"),
            form(MODEL, AUDIO, (b'Content-Disposition: form-data; name="API_KEY"', b"sk-1")),
        ],
    ),
    ("body", [form(AUDIO, MODEL)]),
    ("body", [form(MODEL)]),
    ("body", [form(MODEL, (FILE, b"RIFF\x00\xfe\r\n--"))]),
    ("body", [form(MODEL, (FILE.replace(b"a.wav", b"b.wav"), AUDIO[1]))]),
    ("body", [form(MODEL, (FILE.replace(b"audio/wav", b"audio/mpeg"), AUDIO[1]))]),
    ("body", [form(MODEL, (FILE.replace(b'"file"', b'"audio"'), AUDIO[1]))]),
    ("body", [form()]),
    ("body", [post(form(MODEL, AUDIO).body)]),
]
INDEXED = [(number, request) for number, (_, row) in enumerate(ROWS) for request in row]


def test_a_table_of_requests_that_each_differ_in_one_field_over_all_pairs():
    for (one, asked), (other, recorded) in product(INDEXED, INDEXED):
        found = reasons(asked, recorded)
        assert (found == ()) is (one == other), (asked, recorded, found)
        assert (key(asked) == key(recorded)) is (one == other), (asked, recorded)
        assert all(reason.isprintable() for reason in found)


@pytest.mark.parametrize(("field", "row"), ROWS[1:])
def test_each_row_differs_from_the_first_in_its_field_alone(field, row):
    for asked, recorded in product(row, ROWS[0][1]):
        assert [reason.partition(": ")[0] for reason in reasons(asked, recorded)] == [field]


def test_t6_order_of_keys_and_white_space_match_and_a_changed_value_does_not():
    recorded = post(CHAT)
    assert reasons(post(json.dumps(dict(reversed(CHAT.items())), indent=4).encode()), recorded) == ()
    assert reasons(post(changed(temperature=0.7)), recorded) == ("body: $.temperature is 0.7, recorded 0",)
    tool = {"type": "function", "function": {"name": "f", "description": "adds two", "parameters": {}}}
    assert reasons(post(changed(tools=[tool])), recorded) == (
        'body: $.tools[0].function.description is "adds two", recorded "adds"',
    )


def test_t7_the_reasons_name_both_values_and_no_secret():
    asked = post(changed(model="big"), b"http://u:SECRET@mac/v1/chats?key=SECRET&alt=sse")
    found = reasons(asked, Request("PUT", b"/v1/chat/completions?key=OTHER", (), post(CHAT).body))
    assert found == (
        "method: POST, recorded PUT",
        'path: "/v1/chats", recorded "/v1/chat/completions"',
        'query: "alt" is "sse", recorded absent',
        'body: $.model is "big", recorded "m"',
    )


def test_t13_another_last_user_message_is_another_request():
    other = post(changed(messages=[*CHAT["messages"][:1], USER | {"content": "bonjour"}]))
    assert key(other) != key(post(CHAT))
    assert reasons(other, post(CHAT)) == ('body: $.messages[1].content is "bonjour", recorded "hello"',)


BODY = Rules(frozenset({Matcher.BODY}))


@pytest.mark.parametrize(
    ("asked", "recorded", "why"),
    [
        (1, 2, "body: $ is 1, recorded 2"),
        (1, True, "body: $ is 1, recorded true"),
        ([1, 2], [1], "body: $[1] is 2, recorded absent"),
        ([1], [1, None], "body: $[1] is absent, recorded null"),
        ({"a": 1}, [], 'body: $ is {"a": 1}, recorded []'),
        ({"a": {}}, {"a": []}, "body: $.a is {}, recorded []"),
        ({"a": None}, {}, "body: $.a is null, recorded absent"),
        ({"b": 1, "a": 1}, {"a": 2, "b": 2}, "body: $.b is 1, recorded 2; $.a is 1, recorded 2"),
        ({"a b": 1, "\x1b": 1}, {}, 'body: $["a b"] is 1, recorded absent; $["\\u001b"] is 1, recorded absent'),
        (list("abcde"), [], "; ".join(f'$[{i}] is "{c}", recorded absent' for i, c in enumerate("abcde"))),
        (list("abcdef"), [], "; ".join(f'$[{i}] is "{c}", recorded absent' for i, c in enumerate("abcde"))),
        ({"k" * 90: 1}, {}, 'body: $["' + "k" * 60 + '…"] is 1, recorded absent'),
    ],
)
def test_what_is_said_of_json(asked, recorded, why):
    more = "; and more" if isinstance(asked, list) and len(asked) > MAX_DIFFERENCES else ""
    told = ("" if why.startswith("body") else "body: ") + why
    told = "; ".join(told.split("; ")[:MAX_DIFFERENCES]) + more
    assert reasons(post(asked), post(recorded)) == (told,)


def told(asked, recorded, rules=BODY):
    """The one reason."""
    (reason,) = reasons(asked, recorded, rules)
    return reason


def test_what_is_said_of_other_bodies():
    long = b"a" * 50
    assert told(post(long + b"\xff"), post(long)) == f'body: "…{"a" * 20}\\\\xff", recorded "…{"a" * 20}"'
    assert told(post(b""), post(b"{}")) == 'body: "", recorded "{}"'
    large = Request("POST", b"/", body=None)
    assert told(large, post(b"[1]")) == "body: too large to be compared, recorded 3 bytes"


def test_what_is_said_of_forms():
    assert told(form(MODEL, AUDIO), form(MODEL)) == 'body: part 2 is "file", recorded absent'
    assert told(form(), form((b"A: b", b""))) == 'body: part 1 is absent, recorded ""'
    other = (b'content-disposition: form-data; name="file"', b"RIFF\x00\xff")
    assert told(form(AUDIO), form(other)) == (
        'body: part 1 filename is "a.wav", recorded absent; part 1 type is "audio/wav", recorded absent;'
        ' part 1 ("file") is "RIFF\\u0000\\\\xff\\r\\n--", recorded "RIFF\\u0000\\\\xff"'
    )
    assert told(form(MODEL), form(AUDIO)).startswith('body: part 1 name is "model", recorded "file"; ')
    assert told(form(MODEL), post(b"[1]")) == 'body: a form of 1 parts, recorded "[1]"'


def test_what_is_said_of_queries():
    said = told(post(b"", b"/?b=1&b=2&a=\x1b&key=SECRET"), post(b"", b"/?b=2&c=&a=%1B"), Rules())
    assert said == 'query: "b" is "1" and "2", recorded "2"; "c" is absent, recorded ""'
    many = told(post(b"", b"/?" + b"&".join(b"%d=" % i for i in range(9))), post(b"", b"/"), Rules())
    assert many.count("absent") == MAX_DIFFERENCES
    assert many.endswith("; and more")


def test_what_is_said_of_a_path_and_a_method_prints():
    assert told(post(b"", b"/\x1b[2J"), post(b"", b"/a"), Rules()) == 'path: "/\\u001b[2J", recorded "/a"'
    assert told(Request("G\x1b", b"/"), Request("GET", b"/"), Rules()) == "method: G\\u001b, recorded GET"


def test_a_recording_of_any_body():
    recorded = Request("POST", b"/v1", body=None)
    for asked in (post(CHAT, b"/v1"), post(b"", b"/v1?key=1"), recorded):
        assert reasons(asked, recorded) == ()
        assert key(recorded) in keys(asked)
    assert [why.partition(":")[0] for why in reasons(post(CHAT, b"/v2?a=1"), recorded)] == ["path", "query"]


def test_a_recording_of_any_target():
    recorded = Request("POST", b"*", body=None)
    assert any_target(recorded)
    assert reasons(post(CHAT, b"/v1?a=1"), recorded) == ()
    assert reasons(Request("GET", b"/v1"), recorded) == ("method: GET, recorded POST",)
    options = Request("OPTIONS", b"*")
    assert not any_target(options)
    assert reasons(Request("OPTIONS", b"/"), options) == ('path: "/", recorded "*"',)


def test_paths():
    assert path_of(b"/a/b?c?d") == b"/a/b"
    assert path_of(b"HTTP+x://u:p@h:1/a//b") == b"/a//b"
    assert path_of(b"http://h") == b"/"
    assert path_of(b"*") == b"*"


@pytest.mark.parametrize("left_out", Matcher)
def test_what_is_no_matcher_never_matters(left_out):
    rules = Rules(frozenset(Matcher) - {left_out})
    asked, recorded = Request("GET", b"/a?a=1", (), b"[1]"), Request("POST", b"/b?b=1", (), b"[2]")
    assert [one.matcher for one in explain(asked, recorded, rules)] == [
        name for name in ("method", "path", "query", "query", "body") if name != left_out.value
    ]
    assert reasons(asked, recorded, Rules(frozenset())) == ()
    assert keys(asked, Rules(frozenset())) == (key(recorded, Rules(frozenset())),)


def test_without_path_and_query_a_recording_of_any_target_is_as_particular_as_any():
    rules = parse_match("method,body")
    assert key(post(b"[1]", b"*"), rules) == key(post(b"[1]", b"/a?b=1"), rules)


def headed(*values, name=b"X-Tenant"):
    return Request("GET", b"/", tuple((name, value) for value in values))


def test_headers_count_where_they_are_asked_for():
    rules = parse_match("path,header:x-tenant,header:x-other")
    assert reasons(headed(b"a"), headed(b"b")) == ()
    assert reasons(headed(b"a", name=b"x-TENANT"), headed(b"a"), rules) == ()
    assert reasons(headed(b"a", b"b"), headed(b"b"), rules) == ('headers: "x-tenant" is "a" and "b", recorded "b"',)
    assert reasons(headed(b"b", b"a"), headed(b"a", b"b"), rules) != ()
    assert reasons(headed(), headed(b""), rules) == ('headers: "x-tenant" is absent, recorded ""',)
    assert key(headed(b"a"), rules) != key(headed(b"b"), rules)


@pytest.mark.parametrize("name", sorted(SECRET_HEADERS))
def test_t9_no_credential_counts_even_where_it_is_asked_for(name):
    rules = Rules(headers=(name.upper(),))
    assert reasons(headed(b"a", name=name), headed(b"b", name=name), rules) == ()
    assert key(headed(b"a", name=name), rules) == key(headed(name=name), rules)


def test_further_names_of_credentials():
    rules = Rules(headers=(b"x-tenant",), secrets=KNOWN.and_also(["X-Tenant"]))
    for asked, recorded in [
        (headed(b"a"), headed(b"b")),
        (post(b"", b"/?X-TENANT=1&a"), post(b"", b"/?a")),
        (post(b"", b"/?a=1;x-tenant=1"), post(b"", b"/?a=1;x-tenant=2")),
        (post({"x-tenant": "1", "a": 1}), post({"X-Tenant": [2], "a": 1})),
        (form(MODEL, (b"Content-Disposition: form-data; name=x-TENANT", b"1")), form(MODEL)),
    ]:
        assert reasons(asked, recorded, rules) == ()
        assert key(asked, rules) == key(recorded, rules)
        assert asked == headed(b"a") or reasons(asked, recorded) != ()


@pytest.mark.parametrize("name", sorted(SECRET_JSON))
def test_t9_a_body_with_another_credential_matches(name):
    asked = post({"mcp": [{"headers": {name.upper(): "one"}}], "max_tokens": 1})
    for other in ({name: "two"}, {name: None}, {}):
        assert reasons(asked, post({"mcp": [{"headers": other}], "max_tokens": 1})) == ()
    assert reasons(asked, post({"mcp": [{"headers": {"x" + name: "two"}}], "max_tokens": 1})) != ()
    assert reasons(asked, post({"mcp": [{"headers": {}}], "max_tokens": 2})) != ()


def test_t9_a_url_in_a_header_counts_without_its_credentials():
    rules = parse_match("header:referer")
    asked, other = (headed(b"http://u:p@h/?key=" + value + b"&a=1", name=b"Referer") for value in (b"one", b"two"))
    recorded = headed(b"http://h/?key=[redacted]&a=1", name=b"referer")
    for one in (asked, other):
        assert reasons(one, recorded, rules) == ()
        assert key(one, rules) == key(recorded, rules)
    assert "one" not in told(asked, headed(), rules)


def test_t6_a_new_timestamp_under_an_ignored_place():
    rules = Rules(ignore=(("metadata", "time"), ("messages", "*", "id")))
    recorded = post(changed(metadata={"time": 1, "user": "u"}))
    messages = [message | {"id": str(number)} for number, message in enumerate(CHAT["messages"])]
    asked = post(changed(metadata={"time": 2, "user": "u"}, messages=messages))
    assert reasons(asked, recorded, rules) == ()
    assert key(asked, rules) == key(recorded, rules)
    assert key(post(changed(metadata={"user": "u"})), rules) == key(recorded, rules)
    other = post(changed(metadata={"time": 2, "user": "x"}, messages=[*messages, {"id": "9"}]))
    assert reasons(other, recorded, rules) == (
        'body: $.messages[2] is {}, recorded absent; $.metadata.user is "x", recorded "u"',
    )


def test_items_after_an_ignored_one_keep_their_index():
    rules = Rules(ignore=(("0",),))
    assert reasons(post([1, 2, 3]), post([9, 2, 4]), rules) == ("body: $[2] is 3, recorded 4",)
    assert reasons(post([1]), post([]), rules) == ()
    assert reasons(post([1, 2]), post([]), rules) == ("body: $[1] is 2, recorded absent",)


def test_ignored_query_parameters():
    rules = Rules(ignore_query=frozenset({b"t", b"a b"}))
    asked, recorded = post(b"", b"/?t=1&a=1&a+b&t=2"), post(b"", b"/?a=1")
    assert reasons(asked, recorded, rules) == ()
    assert key(asked, rules) == key(recorded, rules)
    assert reasons(post(b"", b"/?T=1"), recorded, rules) == (
        'query: "T" is "1", recorded absent; "a" is absent, recorded "1"',
    )


def test_t19_a_real_client_s_upload_matches_in_spite_of_its_random_boundary():
    def upload(audio):
        sent = httpx.Request(
            "POST",
            "http://h/v1/audio/transcriptions",
            data={"model": "whisper-1"},
            files={"file": ("a.wav", audio, "audio/wav")},
        )
        return Request("POST", sent.url.raw_path, tuple(sent.headers.raw), sent.read())

    one, two = upload(b"RIFF\r\n\x00\xff"), upload(b"RIFF\r\n\x00\xff")
    assert one.body != two.body
    assert reasons(one, two) == ()
    assert key(one) == key(two)
    assert told(upload(b"RIFX"), one) == 'body: part 2 ("file") is "RIFX", recorded "RIFF\\r\\n\\u0000\\\\xff"'


TARGETS = [
    b"/a",
    b"/b",
    b"http://h/a",
    b"/a?x=1&y=2",
    b"/a?y=2&x=1&key=k",
    b"/a?x=1",
    b"/?key=1;x=1",
    b"*",
    b"http://h",
]
BODIES = [
    b"",
    b"{}",
    b"[1]",
    b"[1.0]",
    b"[true]",
    b'{"a":1,"b":2}',
    b'{"b":2,"a":1}',
    b'{"a":[{"b":1},2],"api_key":"x"}',
    b'{"a":[{"b":2},2]}',
    b'{"a":1,"a":1}',
    b"\xff",
    b"[1",
    form(MODEL).body,
    form(MODEL, boundary=b"c").body,
    form(MODEL, (b"content-disposition: x; name=token", b"1")).body,
]
HEADERS = st.lists(
    st.sampled_from(
        [
            (b"Content-Type", b"multipart/form-data; boundary=b"),
            (b"Content-Type", b'Multipart/Mixed; boundary="c"'),
            (b"X-A", b"1"),
            (b"x-a", b"2"),
            (b"Cookie", b"1"),
        ]
    ),
    max_size=3,
).map(tuple)
POINTERS = st.lists(st.sampled_from(["a", "b", "0", "1", "*"]), min_size=1, max_size=3).map(tuple)
RULES = st.just(Rules()) | st.builds(
    Rules,
    st.frozensets(st.sampled_from(Matcher)),
    st.lists(st.sampled_from([b"x-a", b"X-A", b"x-b", b"cookie", b"content-type"]), max_size=2).map(tuple),
    st.lists(POINTERS, max_size=2).map(tuple),
    st.frozensets(st.sampled_from([b"x", b"y"])),
    st.frozensets(st.sampled_from(["b", "X", "TOKEN", "x-a"])).map(KNOWN.and_also),
)
METHODS = st.sampled_from(["GET", "POST", "OPTIONS"])
SOME = st.sampled_from(BODIES) | st.binary(max_size=2)
WHOLE = st.builds(Request, METHODS, st.sampled_from(TARGETS), HEADERS, SOME)
ALL = st.builds(Request, METHODS, st.sampled_from(TARGETS), HEADERS, st.none() | SOME)


@given(WHOLE, WHOLE, RULES)
def test_keys_are_equal_exactly_where_there_is_no_reason(asked, recorded, rules):
    if not any_target(asked) and not any_target(recorded):
        assert (key(asked, rules) == key(recorded, rules)) is (reasons(asked, recorded, rules) == ())


@given(ALL, ALL, RULES)
@example(Request("GET", b"/a", body=None), Request("GET", b"/a", body=b""), Rules())
@example(Request("GET", b"/a", body=None), Request("GET", b"*", body=None), Rules())
@example(Request("OPTIONS", b"*"), Request("GET", b"*"), parse_match("path"))
@example(Request("GET", b"/a"), Request("OPTIONS", b"*"), parse_match("path"))
def test_a_recording_is_under_a_key_of_each_request_that_it_answers_and_of_no_other(asked, recorded, rules):
    found = reasons(asked, recorded, rules)
    assert (key(recorded, rules) in keys(asked, rules)) is (found == ())
    explained = explain(asked, recorded, rules)
    assert [reason.partition(":")[0] for reason in found] == list(dict.fromkeys(one.matcher for one in explained))
    assert all(str(one) in "\n".join(found) for one in explained)


@given(WHOLE, RULES)
def test_a_request_answers_itself(asked, rules):
    assert reasons(asked, asked, rules) == ()


JSON = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, "", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "password"]), inner, max_size=2)
    ),
    max_leaves=5,
)


@given(JSON, JSON, RULES)
def test_json_bodies_have_a_reason_exactly_where_their_keys_differ(asked, recorded, rules):
    ours, theirs = post(asked), post(recorded)
    assert (key(ours, rules) == key(theirs, rules)) is (reasons(ours, theirs, rules) == ())
