"""Secrets are found in every spelling, and nothing else is."""

import json
import re
from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.secrets import MAX_PATTERN, MAX_PATTERNS, MIN_SECRET, Secrets, covered, secrets_of
from mockllm.core.spelling import Places, plain, spellings, unfinished

KEY = b"sk-CANARY/0123+abc="
ODD = 'pa"ss\\wo/rd%41 né🎉\n16 bytes'.encode()


def spelled(text: str, how: list[int]) -> bytes:
    """A text, each character spelled in one of many ways."""
    return b"".join(_spell(char, kind) for char, kind in zip(text, how, strict=True))


def _spell(char: str, kind: int) -> bytes:
    code = ord(char)
    return [
        char.encode(),
        b"\\u%04x" % code,
        b"\\u%04X" % code,
        b"\\\\u%04x" % code,
        b"\\\\\\\\u%04x" % code,
        b"%%%02x" % code,
        b"%%%02X" % code,
        b"%%25%02X" % code,
        b"\\/" if char == "/" else char.encode(),
        b"\\\\\\/" if char == "/" else char.encode(),
    ][kind]


HOWS = st.lists(st.integers(0, 9), min_size=len(KEY), max_size=len(KEY))
FILLER = st.lists(
    st.sampled_from(
        [b"x", b"s", b"sk-", b" ", b'{"a":"', b'"}', b"\n\n", b"\r\n", "é☃".encode(), b"\xff", KEY[:-1], b"0"]
    ),
    max_size=5,
).map(b"".join)


# --- what is found


@given(HOWS, FILLER, FILLER)
def test_a_secret_is_masked_in_any_spelling_by_as_many_bytes_and_nothing_else_is(how, before, after):
    form = spelled(KEY.decode(), how)
    text = before + form + after
    assert secrets_of([KEY]).cover(text + b".") == before + b"*" * len(form) + after + b"."
    assert secrets_of([KEY]).replace(text + b".") == before + b"[redacted]" + after + b"."


ENCODINGS = [
    lambda text: text,
    lambda text: json.dumps(text.decode()).encode()[1:-1],
    lambda text: json.dumps(text.decode(), ensure_ascii=False).encode()[1:-1],
    lambda text: re.sub(rb"\\u(....)", lambda m: b"\\u" + m[1].upper(), json.dumps(text.decode()).encode()[1:-1]),
    lambda text: json.dumps(json.dumps(text.decode())).encode()[3:-3],
    lambda text: json.dumps(json.dumps(json.dumps(text.decode()))).encode()[7:-7],
    lambda text: json.dumps(text.decode()).replace("/", "\\/").encode()[1:-1],
    lambda text: quote(text, safe="").encode(),
    lambda text: re.sub("%..", lambda m: m[0].lower(), quote(text, safe="")).encode(),
    lambda text: quote(quote(text, safe=""), safe="").encode(),
    lambda text: quote(text, safe="/").replace("%20", "+").encode(),
    lambda text: b"".join(b"%%%02X" % byte for byte in text),
]


@pytest.mark.parametrize("encode", ENCODINGS)
@pytest.mark.parametrize(
    "value", [KEY, ODD, b"with a space in it", b"\x01controls\x7f\tin\nit\r", b'"quoted"/\\/\\\\slashed']
)
def test_each_encoding_of_a_value_is_found(encode, value):
    form = encode(value)
    assert secrets_of([value]).cover(b"<" + form + b">") == b"<" + b"*" * len(form) + b">"


def test_a_value_that_is_not_utf8_is_found_as_servers_read_it():
    value = b"caf\xe9-au-lait-0123456789"
    for form in (
        value,
        value.decode("latin-1").encode(),
        b"caf\\u00e9-au-lait-0123456789",
        b"caf%E9-au-lait-0123456789",
    ):
        assert secrets_of([value]).cover(form + b"!") == b"*" * len(form) + b"!"
    replaced = value.decode(errors="replace").encode()
    assert secrets_of([value]).cover(replaced + b"!") == b"*" * len(replaced) + b"!"


