"""Foreign values on one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.shown import WIDTH, escaped, shown, shown_bytes, shown_pair


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", ""),
        ("Vous pouvez noter — 日本 🎉", "Vous pouvez noter — 日本 🎉"),
        ("a\x1b[31mb\r\nc\x00", "a\\u001b[31mb\\u000d\\u000ac\\u0000"),
        ("\u202eabc\u2028\x85\x7f", "\\u202eabc\\u2028\\u0085\\u007f"),
        ("\ud800\U000e0001", "\\ud800\\ue0001"),
    ],
)
def test_escaped(text, printed):
    assert escaped(text) == printed


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (None, "null"),
        (0.7, "0.7"),
        (True, "true"),
        ('a"b\n', '"a\\"b\\n"'),
        ([1, {"a": "é"}], '[1, {"a": "é"}]'),
        ({"a": "\u202e"}, '{"a": "\\u202e"}'),
        ("x" * WIDTH, '"' + "x" * WIDTH + '"'),
        ("x" * (WIDTH + 1), '"' + "x" * WIDTH + '…"'),
        (["x" * WIDTH], '["' + "x" * (WIDTH - 2) + "…"),
    ],
)
def test_shown(value, printed):
    assert shown(value) == printed


def test_shown_bytes():
    assert shown_bytes(b"caf\xc3\xa9 \xff\x1b") == '"café \\\\xff\\u001b"'


@given(st.text(min_size=1, max_size=300), st.integers(0, 299), st.booleans())
def test_a_pair_of_texts_is_cut_around_the_first_difference(text, at, as_bytes):
    at %= len(text)
    other = text[:at] + ("b" if text[at] == "a" else "a") + text[at + 1 :]
    if as_bytes:
        one, two = shown_pair(text.encode(errors="replace"), other.encode(errors="replace"))
    else:
        one, two = shown_pair(text, other)
    assert one != two
    assert max(len(one), len(two)) <= 10 * WIDTH + 4  # each character may be escaped
    assert (one + two).isprintable()


def test_long_texts_show_what_is_around_the_difference():
    asked, recorded = shown_pair("x" * 1000 + "YES" + "z" * 1000, "x" * 1000 + "NO" + "z" * 1000)
    assert asked == '"…' + "x" * 20 + "YES" + "z" * 37 + '…"'
    assert recorded == '"…' + "x" * 20 + "NO" + "z" * 38 + '…"'


def test_a_text_that_goes_on():
    assert shown_pair("a" * 100, "a" * 100 + "b") == ('"…' + "a" * 20 + '"', '"…' + "a" * 20 + 'b"')
    assert shown_pair("", "b") == ('""', '"b"')
    assert shown_pair(b"a", b"") == ('"a"', '""')


def test_other_pairs_are_shown_each_alone():
    assert shown_pair(0.7, "a") == ("0.7", '"a"')
