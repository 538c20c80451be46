"""The rules of matching as the command line writes them."""

import pytest

from mockllm.core.errors import UsageError
from mockllm.core.redact import KNOWN, SECRET_HEADERS, SECRET_JSON
from mockllm.core.rules import DEFAULT, Matcher, Rules, parse_match


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("method,path,query,body", DEFAULT),
        ("body,body, path", Rules(frozenset({Matcher.BODY, Matcher.PATH}))),
        ("header:X-Tenant,path,header:x-tenant", Rules(frozenset({Matcher.PATH}), (b"x-tenant",))),
        ("header:b,header:a", Rules(frozenset(), (b"b", b"a"))),
    ],
)
def test_match(text, rules):
    assert parse_match(text) == rules


THERE_ARE = "There are method, path, query, body and header:NAME"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("method,metod", f'no matcher is called "metod": did you mean method? {THERE_ARE}'),
        ("Body", f'no matcher is called "Body": did you mean body? {THERE_ARE}'),
        ("headers:x-a", f'no matcher is called "headers:x-a": did you mean header:NAME? {THERE_ARE}'),
        ("header", f'no matcher is called "header": did you mean header:NAME? {THERE_ARE}'),
        ("body:x", f'no matcher is called "body:x": did you mean body? {THERE_ARE}'),
        ("zzz", f'no matcher is called "zzz": {THERE_ARE}'),
        ("", f'no matcher is called "": {THERE_ARE}'),
        ("path,", f'no matcher is called "": {THERE_ARE}'),
        ("\x1b", f'no matcher is called "\\u001b": {THERE_ARE}'),
        ("header:", 'header: "" names no header: write one, such as header:x-tenant'),
        ("header:a b", 'header: "a b" names no header: write one, such as header:x-tenant'),
        ("header:é", 'header: "é" names no header: write one, such as header:x-tenant'),
        ("header:X-API-Key", "header:X-API-Key holds a credential, which never counts: leave it out"),
    ],
)
def test_what_is_no_list_of_matchers(text, why):
    with pytest.raises(UsageError) as caught:
        parse_match(text)
    assert str(caught.value) == why


def test_headers_that_count():
    headers = (b"X-A", b"x-a", b"Cookie", b"x-b")
    assert Rules(headers=headers).counted_headers == [b"x-a", b"x-b"]
    assert Rules(headers=headers, secrets=KNOWN.and_also(["X-B"])).counted_headers == [b"x-a"]


def test_t12_names_that_are_no_credentials():
    names = {"max_tokens", "max_completion_tokens", "token", "tokens", "key", "keys", "user", "seed", "id", "logprobs"}
    assert not names & SECRET_JSON
    assert {"api_key", "access_token", "authorization"} <= SECRET_JSON
    assert {name.decode() for name in SECRET_HEADERS} <= SECRET_JSON
    assert all(name == name.lower() for name in SECRET_JSON)
