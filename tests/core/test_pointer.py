"""JSON pointers, and values without the places that they name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.errors import UsageError
from mockllm.core.jsonvalue import canonical
from mockllm.core.pointer import GONE, parse_pointer, without


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("/", ("",)),
        ("/foo", ("foo",)),
        ("/foo/0", ("foo", "0")),
        ("/a~1b", ("a/b",)),
        ("/c%d", ("c%d",)),
        ("/g|h//", ("g|h", "", "")),
        ('/k"l/ /m~0n', ('k"l', " ", "m~n")),
        ("/~01/~10", ("~1", "/0")),
        ("/messages/*/content", ("messages", "*", "content")),
    ],
)
def test_pointers(text, steps):
    assert parse_pointer(text) == steps


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", '"" is the whole body: write the place of a value, such as /metadata/time or /messages/*/id'),
        ("a/b", '"a/b" is no JSON pointer: '),
        ("#/a", '"#/a" is no JSON pointer: '),
        ("$.a[0]", '"$.a[0]" is no JSON pointer: '),
        ("\x1b", '"\\u001b" is no JSON pointer: '),
        ("/a~", '"/a~" has a ~ that stands for nothing: in a JSON pointer ~0 is a ~, ~1 is a /'),
        ("/~2", '"/~2" has a ~ '),
        ("/a~~0", '"/a~~0" has a ~ '),
    ],
)
def test_what_is_no_pointer(text, why):
    with pytest.raises(UsageError) as caught:
        parse_pointer(text)
    assert str(caught.value).startswith(why)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("value", "pointers", "left"),
    [
        ({"a": 1, "b": 2}, ["/a"], {"b": 2}),
        ({"a": 1}, ["/b", "/a/x", "/0"], {"a": 1}),
        ({"": 1, "a": 1}, ["/"], {"a": 1}),
        ({"a": {"b": 1, "c": 2}, "b": 3}, ["/a/b"], {"a": {"c": 2}, "b": 3}),
        ({"a": {"b": 1}}, ["/a/b", "/a"], {}),
        ({"a": [{"t": 1, "x": 2}, {"t": 3}, 4, [5]]}, ["/a/*/t"], {"a": [{"x": 2}, {}, 4, [5]]}),
        ({"a": {"x": {"t": 1}, "y": {"t": 2, "u": 3}}}, ["/*/*/t"], {"a": {"x": {}, "y": {"u": 3}}}),
        ({"*": 1, "a": 2}, ["/*"], {}),
        ([1, 2, 3], ["/0"], [GONE, 2, 3]),
        ([1, 2, 3], ["/2"], [1, 2]),
        ([1, 2, 3], ["/1", "/2"], [1]),
        ([1, 2, 3], ["/*"], []),
        ([1, 2, 3], ["/-", "/01", "/+1", "/3", "/-1"], [1, 2, 3]),
        ({"01": 1, "-": 1, "0": 1}, ["/01", "/-"], {"0": 1}),
        (5, ["/a"], 5),
    ],
)
def test_without(value, pointers, left):
    before = json.dumps(value)
    assert without(value, list(map(parse_pointer, pointers))) == left
    assert json.dumps(value) == before


KEYS = st.sampled_from(["a", "b", "0", "1", "*"])
JSON = st.recursive(
    st.sampled_from([None, 1, "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
POINTERS = st.lists(st.lists(KEYS, min_size=1, max_size=3).map(tuple), max_size=3)


def places(value, steps=()):
    """Every leaf, and every empty or other container, by its steps; those that lie in a named place are left out."""
    yield steps, type(value).__name__ if isinstance(value, dict | list) else value
    if isinstance(value, dict | list):
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(item, (*steps, step))


def named(steps, pointers):
    return any(
        len(steps) >= len(pointer) and all(one in ("*", str(step)) for one, step in zip(pointer, steps, strict=False))
        for pointer in pointers
    )


@given(JSON, POINTERS)
def test_what_is_left_is_what_no_pointer_names_at_its_own_place(value, pointers):
    left = {steps: item for steps, item in places(without(value, pointers)) if item is not GONE}
    assert left == {steps: item for steps, item in places(value) if not named(steps, pointers)}


@given(JSON, JSON, POINTERS)
def test_present_and_absent_come_out_the_same(one, other, pointers):
    ours, theirs = (
        {steps: item for steps, item in places(value) if not named(steps, pointers)} for value in (one, other)
    )
    assert (canonical(without(one, pointers)) == canonical(without(other, pointers))) is (ours == theirs)