@given(st.binary(max_size=200))
def test_nothing_is_masked_where_there_is_no_secret(text):
    assert Secrets().cover(text) == text
    assert not Secrets()
    assert secrets_of([KEY]).cover(text) == text
    assert secrets_of([KEY]).replace(text) == text


@pytest.mark.parametrize(
    "text",
    [
        b"+49 30 1234567890123456",
        b'{"completion_tokens":1234567890123456789}',
        KEY[1:],
        KEY[:-1] + b" ",
        KEY.lower(),
        KEY[:10] + b"\n" + KEY[10:],
        KEY[:10] + b"\\n" + KEY[10:],
        KEY[:10] + b"\\u4e2d" + KEY[10:],
        KEY[::-1],
    ],
)
def test_t12_what_is_not_the_secret_stays(text):
    assert secrets_of([KEY]).cover(text) == text


def test_t12_a_shorter_credential_is_not_looked_for():
    assert secrets_of([b"ollama", b"EMPTY", b"x" * (MIN_SECRET - 1)]) == Secrets()
    assert secrets_of([b"%41" * 15]) == Secrets(), "it stands for 15 bytes"
    assert secrets_of([b"x" * MIN_SECRET])


def test_t12_a_credential_of_digits_leaves_a_number_a_number():
    secrets = secrets_of([b"1234567890123456"])
    assert json.loads(secrets.cover(b'{"id":1234567890123456}')) == {"id": 1111111111111111}
    assert json.loads(secrets.replace(b'{"id":1234567890123456}')) == {"id": 0}


def test_a_json_text_stays_json():
    value = b'/sl"ash\\ed/key/0123'
    text = json.dumps({"a": "\\" + value.decode(), "b": "\n" + value.decode() + "\n"}).replace("/", "\\/")
    masked = json.loads(secrets_of([value]).cover(text.encode()))
    assert set(masked["a"]) == set(masked["b"][1:-1]) == {"*"}, "a backslash before an escape counts as a part of it"
    assert (masked["b"][0], masked["b"][-1]) == ("\n", "\n")
    assert json.loads(secrets_of([value]).replace(text.encode())) == {"a": "[redacted]", "b": "\n[redacted]\n"}


def test_a_backslash_before_a_secret_is_only_masked_where_it_escapes_it():
    secrets = secrets_of([b"nvapi-0123456789abcdef"])
    for before in (b"\\n", b"\\\\", b"C:\\\\", b"\\n\\\\"):
        assert secrets.cover(before + b"nvapi-0123456789abcdef\\n") == before + b"*" * 22 + b"\\n"
    assert secrets.cover(b"\\u006evapi-0123456789abcdef") == b"*" * 27
    assert secrets.cover(b"\\\\u006evapi-0123456789abcdef") == b"*" * 28
    assert secrets.cover(b"\\" * 20 + b"u006evapi-0123456789abcdef.") == b"\\" * 12 + b"*" * 34 + b"."


def test_secrets_that_overlap_are_masked_together():
    secrets = secrets_of([b"user:password-0123456789", b"password-0123456789", b"0123456789-and-more"])
    assert secrets.cover(b"<user:password-0123456789-and-more>") == b"<" + b"*" * 33 + b">"
    assert secrets.replace(b"<user:password-0123456789-and-more>") == b"<[redacted]>"
    assert secrets_of([b"ab" * 8]).cover(b"<" + b"ab" * 20 + b">") == b"<" + b"*" * 40 + b">"
    both = secrets_of([b"1234567890123456", b"a1234567890123456"])
    assert both.cover(b"a1234567890123456") == b"*" * 17


def test_a_secret_that_is_cut_off_at_the_end_is_masked_if_16_bytes_of_it_are_there():
    secrets = secrets_of([KEY])
    assert secrets.cover(b"x" + KEY[:16]) == b"x" + b"*" * 16
    assert secrets.cover(b"x" + KEY[:15]) == b"x" + KEY[:15]
    assert secrets.replace(b"x" + KEY[:16]) == b"x[redacted]"


