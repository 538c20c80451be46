"""Which recording is most like a request."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.exchange import Request
from mockllm.core.matching import key
from mockllm.core.nearest import MAX_LEAVES, MAX_TEXT, distance, nearest, sketch
from mockllm.core.rules import DEFAULT, Matcher, Rules, parse_match

CHAT = b"/v1/chat/completions"


def chat(text, target=CHAT, method="POST", **fields):
    value = {"model": "m", "messages": [{"role": "system", "content": "kind"}, {"role": "user", "content": text}]}
    return Request(method, target, (), json.dumps(value | fields).encode())


def post(value, target=CHAT):
    return Request("POST", target, (), value if isinstance(value, bytes) else json.dumps(value).encode())


def best(asked, *recorded, rules=DEFAULT):
    """The place of the nearest of some recordings."""
    return nearest(sketch(asked, rules), enumerate(sketch(request, rules) for request in recorded))


def test_same_method_and_path_then_same_path_then_same_method_then_the_rest():
    asked = chat("hello")
    order = [
        chat("nothing like it", stream=True),
        chat("hello", method="PUT"),
        chat("hello", target=b"/v1/completions"),
        chat("hello", method="PUT", target=b"/v1/chat/completion"),
    ]
    for first in range(len(order)):
        assert best(asked, *reversed(order[first:])) == len(order) - 1 - first


def test_of_other_paths_the_one_most_alike():
    asked = chat("hello", target=b"/chat/completions")
    assert best(asked, chat("hello", target=b"/v1/models"), chat("x", target=CHAT), chat("hello", target=b"/c")) == 1
    assert best(asked, chat("hello", target=b"/"), chat("x", target=b"/chat/completion")) == 1


@pytest.mark.parametrize(
    ("target", "stream", "streams"),
    [
        (CHAT, None, False),
        (CHAT, True, True),
        (CHAT, False, False),
        (b"/api/chat", None, True),
        (b"/ollama/api/generate?a=1", None, True),
        (b"/api/chat", False, False),
        (b"/api/chat", "no", True),
        (b"/api/tags", None, False),
    ],
)
def test_stream_is_what_the_body_says_else_what_the_family_does(target, stream, streams):
    assert sketch(post({} if stream is None else {"stream": stream}, target)).stream is streams


def test_the_same_stream_value_comes_before_the_same_text():
    assert best(chat("hello", stream=True), chat("hello"), chat("quite another", stream=True)) == 1
    assert best(chat("hello"), chat("hello", stream=True), chat("quite another", stream=False)) == 1


def test_the_most_similar_last_user_message():
    recorded = [chat("Write a haiku about autumn"), chat("Translate this to French"), chat("日本の首都はどこですか")]
    assert best(chat("write me a haiku about winter"), *recorded) == 0
    assert best(chat("Translate that into French, please"), *recorded) == 1
    assert best(chat("フランスの首都はどこですか"), *recorded) == 2


def test_one_changed_parameter_is_nearer_than_two():
    tools = [{"type": "function", "function": {"name": f"tool{i}", "description": "d" * i}} for i in range(300)]
    asked = chat("hello", tools=tools, temperature=1, seed=1)
    two, one = chat("hello", tools=tools, temperature=0, seed=0), chat("hello", tools=tools, temperature=1, seed=0)
    assert best(asked, two, one) == 1
    assert best(asked, one, two) == 0


def test_the_first_of_equals_and_none_of_none():
    assert best(chat("a"), chat("b"), chat("b")) == 0
    assert best(chat("a")) is None


def test_the_query_counts_without_its_key():
    asked = chat("a", target=CHAT + b"?alt=sse&key=mine")
    assert best(asked, chat("a", target=CHAT + b"?key=mine"), chat("a", target=CHAT + b"?alt=sse&key=[redacted]")) == 1


def test_what_does_not_count_brings_nothing_nearer():
    asked = chat("a", seed=1, time=1, api_key="k")
    recorded = [chat("a", seed=2, time=1, api_key="k"), chat("a", seed=1, time=2, api_key="other")]
    assert best(asked, *recorded, rules=Rules(ignore=(("time",),))) == 1
    assert best(asked, *recorded, rules=Rules(ignore=(("seed",),))) == 0
    turns = [{"role": "user", "content": "b"}, {"role": "user", "content": "a"}]
    last = Rules(ignore=(("messages", "2"),))
    assert best(chat("b"), chat("a"), chat("x", messages=[*turns, turns[1]]), rules=last) == 0
    assert sketch(post({"input": [1, 2]}), Rules(ignore=(("input", "0"),))) == sketch(
        post({"input": [3, 2]}), Rules(ignore=(("input", "0"),))
    )


def test_what_is_no_matcher_brings_nothing_nearer():
    asked = Request("POST", b"/a?x=1", ((b"x-a", b"1"),), b"[1]")
    other = {
        "method": Request("PUT", b"/a?x=1", ((b"x-a", b"1"),), b"[1]"),
        "path": Request("POST", b"/b?x=1", ((b"x-a", b"1"),), b"[1]"),
        "query": Request("POST", b"/a?x=2", ((b"x-a", b"1"),), b"[1]"),
        "header:x-a": Request("POST", b"/a?x=1", ((b"x-a", b"2"),), b"[1]"),
        "body": Request("POST", b"/a?x=1", ((b"x-a", b"1"),), b"[2]"),
    }
    for name, request in other.items():
        rules = parse_match(",".join(other.keys() - {name}))
        assert sketch(asked, rules) == sketch(request, rules)
        assert sketch(asked, parse_match(",".join(other))) != sketch(request, parse_match(",".join(other)))


def test_forms_are_compared_by_their_parts():
    def form(boundary, *contents):
        pieces = (b"--" + boundary + b"\r\n\r\n" + content + b"\r\n" for content in contents)
        told = b"multipart/form-data; boundary=" + boundary
        return Request("POST", CHAT, ((b"content-type", told),), b"".join(pieces) + b"--" + boundary + b"--")

    audio, long = b"\xff\x00" * 50, b"a" * 300
    asked = form(b"one", b"whisper", audio, long)
    assert best(asked, form(b"one", b"tiny", b"\x01", long), form(b"two", b"whisper", audio, b"b")) == 1
    assert best(form(b"x", b"in French"), form(b"y", b"hello"), form(b"z", b"to French")) == 1
    asked, other = (form(b"x", b"#" * 2 * MAX_TEXT + words) for words in (b"in French", b"and more of it"))
    assert best(asked, other, form(b"x", b"#" * 2 * MAX_TEXT + b"to French")) == 1
    assert sketch(form(b"one", b"a")) == sketch(form(b"two", b"a"))
    assert sketch(form(b"one")) == sketch(Request("POST", CHAT))


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "WORDS"}, {"role": "assistant", "content": "other"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "WORDS"}, {"type": "image_url"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "WORDS"}]}]},
        {"input": "WORDS"},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "WORDS"}]}]},
        {"input": ["WORDS"]},
        {"contents": [{"parts": [{"text": "WORDS"}]}]},
        {"contents": [{"role": "user", "parts": [{"text": "WORDS"}]}, {"role": "model", "parts": [{"text": "x"}]}]},
        {"prompt": "WORDS"},
        {"prompt": ["WORDS"], "messages": []},
    ],
)
def test_the_last_user_message_is_found_in_each_family(body):
    told = sketch(post(json.dumps(body).replace("WORDS", "some words of it").encode()))
    assert told.grams
    assert told.grams == sketch(post({"prompt": "some words of it"})).grams


@pytest.mark.parametrize("body", [[], "text", 5, None, {}, {"messages": 7}, {"messages": [1, None]}, {"prompt": [[]]}])
def test_bodies_without_a_message(body):
    assert sketch(post(body)).grams == 0
    assert sketch(post(body)).leaves


def test_bodies_that_are_not_json_are_compared_by_their_text():
    assert best(post(b"upload of the first file"), post(b"\xff\x00"), post(b"upload of the second file")) == 1
    assert best(post(b"\xff\x00"), post(b"hello"), post(b"\xff\x00")) == 1
    assert sketch(Request("POST", b"/", (), None)) == sketch(Request("POST", b"/"))


def test_numbers_are_equal_by_value_and_kinds_are_not_mixed():
    def leaves(value):
        return sketch(post(value)).leaves

    assert leaves({"a": 1}) == leaves({"a": 1.0})
    assert len({leaves({"a": value}) for value in (1, True, "1", None, 1.5, [], {})}) == 7
    assert leaves({"a": {"b": 1}}) != leaves({"ab": 1})


def test_a_sketch_is_small_whatever_the_body():
    wide = sketch(post({"input": list(range(100_000)), "model": "m", "prompt": "x" * 100_000}))
    nested = sketch(post([[1] * 3000] * 3000 + ["x"]))
    for told in (wide, nested):
        assert len(told.leaves) <= 4 * MAX_LEAVES
        assert told.grams.bit_length() <= 4096
    # What stands near the top counts first.
    assert distance(wide, sketch(post({"input": list(range(100_000)), "model": "M", "prompt": "x" * 100_000})))[3] > 0
    long = "a" * MAX_TEXT
    assert sketch(chat(long + "b" + long)).grams == sketch(chat(long + "c" + long)).grams


REQUESTS = st.builds(
    Request,
    st.sampled_from(["GET", "POST"]),
    st.sampled_from([b"/", b"/a", b"/a/b?x=1", b"/aa", b"http://h/a"]),
    body=st.binary(max_size=4) | st.sampled_from([b'{"stream":true}', b'{"prompt":"hi"}', b"[1,2]", None]),
)


@given(REQUESTS, REQUESTS)
def test_distance_is_symmetric_bounded_and_nothing_to_itself(one, other):
    there, back = distance(sketch(one), sketch(other)), distance(sketch(other), sketch(one))
    assert there == back
    assert 0 <= there[1] <= 1
    assert 0 <= there[3] <= 1
    assert distance(sketch(one), sketch(one)) == (0, 0.0, False, 0.0)


RULES = st.builds(Rules, st.frozensets(st.sampled_from(Matcher)), ignore=st.sampled_from([(), (("*",),)]))


@given(REQUESTS, REQUESTS, RULES)
def test_requests_of_the_same_key_are_at_no_distance(one, other, rules):
    if key(one, rules) == key(other, rules):
        assert distance(sketch(one, rules), sketch(other, rules)) == (0, 0.0, False, 0.0)


def test_a_sketch_is_the_same_in_every_process():
    code = (
        "from mockllm.core.nearest import sketch; from mockllm.core.exchange import Request;"
        f"print(sketch({chat('hello', seed=1.5)!r}))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert told == {f"{sketch(chat('hello', seed=1.5))}\n".encode()}
