"""What is said of two requests that differ: both values, and never a credential."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.differences import NEAR, Difference
from mockllm.core.exchange import Request
from mockllm.core.matching import explain, reasons
from mockllm.core.redact import KNOWN, MASK, SECRET_JSON
from mockllm.core.rules import Rules

CANARY = "sk-CANARY-0123456789"


def post(value, *headers):
    return Request("POST", b"/", headers, value if isinstance(value, bytes) else json.dumps(value).encode())


def form(*pieces, end=b"--b--"):
    body = b"".join(b"--b\r\nContent-Disposition: form-data; " + piece + b"\r\n" for piece in pieces)
    return post(body + end, (b"content-type", b"multipart/form-data; boundary=b"))


def test_differences_say_matcher_place_and_both_values():
    asked = Request("GET", b"/a?q=1", ((b"x-a", b"1"),), b'{"a":{"b c":1},"d":1}')
    recorded = Request("POST", b"/b", (), b'{"a":{"b c":2}}')
    assert explain(asked, recorded, Rules(headers=(b"X-A",))) == (
        Difference("method", "", "GET", "POST"),
        Difference("path", "", '"/a"', '"/b"'),
        Difference("query", '"q"', '"1"', "absent"),
        Difference("headers", '"x-a"', '"1"', "absent"),
        Difference("body", '$.a["b c"]', "1", "2"),
        Difference("body", "$.d", "1", "absent"),
    )


def test_no_more_than_some_of_each_matcher():
    assert len(explain(post(list(range(9))), post([]))) == 5


ARGUMENTS = json.dumps({"api_key": CANARY, "q": 1})
OTHER = ARGUMENTS.replace(CANARY, "sk-other")


@pytest.mark.parametrize(
    ("asked", "recorded", "why"),
    [
        # Fields do not count; objects under their names do, and are not shown.
        ({"a": 1, "api_key": CANARY}, {"a": 2, "api_key": "x"}, "$.a is 1, recorded 2"),
        ({"a": {"API_KEY": CANARY, "b": 1}}, {}, '$.a is {"b": 1}, recorded absent'),
        ({}, {"a": [[{"password": [CANARY]}]]}, "$.a is absent, recorded [[{}]]"),
        ({"api_key": {"x": CANARY}}, {"api_key": {"x": 1}}, f"$.api_key.x is {MASK}, recorded {MASK}"),
        ({"api_key": {"x": CANARY}}, {}, f"$.api_key is {MASK}, recorded absent"),
        ({}, {"a": {"Api_Key": {"x": CANARY}}}, f'$.a is absent, recorded {{"Api_Key": "{MASK}"}}'),
        ({"api_key": {}}, {"api_key": {"x": [CANARY]}}, f"$.api_key.x is absent, recorded {MASK}"),
        # Texts that hold a field: JSON within a string, code, headers.
        ({"arguments": ARGUMENTS}, {"arguments": OTHER}, f"$.arguments is {MASK}, recorded {MASK}"),
        (
            {"arguments": ARGUMENTS},
            {"arguments": "{}"},
            f'$.arguments is "{{\\"api_key\\": \\"{MASK}", recorded "{{}}"',
        ),
        ({"t": f"API_KEY = '{CANARY}'"}, {"t": "a"}, f'$.t is "API_KEY = \'{MASK}", recorded "a"'),
        ({"t": f"OPENAI_API_KEY={CANARY}"}, {"t": "a"}, f'$.t is "OPENAI_API_KEY={MASK}", recorded "a"'),
        (
            {"t": f"-H 'Authorization: Bearer {CANARY}'\nhi"},
            {"t": "-H 'Authorization: x'\nho"},
            f'$.t is "-H \'Authorization: {MASK}\\nhi", recorded "-H \'Authorization: {MASK}\\nho"',
        ),
        ({"t": {"u": f"password:{CANARY}"}}, {}, f'$.t is {{"u": "password:{MASK}"}}, recorded absent'),
        ({"t": f"password:{CANARY}"}, {"t": 1}, f'$.t is "password:{MASK}", recorded 1'),
        # Texts that do not.
        ({"t": "what is an api_key?"}, {"t": "a"}, '$.t is "what is an api_key?", recorded "a"'),
        ({"t": "max_tokens: 5"}, {"t": "max_tokens: 6"}, '$.t is "max_tokens: 5", recorded "max_tokens: 6"'),
        ({"t": "mypassword: 5"}, {"t": "a"}, '$.t is "mypassword: 5", recorded "a"'),
        # Bodies without places.
        (
            b'{"api_key":"' + CANARY.encode(),
            {"a": 1},
            f'"{{\\"api_key\\":\\"{MASK}", recorded "{{\\"a\\": 1}}"',
        ),
        (
            b"grant=x&client_secret=" + CANARY.encode(),
            b"grant=y&client_secret=z",
            f'"grant=x&client_secret={MASK}", recorded "grant=y&client_secret={MASK}"',
        ),
        (b"client_secret=" + CANARY.encode(), b"client_secret=z", f"{MASK}, recorded {MASK}"),
    ],
)
def test_t7_bodies(asked, recorded, why):
    assert reasons(post(asked), post(recorded)) == (f"body: {why}",)


def test_t7_forms():
    secret = b'name="api_key"\r\n\r\n' + CANARY.encode()
    assert reasons(form(secret, b"name=a\r\n\r\n1"), form(b"name=a\r\n\r\n2")) == (
        'body: part 1 ("a") is "1", recorded "2"',
    )
    (broken,) = reasons(form(secret, end=b""), form(secret.replace(CANARY.encode(), b"x"), end=b""))
    assert broken == f"body: {MASK}, recorded {MASK}"
    (broken,) = reasons(form(secret, end=b""), form(secret))
    assert broken.startswith('body: "--b\\r\\nContent-Disposition: form-data; name=\\"api_key\\"\\r')
    assert broken.endswith('\\r\\n[reda…", recorded a form of 0 parts')


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        (b"x-tenant", b"acme", '"acme"'),
        (b"x-tenant", b"acme \x1b", '"acme \\u001b"'),
        (b"x-auth", CANARY.encode(), MASK),
        (b"X-My-Token", CANARY.encode(), MASK),
        (b"x-client-Secret-2", CANARY.encode(), MASK),
        (b"set-cookie", CANARY.encode(), MASK),
        (b"x-tenant", b"Bearer " + CANARY.encode(), MASK),
        (b"x-tenant", b"basic " + CANARY.encode(), MASK),
        (b"x-tenant", CANARY.encode(), MASK),
        (b"x-tenant", b"bearers", '"bearers"'),
    ],
)
def test_t7_header_values(name, value, shown):
    rules = Rules(headers=(name,))
    (why,) = explain(post(b"", (name, b"a"), (name, value)), post(b""), rules)
    a = MASK if shown == MASK and name.lower() != b"x-tenant" else '"a"'
    assert why == Difference("headers", f'"{name.decode().lower()}"', f"{a} and {shown}", "absent")


@pytest.mark.parametrize(
    ("pair", "shown"),
    [
        (b"x=sk-1", MASK),
        (b"page_Token=1", MASK),
        (b"hf-key=1", MASK),
        (b"max_tokens=1", '"1"'),
        (b"author=1", '"1"'),
        (b"keyword=1", '"1"'),
    ],
)
def test_query_values_that_look_like_credentials(pair, shown):
    (why,) = explain(Request("GET", b"/?" + pair), Request("GET", b"/"))
    assert why == Difference("query", f'"{pair.partition(b"=")[0].decode()}"', shown, "absent")


def test_names_given_by_hand_are_hidden_too():
    rules = Rules(secrets=KNOWN.and_also(["Tenant.Id"]))
    assert reasons(post({"t": f"tenant.id: {CANARY}"}), post({"t": ""}), rules) == (
        f'body: $.t is "tenant.id: {MASK}", recorded ""',
    )
    assert reasons(post({"tenant.id": {"a": CANARY}}), post({}), rules) == (
        f'body: $["tenant.id"] is {MASK}, recorded absent',
    )
    assert reasons(post(b"\xff tenant.id=" + CANARY.encode()), post(b""), rules) == (
        f'body: "\\\\xff tenant.id={MASK}", recorded ""',
    )


def test_an_ignored_item_is_not_shown():
    rules = Rules(ignore=(("a", "0"),))
    assert reasons(post({"a": [1, 2]}), post({}), rules) == ("body: $.a is [2], recorded absent",)


@pytest.mark.parametrize("length", [0, 1, 39, 100, NEAR - 1, NEAR, NEAR + 1, 3 * NEAR + 7])
def test_long_texts_are_shown_around_their_first_difference(length):
    before = "x" * length
    tail = before[-20:] if length > 40 else before
    mark = "…" if length > 40 else ""
    for one, other in ((f"{before}ab", f"{before}cd"), (before, f"{before}ab")):
        mine, theirs = one[length:], other[length:]
        assert reasons(post({"t": one}), post({"t": other})) == (
            f'body: $.t is "{mark}{tail}{mine}", recorded "{mark}{tail}{theirs}"',
        )
        assert reasons(post(one.encode()), post(other.encode())) == (
            f'body: "{mark}{tail}{mine}", recorded "{mark}{tail}{theirs}"',
        )


FIELD = st.sampled_from(sorted(SECRET_JSON)).flatmap(lambda name: st.sampled_from([name, name.upper(), name.title()]))
HARMLESS = st.sampled_from(["a", "b", "x"])
CREDENTIAL = st.sampled_from([CANARY, [CANARY], [[CANARY]], {"x": CANARY}])
VALUES = st.recursive(
    st.sampled_from([1, None, "a"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(HARMLESS, inner, max_size=2)
        | st.dictionaries(FIELD, CREDENTIAL, max_size=2)
        | st.builds(dict.__or__, st.dictionaries(HARMLESS, inner), st.dictionaries(FIELD, CREDENTIAL))
    ),
    max_leaves=8,
)
NESTED = VALUES | VALUES.map(json.dumps) | VALUES.map(lambda value: {"arguments": json.dumps(value)})


@given(NESTED, NESTED)
def test_t7_no_credential_is_ever_shown(asked, recorded):
    assert all("CANARY" not in reason for reason in reasons(post(asked), post(recorded)))
    raw = json.dumps(asked).encode()
    assert all("CANARY" not in reason for reason in reasons(post(raw[:-1]), post(recorded)))


def test_large_bodies_are_told_at_once():
    one, other = b"\xff" + b"password=" * 1_000_000, b"\xff" + b"password=" * 1_000_000 + b"x"
    started = time.perf_counter()
    assert len(reasons(post(one), post(other))) == 1
    assert time.perf_counter() - started < 5  # takes some 20 ms