def test_a_long_secret_is_masked_whole_and_little_of_it_is_needed_at_once():
    token = b"".join(b"%d." % number for number in range(400))
    secrets = secrets_of([token])
    assert max(map(len, secrets.patterns)) <= MAX_PATTERN
    assert secrets.cover(b"<" + token + b">") == b"<" + b"*" * len(token) + b">"
    just_over = token[: MAX_PATTERN + 3]
    assert secrets_of([just_over]).cover(just_over + b"!") == b"*" * len(just_over) + b"!"


def test_how_much_is_looked_for_has_a_bound():
    values = [b"secret-number-%05d" % number for number in range(3 * MAX_PATTERNS)]
    secrets = secrets_of(values)
    assert len(secrets.patterns) == MAX_PATTERNS
    assert secrets.cover(values[0] + b"!") == b"*" * 19 + b"!"


def test_more_bytes_than_any_spelling_has_are_no_secret():
    text = KEY[:10] + b"\\" * 1000 + KEY[10:] + b"!"
    assert secrets_of([KEY]).cover(text) == text
    assert secrets_of([KEY]).scan(text[:900])[1] == 892, "only what may be an escape is held, not what began a secret"


# --- in parts


ALPHABET = st.sampled_from(
    [b"a", b"b", b"ab", b"\\", b"\\\\", b"\\u0061", b"\\u", b"0061", b"%61", b"%", b"25", b"6", b"1", b"\n", b"/"]
)
TEXTS = st.lists(ALPHABET, max_size=60).map(b"".join)
PATTERNS = st.lists(st.sampled_from([b"a", b"b", b"/", b"1", b"u"]), min_size=16, max_size=20).map(b"".join)
REPEATED = st.sampled_from([b"ab" * 8, b"a" * 16, b"aab" * 6, b"a/" * 9, b"u0061" * 4])


@given(TEXTS | st.tuples(TEXTS, REPEATED, TEXTS).map(b"".join), st.lists(REPEATED | PATTERNS, max_size=3), st.data())
def test_what_is_decided_does_not_change_when_the_text_goes_on(text, values, data):
    """Masks found in a part are those of the whole, and all of the whole's that end before what may go on."""
    secrets = secrets_of(values)
    stop = data.draw(st.integers(0, len(text)))
    spans, keep = secrets.scan(text[:stop])
    whole, _ = secrets.scan(text)
    assert set(spans) <= set(whole)
    assert [span for span in whole if span[0] < keep and span not in spans] == []


@given(TEXTS, TEXTS)
def test_the_plain_form_of_two_texts_is_that_of_both_where_no_escape_lies_between(one, other):
    stop = unfinished(one)
    assert plain(one[:stop]) + plain(one[stop:] + other) == plain(one + other)


@given(TEXTS)
def test_each_byte_of_a_plain_form_has_its_place(text):
    places = Places(text)
    form = plain(text)
    for index in range(len(form)):
        start, stop = places.start(index), places.stop(index)
        assert 0 <= start < stop <= len(text)
        assert plain(text[start:stop]) == form[index : index + 1]


@given(st.binary())
def test_a_plain_form_has_no_other(text):
    form = plain(text)
    assert b"\\" not in form
    assert plain(form) == form or b"%" in form


def test_one_plain_form_for_what_most_keys_are():
    assert list(spellings(KEY)) == [KEY]


def test_clear_says_that_there_is_nothing_to_do():
    secrets = secrets_of([KEY])
    assert secrets.clear(b"data: {}\n\n")
    assert not secrets.clear(b"data: s")
    assert not secrets.clear(b"data: \\")
    assert not secrets.clear(KEY + b"\n")
    assert covered(b"abc", []) == b"abc"


@given(st.binary(max_size=40))
def test_percent_decoding_agrees_with_the_library(text):
    once = unquote_to_bytes(text.replace(b"\\", b""))
    if text.isascii() and once.isascii() and b"%" not in once and b"\\" not in once:
        assert plain(text.replace(b"\\", b"")) == once
