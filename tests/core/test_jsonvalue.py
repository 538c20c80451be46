"""What counts as JSON, and which values are equal."""

import json
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mockllm.core.jsonvalue import MAX_DEPTH, canonical, parse_json

# Few leaves, close to each other, so that equal and nearly equal values are drawn often.
LEAVES = [
    None,
    True,
    False,
    0,
    -0.0,
    1,
    1.0,
    0.1,
    "",
    "1",
    "true",
    2**53,
    2.0**53,
    2**53 + 1,
    1e22,
    10**22,
    1e23,
    10**23,
]
KEYS = ["a", "b", "é", "\u2028"]


def values(leaves):
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
        max_leaves=6,
    )


NEAR = values(st.sampled_from(LEAVES))
ANY = values(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)


def equal(one, other):
    """Equality as the rule says it, told another way."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other and (isinstance(one, bool) is isinstance(other, bool))


@given(NEAR, NEAR)
@example(1, True)
@example([0], [-0.0])
@example({"a": 1, "b": 2}, {"b": 2, "a": 1})
def test_canonical_bytes_are_equal_exactly_where_values_are(one, other):
    assert (canonical(one) == canonical(other)) is equal(one, other)


@given(ANY)
def test_canonical_is_json_of_an_equal_value(value):
    assert equal(parse_json(canonical(value)), value)


@given(ANY, st.booleans(), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_spelling_counts_for_nothing(value, ascii_only, indent, sort):
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent, sort_keys=sort).encode()
    assert canonical(parse_json(b" \r\n" + body + b"\n")) == canonical(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"1", b"1.0"),
        (b"100", b"1e2"),
        (b"0", b"-0.0"),
        (b"0.10", b"1e-1"),
        (b'"\\ud83c\\udf89"', '"🎉"'.encode()),
        (b'"\\u00e9\\/"', '"é/"'.encode()),
        (b"9007199254740993", b"9007199254740993"),
    ],
)
def test_equal_spellings(one, other):
    assert canonical(parse_json(one)) == canonical(parse_json(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"9007199254740993", b"9007199254740992"),
        (b"123456789012345678901234567890", b"123456789012345678901234567891"),
        (b"true", b"1"),
        (b"false", b"0"),
        (b"null", b"false"),
        (b'"1"', b"1"),
        (b"[]", b"{}"),
        (b"[1,2]", b"[2,1]"),
        (b'{"a":null}', b"{}"),
        ('"é"'.encode(), '"e\u0301"'.encode()),
    ],
)
def test_unequal_values(one, other):
    assert canonical(parse_json(one)) != canonical(parse_json(other))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b"{}x",
        b"{'a':1}",
        b"[1,]",
        b"01",
        b'"a\nb"',
        b"\xef\xbb\xbf{}",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        '"é"'.encode("utf-16"),
        b'{"a":1,"a":1}',
        b'[{"b":{"a":1,"\\u0061":2}}]',
        b'"\\ud83c"',
        b'"\\uDF89\\uD83C"',
        b'{"\\udf89":1}',
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b"[-1e400]",
        b"1" * 5000,
    ],
)
def test_not_json(body):
    with pytest.raises(ValueError, match=r"."):
        parse_json(body)


def test_an_escaped_backslash_before_a_surrogate_look_alike_is_text():
    assert parse_json(b'"\\\\ud83c"') == "\\ud83c"


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_depth_is_bounded_whatever_the_stack(opening):
    closing = b"]" if opening == b"[" else b"}"
    deep = opening * MAX_DEPTH + b"1" + closing * MAX_DEPTH
    canonical(parse_json(deep))
    deeper = opening + deep + closing
    with pytest.raises(ValueError, match="deeper"):
        parse_json(deeper)
    with pytest.raises(ValueError, match="deeper"):
        parse_json(opening * 1_000_000)

    def at_depth(frames):
        return at_depth(frames - 1) if frames else parse_json(deep)

    frames, frame = 0, sys._getframe()
    while frame:
        frames, frame = frames + 1, frame.f_back
    assert at_depth(sys.getrecursionlimit() - frames - MAX_DEPTH - 50) == parse_json(deep)


def test_brackets_in_text_and_side_by_side_are_not_depth():
    text = '[[{"\\' * 200
    assert parse_json(json.dumps({"a": text, "b": [[]] * 200}).encode()) == {"a": text, "b": [[]] * 200}


@pytest.mark.parametrize("body", [b'"' + b'\\"' * 500_000 + b"[" * 200 + b"\\", b'"[' * 500_000, b"[" * 200 + b'"\\'])
def test_a_hostile_body_takes_linear_time(body):
    # Quadratic time would be minutes: the suite's own time limit is the assertion.
    with pytest.raises(ValueError, match=r"."):
        parse_json(body)
