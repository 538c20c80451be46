"""Multipart bodies as their parts."""

import time
from contextlib import suppress
from email.message import EmailMessage

import httpx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mockllm.core.multipart import MAX_PARTS, Part, parse_multipart

TYPE = b"multipart/form-data; boundary=b"
A = b'Content-Disposition: form-data; name="a"\r\n\r\n'


def part(content, name=b"a", filename=None, kind=None):
    return Part(name, filename, kind, content)


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (b"--b--", []),
        (b"--b--\r\n", []),
        (b"--b-- \t\r\nepilogue\r\n--b\r\n", []),
        (b"--b\r\n" + A + b"1\r\n--b--", [part(b"1")]),
        (b"--b \t \r\n" + A + b"1\r\n--b--\r\n", [part(b"1")]),
        (b"preamble --b\r\n--b\r\n" + A + b"\r\n--b--\r\n", [part(b"")]),
        (b"\r\n--b\r\n" + A + b"1\r\n--b\r\n" + A + b"2\r\n--b--", [part(b"1"), part(b"2")]),
        (b"--b\r\n" + A + b" --b\r\n--c\n--b\r\n\r\n--b--", [part(b" --b\r\n--c\n--b\r\n")]),
        (b"--b\r\n" + A + b"--b--", [part(b"")]),
        (b"--b\r\n" + A + b"\r\n\r\n\r\n--b--", [part(b"\r\n\r\n")]),
        (b"--b\r\n" + A + b"-\r\n-b\n--b\r--b\r\n--b--", [part(b"-\r\n-b\n--b\r--b")]),
        (b"--b\r\n\r\n1\r\n--b--", [part(b"1", None)]),
        (b"--b\r\n\r\n\r\n--b--", [part(b"", None)]),
        (b"--b\r\n\r\n--b--", [part(b"", None)]),
        (b"--b\r\nContent-Type: x\r\n\r\n--b--", [part(b"", None, kind=b"x")]),
        (
            b"--b\r\nX: 1\r\ncontent-TYPE :  a/b;\r\n c=d \r\ncontent-type: y\r\n\r\n1\r\n--b--",
            [part(b"1", None, None, b"a/b; c=d")],
        ),
    ],
)
def test_bodies(body, parts):
    assert parse_multipart(TYPE, body) == tuple(parts)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--b",
        b"--b\r\n",
        b"--c--",
        b"--b-",
        b"--b--x",
        b"--bb\r\n" + A + b"1\r\n--bb--",
        b"--b\n\r\n1\r\n--b--",
        b"--b\r\n" + A + b"1\r\n--b",
        b"--b\r\n" + A + b"1\r\n--b\r\n",
        b"--b\r\n" + A + b"1\r\n--bb\r\n--b--",
        b"--b\r\n--b--",
        b"--b\r\nX: 1\r\n--b--",
        b"--b\r\nX\r\n\r\n1\r\n--b--",
        b"x--b\r\n" + A + b"1\n--b--",
    ],
)
def test_what_is_malformed(body):
    with pytest.raises(ValueError, match=r"."):
        parse_multipart(TYPE, body)


@pytest.mark.parametrize(
    ("told", "boundary"),
    [
        (b"multipart/form-data; boundary=b", b"b"),
        (b"Multipart/Related;type=x;BOUNDARY=b;boundary=c", b"b"),
        (b'multipart/form-data; charset="; boundary=c"; boundary="a b:\\"?"', b'a b:"?'),
        (b"multipart/form-data ; boundary = --b", b"--b"),
        (b"multipart/form-data", None),
        (b"multipart/form-data; boundary=", None),
        (b'multipart/form-data; boundary=""', None),
        (b"multipart/form-data; xboundary=b", None),
        (b"application/json; boundary=b", None),
        (b"x-multipart/form-data; boundary=b", None),
        (b"", None),
    ],
)
def test_the_boundary(told, boundary):
    body = b"--" + (boundary or b"b") + b"--"
    if boundary is None:
        with pytest.raises(ValueError, match="not multipart"):
            parse_multipart(told, body)
    else:
        assert parse_multipart(told, body) == ()


@pytest.mark.parametrize(
    ("disposition", "name", "filename"),
    [
        (b'form-data; name="a b"; filename="c;d=e.wav"', b"a b", b"c;d=e.wav"),
        (b"form-data;name=a;filename=b", b"a", b"b"),
        (b"form-data; NAME=a; name=b", b"a", None),
        (b'form-data; name="a\\"b\\\\"', b'a"b\\', None),
        (b'form-data; name=""; filename=""', b"", b""),
        (b'form-data; name="\xff\xc3\xa9"', b"\xff\xc3\xa9", None),
        (b"form-data; name=a; filename*=UTF-8''%e2%82%ac", b"a", b"UTF-8''%e2%82%ac"),
        (b"form-data; filename*=UTF-8''b; filename=c", None, b"c"),
        (b"form-data", None, None),
        (b'form-data; name="a', b"", None),
    ],
)
def test_the_name_and_the_filename(disposition, name, filename):
    body = b"--b\r\ncontent-disposition: " + disposition + b"\r\n\r\n1\r\n--b--"
    assert parse_multipart(TYPE, body) == (Part(name, filename, None, b"1"),)


