"""Line ends behind dots: put back where the shape tells them, and nothing else touched."""

import pytest

from mockllm.core.importers.dots import restored, restored_json


@pytest.mark.parametrize(
    ("dotted", "meant"),
    [
        (b'data: {"a":"b."}..data: [DONE]..', b'data: {"a":"b."}\n\ndata: [DONE]\n\n'),
        (
            b": keepalive 1/2..: keepalive 2/2..event: x.data: 1.5..",
            b": keepalive 1/2\n\n: keepalive 2/2\n\nevent: x\ndata: 1.5\n\n",
        ),
        (b'id: 7.retry: 3000..data: {"a":"..data: x"}.', b'id: 7\nretry: 3000\n\ndata: {"a":"..data: x"}\n'),
        (
            b': ping - 2026-11-30 15:57:33.474362+00:00..data: "\\"..data:"',
            b': ping - 2026-11-30 15:57:33.474362+00:00\n\ndata: "\\"..data:"',
        ),
        (b"data: plain. text.", b"data: plain. text\n"),
        (b"", b""),
    ],
)
def test_server_sent_events(dotted: bytes, meant: bytes) -> None:
    assert restored(dotted, b"text/event-stream") == meant


@pytest.mark.parametrize("kind", [b"application/x-ndjson", b"application/json; charset=utf-8"])
def test_json(kind: bytes) -> None:
    dotted = b'{.  "a": 1.5,.  "b": "x..y",.  "c": -2.5e.7.}.{"done":true}.'
    assert restored(dotted, kind) == b'{\n  "a": 1.5,\n  "b": "x..y",\n  "c": -2.5e\n7\n}\n{"done":true}\n'


@pytest.mark.parametrize("kind", [None, b"text/html"])
def test_other_bodies_stay(kind: bytes | None) -> None:
    assert restored(b"a. b..", kind) == b"a. b.."


@pytest.mark.parametrize(
    ("dotted", "meant"),
    [
        (b'{.."a": "Say hello.",."b":0.7}', b'{\n\n"a": "Say hello.",\n"b":0.7}'),
        (b'{"a":"caf.."}', None),
        (b'{"a":"and..."}', None),
        (b"a=b.", None),
    ],
)
def test_the_json_of_a_request(dotted: bytes, meant: bytes | None) -> None:
    assert restored_json(dotted) == meant
