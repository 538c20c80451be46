"""Shapes of JSON values: what counts as a change, and what is only another content."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.shapes import changes, shape_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "a.b", "\x1b"]), inner),
    max_leaves=8,
)


def changed(before: list[Any], after: list[Any]) -> list[str]:
    return list(changes({"chunk": shape_of(before)}, {"chunk": shape_of(after)}))


@given(st.lists(VALUES, min_size=1, max_size=4), st.data())
def test_some_of_the_values_are_no_change(values: list[Any], data: st.DataObject) -> None:
    assert changed(values, values) == []
    some = data.draw(st.lists(st.sampled_from(values), min_size=1))
    assert changed(values, some) == []


@given(st.lists(VALUES, max_size=4), st.lists(VALUES, max_size=4))
def test_every_line_prints(before: list[Any], after: list[Any]) -> None:
    assert all(line.isprintable() for line in changed(before, after))


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        pytest.param([{"a": 1}], [{"a": 2.5}], [], id="only the value"),
        pytest.param([{"a": "x"}], [{"a": "y", "b": None}], ["b (null) is new"], id="a key more"),
        pytest.param([{"a": 1, "b": []}], [{"a": 1}], ["b (array) is gone"], id="a key less"),
        pytest.param([{"a": 1}, {}], [{}], [], id="a key that only some had"),
        pytest.param([{}], [{"a": {"b": {"c": 1}}}], ["a (object) is new"], id="an object: not its keys"),
        pytest.param([{"a": {"b": 1}}], [{}], ["a (object) is gone"], id="an object less: not its keys"),
        pytest.param([{"a": True}], [{"a": 1}], ["a was boolean, is number"], id="another type"),
        pytest.param([{"a": "x"}, {"a": None}], [{"a": None}], [], id="one of several types"),
        pytest.param([{"a": "x"}], [{"a": None}, {"a": "x"}], ["a was string, is null or string"], id="a type more"),
        pytest.param([{"a": []}], [{"a": [{"b": 1}]}], [], id="a list has items"),
        pytest.param([{"a": [1]}], [{"a": []}], [], id="a list has none"),
        pytest.param(
            [{"a": [{"b": 1}]}], [{"a": [{"c": 1}]}], ["a[].c (number) is new", "a[].b (number) is gone"], id="in items"
        ),
        pytest.param([{"a": {}}], [{"a": {}, "a.b": 1}], ["a.b (number) is new"], id="a dot in a key"),
        pytest.param([{}], [{"\x1b[2J": 1}], ["\\u001b[2J (number) is new"], id="a key that a terminal would obey"),
        pytest.param([{"a": 1}], [None], ["the value was object, is no JSON"], id="no JSON"),
        pytest.param([{"a": 1}], ["x"], ["the value was object, is string"], id="another value"),
        pytest.param([], [{"a": 1}], [], id="nothing to compare with"),
    ],
)
def test_a_change(before: list[Any], after: list[Any], lines: list[str]) -> None:
    assert changed(before, after) == [f"JSON: {line} in chunk" for line in lines]


def test_equal_changes_of_several_kinds_are_one_line() -> None:
    before = {kind: shape_of([{"id": 1}]) for kind in ("role", "text", "old")}
    after = {kind: shape_of([{"id": 1, "tier": "x"}]) for kind in ("role", "text", "new")}
    assert list(changes(before, after)) == ["JSON: tier (string) is new in role, text"]