BOUNDARY = st.text("ab-'_", min_size=1, max_size=3)
CONTENT = st.lists(st.sampled_from([b"\r\n", b"--", b"a", b"b", b"\n", b"\xff", b"-", b"\r"]), max_size=8).map(b"".join)
NAMES = st.text("ab \\;=", max_size=3)


@given(st.lists(st.tuples(NAMES, CONTENT), max_size=4), BOUNDARY, st.sampled_from([b"", b"preamble", b"\r\n"]))
def test_parts_come_back_as_they_were_written_whatever_the_boundary(parts, boundary, preamble):
    dashed = b"--" + boundary.encode()
    assume(all(b"\r\n" + dashed not in b"\r\n" + content for _, content in parts))
    body = preamble + b"\r\n"
    for name, content in parts:
        quoted = name.replace("\\", "\\\\").encode()
        body += dashed + b'\r\nContent-Disposition: form-data; name="' + quoted + b'"\r\n\r\n' + content + b"\r\n"
    found = parse_multipart(b'multipart/form-data; boundary="' + boundary.encode() + b'"', body + dashed + b"--\r\n")
    assert found == tuple(part(content, name.encode()) for name, content in parts)


@given(
    st.lists(st.sampled_from([b"--b", b"\r\n", b"--", b"x", b": ", b" ", b"--b\r\n\r\n"]), max_size=12).map(b"".join)
)
def test_parts_or_a_value_error_and_nothing_is_invented(body):
    try:
        parts = parse_multipart(TYPE, body)
    except ValueError:
        return
    assert all(one.content in body and b"\r\n--b" not in one.content for one in parts)
    assert b"--b--" in body


def test_what_httpx_writes():
    files = [("file", ('a "b".wav', b"\x00\r\n--\xff", "audio/wav")), ("file", ("é.txt", b"", "text/plain"))]
    sent = httpx.Request("POST", "http://h/", data={"model": "whisper-1", "n": "1"}, files=files)
    found = parse_multipart(sent.headers["content-type"].encode(), sent.read())
    assert found == (
        Part(b"model", None, None, b"whisper-1"),
        Part(b"n", None, None, b"1"),
        Part(b"file", b"a %22b%22.wav", b"audio/wav", b"\x00\r\n--\xff"),
        Part(b"file", "é.txt".encode(), b"text/plain", b""),
    )


def test_what_the_standard_library_writes():
    message = EmailMessage()
    message.add_attachment(b"\x00\xff", "audio", "wav", filename="a.wav", cte="8bit")
    message.add_attachment("hello", filename="b.txt")
    head, _, body = message.as_bytes().replace(b"\n", b"\r\n").partition(b"\r\n\r\n")
    told = message["content-type"].encode()
    assert told in head
    found = parse_multipart(told, body)
    assert [(one.filename, one.type, one.content) for one in found] == [
        (b"a.wav", b"audio/wav", b"\x00\xff"),
        (b"b.txt", b'text/plain; charset="utf-8"', b"hello\r\n"),
    ]


def test_a_body_of_very_many_parts_is_none():
    def body(count):
        return b"--b\r\n" + b"\r\n\r\n--b\r\n" * (count - 1) + b"\r\n\r\n--b--"

    assert len(parse_multipart(TYPE, body(MAX_PARTS))) == MAX_PARTS
    with pytest.raises(ValueError, match="too many"):
        parse_multipart(TYPE, body(MAX_PARTS + 1))


@pytest.mark.parametrize(
    ("told", "body"),
    [
        (TYPE, b"--b\r\n" + A + b"\r\n--" * 1_000_000 + b"\r\n--b--"),
        (TYPE, b"\r\n--" * 1_000_000),
        (TYPE, b"--b" + b" " * 3_000_000),
        (TYPE, b"--b\r\nX:" + b" " * 3_000_000 + b"\r\n" + b" \r\n" * 500_000 + b"\r\n--b--"),
        (b"multipart/x;" + b" " * 500_000 + b'a="' + b"\\" * 500_001, b"--b--"),
        (b"multipart/x" + b";" * 500_000 + b'="' * 200_000, b"--b--"),
    ],
)
def test_time_grows_only_with_the_size(told, body):
    started = time.perf_counter()
    with suppress(ValueError):
        parse_multipart(told, body)
    assert time.perf_counter() - started < 5  # takes some 50 ms
