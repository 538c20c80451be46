"""What events mean: real captures first, then each family's words, then garbage that must not matter."""

import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mockllm.core.dialects import Meaning, ProtocolEnd, ending, family, is_end, meaning, text
from mockllm.core.dialects.base import dig
from mockllm.core.events import Event, Kind, events
from tests.peers.framing import header

SSE = b"text/event-stream"
NDJSON = b"application/x-ndjson"
CAPTURES = Path(__file__).parents[1] / "data" / "captures"

ROLE, TEXT, FINISH, USAGE = Meaning.ROLE, Meaning.TEXT, Meaning.FINISH, Meaning.USAGE
DONE, ERROR, PING, OTHER = Meaning.DONE, Meaning.ERROR, Meaning.PING, Meaning.OTHER


def event(data: bytes | dict[str, Any], name: bytes = b"") -> Event:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    return Event(Kind.EVENT, 0, len(body), name, body)


# ---------------------------------------------------------------- real captures


def capture(name: str) -> tuple[bytes, bytes | None, bytes]:
    """Target, content type and body without framing."""
    raw = (CAPTURES / f"{name}.bin").read_bytes()
    head, _, body = raw.partition(b"\r\n\r\n")
    if header(head, b"transfer-encoding") is not None:
        body = dechunked(body)
    target = (CAPTURES / f"{name}.req").read_bytes().split(b" ", 2)[1]
    return target, header(head, b"content-type"), body


def dechunked(framed: bytes) -> bytes:
    body = b""
    while framed:
        size, _, rest = framed.partition(b"\r\n")
        count = int(size, 16)
        body, framed = body + rest[:count], rest[count + 2 :]
    return body


LLAMA, MLX = "llama-server", "mlx_lm.server"
HELLO = {ROLE: 1, TEXT: 2, FINISH: 1, DONE: 1}
STREAMS: list[tuple[str, str, str, dict[Meaning, int]]] = [
    (f"{LLAMA}/chat-hello", "llama", "Hello world", HELLO),
    (f"{LLAMA}/chat-hello-usage", "llama", "Hello world", {**HELLO, USAGE: 1}),
    (f"{LLAMA}/chat-diary-fr", "llama", "Vous pouvez noter les faits.", {**HELLO, TEXT: 6}),
    (f"{LLAMA}/chat-unicode", "llama", "Bonjour à tous ! 你好 🎉 — ça marche.", {**HELLO, TEXT: 10}),
    (f"{LLAMA}/chat-reasoning", "llama", "No: 91 is 7 times 13.", {**HELLO, TEXT: 13, OTHER: 25}),
    (f"{LLAMA}/chat-tool", "llama", "", {ROLE: 1, OTHER: 7, FINISH: 1, DONE: 1}),
    (f"{LLAMA}/chat-tool-result", "llama", "It is 18 °C in Paris, with a clear sky.", {**HELLO, TEXT: 15}),
    (f"{LLAMA}/ping2_stream_long_prompt", "llama", "45 the vuaz thenüber", {**HELLO, TEXT: 6, PING: 11}),
    (f"{LLAMA}/stream_completions", "llama", "azrowtre" + " 你好" * 5, {TEXT: 8, FINISH | USAGE: 1, DONE: 1}),
    (f"{LLAMA}/stream_native_completion", "llama", "azrowerver f s vu are ju", {TEXT: 8, FINISH | USAGE | DONE: 1}),
    (
        f"{LLAMA}/messages-hello",
        "anthropic",
        "Hello world",
        {ROLE | USAGE: 1, OTHER: 2, TEXT: 2, FINISH | USAGE: 1, DONE: 1},
    ),
    (f"{LLAMA}/responses-hello", "responses", "Hello world", {OTHER: 6, ROLE: 1, TEXT: 2, FINISH | USAGE | DONE: 1}),
    (f"{MLX}/stream_chat_eos_forced", "mlx", "", {PING: 2, ROLE | FINISH: 1, DONE: 1}),
    (
        f"{MLX}/stream_chat_emoji",
        "mlx",
        "land 0123456789ve you you you",
        {PING: 2, ROLE | TEXT: 6, ROLE | FINISH: 1, DONE: 1},
    ),
    (
        f"{MLX}/stream_chat_usage",
        "mlx",
        "45pononüberpon" + " dog" * 11,
        {PING: 2, ROLE | TEXT: 16, ROLE | FINISH: 1, USAGE: 1, DONE: 1},
    ),
    (
        f"{MLX}/stream_completions",
        "mlx",
        "azrowkensazrowerverensensrerowtre wo time time time ju",
        {PING: 2, TEXT: 16, FINISH: 1, DONE: 1},
    ),
    (f"{MLX}/disconnect_mid_stream", "mlx", "012345az brow quick", {PING: 2, ROLE | TEXT: 4}),
]


@pytest.mark.parametrize(("name", "who", "said", "counts"), STREAMS, ids=[row[0] for row in STREAMS])
def test_captured_streams(name: str, who: str, said: str, counts: dict[Meaning, int]) -> None:
    target, content_type, body = capture(name)
    spans = events(body, content_type)
    assert family(target, content_type, spans) == who
    assert "".join(map(text, spans)) == said
    assert Counter(map(meaning, spans)) == counts


@pytest.mark.parametrize("name", sorted(p.relative_to(CAPTURES).as_posix()[:-4] for p in CAPTURES.glob("*/*.bin")))
def test_the_end_of_every_capture(name: str) -> None:
    """All whole streams end with their protocol's end and have it nowhere else; what is no stream has none."""
    _, content_type, body = capture(name)
    spans = events(body, content_type)
    expected = [len(spans) - 1] if spans and name != f"{MLX}/disconnect_mid_stream" else []
    assert [at for at, span in enumerate(spans) if is_end(span)] == expected
    sought = ProtocolEnd(content_type)
    for at in range(len(body)):
        assert not sought.seen
        sought.feed(body[at : at + 1])
    assert sought.seen == bool(expected)
    assert sought.events == sum(span.kind is Kind.EVENT for span in spans)
    assert sought.begun == bool(sought.events)


# ---------------------------------------------------------------- the words of each family

CHAT: dict[str, Any] = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "usage": None}


def chat(delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {**CHAT, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def candidate(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": list(parts), "role": "model"}, **more}]}


COUNTS = {"prompt_tokens": 3000, "completion_tokens": 5, "total_tokens": 3005}

WORDS: list[tuple[str, bytes | dict[str, Any], Meaning, str]] = [
    ("openai role", chat({"role": "assistant", "content": "", "refusal": None}), ROLE, ""),
    ("openai text", chat({"content": "Hel"}, obfuscation="bZuWwpMP"), TEXT, "Hel"),
    ("openai finish", chat({}, "stop"), FINISH, ""),
    ("openai usage", {**CHAT, "choices": [], "usage": COUNTS}, USAGE, ""),
    ("openai done", b"[DONE]", DONE, ""),
    ("openai refusal", chat({"refusal": "No"}), OTHER, ""),
    ("openai error", {"error": {"message": "m", "type": "server_error", "param": None, "code": None}}, ERROR, ""),
    ("openai two choices", {"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}]}, TEXT, "ab"),
    ("openai half a character", b'{"choices":[{"delta":{"content":"\\ud83c"}}]}', TEXT, "\ud83c"),
    ("openai bad UTF-8", b'{"choices":[{"delta":{"content":"\xc3"}}]}', TEXT, "\ufffd"),
    ("mistral finish", chat({"content": ""}, "stop", usage=COUNTS), FINISH | USAGE, ""),
    ("mistral parts", chat({"content": [{"type": "text", "text": "a"}, {"type": "reference"}]}), TEXT | OTHER, "a"),
    ("mistral only text", chat({"content": [{"type": "text", "text": "a"}]}), TEXT, "a"),
    ("openrouter error", chat({"content": ""}, "error", error={"code": 502, "message": "m"}), ERROR | FINISH, ""),
    ("groq first", chat({"role": "assistant", "content": ""}, x_groq={"id": "req_1"}), ROLE, ""),
    ("groq last", chat({}, "stop", x_groq={"id": "req_1", "usage": COUNTS}), FINISH | USAGE, ""),
    ("azure filter", {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}, OTHER, ""),
    ("azure without delta", {"choices": [{"index": 0, "finish_reason": None}]}, OTHER, ""),
    ("null delta", chat(None), OTHER, ""),
    ("null tool calls", chat({"content": "a", "tool_calls": None}), TEXT, "a"),
    ("vllm error", {"object": "error", "message": "m", "type": "BadRequestError", "code": 400}, ERROR, ""),
    ("mlx text", chat({"role": "assistant", "content": "5"}), ROLE | TEXT, "5"),
    ("mlx reasoning", chat({"role": "assistant", "reasoning": "hm"}), ROLE | OTHER, ""),
    ("mlx error", {"error": "not found"}, ERROR, ""),
    ("text completion", {"choices": [{"text": " time", "finish_reason": None}]}, TEXT, " time"),
    ("responses role", {"type": "response.output_item.added", "item": {"role": "assistant"}}, ROLE, ""),
    ("responses other item", {"type": "response.output_item.added", "item": {"type": "function_call"}}, OTHER, ""),
    ("responses created", {"type": "response.created", "response": {"usage": None}}, OTHER, ""),
    ("responses text", {"type": "response.output_text.delta", "delta": "Hel", "sequence_number": 4}, TEXT, "Hel"),
    ("responses whole text", {"type": "response.output_text.done", "text": "Hello"}, OTHER, ""),
    ("responses arguments", {"type": "response.function_call_arguments.delta", "delta": "{"}, OTHER, ""),
    ("responses completed", {"type": "response.completed", "response": {"usage": {}}}, FINISH | USAGE | DONE, ""),
    ("responses incomplete", {"type": "response.incomplete", "response": {}}, FINISH | DONE, ""),
    ("responses failed", {"type": "response.failed", "response": {"usage": None}}, ERROR | DONE, ""),
    ("responses error", {"type": "error", "code": None, "message": "m", "sequence_number": 3}, ERROR, ""),
    ("responses keepalive", {"type": "keepalive", "sequence_number": 3}, PING, ""),
    ("anthropic start", {"type": "message_start", "message": {"role": "assistant", "usage": {}}}, ROLE | USAGE, ""),
    ("anthropic block", {"type": "content_block_start", "content_block": {"type": "text", "text": ""}}, OTHER, ""),
    ("anthropic begun", {"type": "content_block_start", "content_block": {"type": "text", "text": "a"}}, TEXT, "a"),
    ("anthropic text", {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "He"}}, TEXT, "He"),
    ("anthropic thought", {"type": "content_block_delta", "delta": {"thinking": "hm"}}, OTHER, ""),
    ("anthropic input", {"type": "content_block_delta", "delta": {"partial_json": "{"}}, OTHER, ""),
    ("anthropic finish", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, FINISH, ""),
    ("anthropic done", b'{"type": "message_stop"     }', DONE, ""),
    ("anthropic ping", {"type": "ping"}, PING, ""),
    ("anthropic error", {"type": "error", "error": {"type": "overloaded_error", "message": "m"}}, ERROR, ""),
    ("ollama chat", {"message": {"role": "assistant", "content": "a"}, "done": False}, ROLE | TEXT, "a"),
    ("ollama generate", {"response": "a", "done": False}, TEXT, "a"),
    ("ollama thought", {"message": {"content": "", "thinking": "hm"}, "done": False}, OTHER, ""),
    ("ollama tool", {"message": {"content": "", "tool_calls": [{}]}, "done": False}, OTHER, ""),
    ("ollama generate thought", {"response": "", "thinking": "hm", "done": False}, OTHER, ""),
    ("ollama last", {"response": "", "done": True, "eval_count": 9}, FINISH | USAGE | DONE, ""),
    ("ollama loaded", {"response": "", "done": True, "done_reason": "load"}, FINISH | DONE, ""),
    ("llama text", {"index": 0, "content": "a", "stop": False, "tokens_evaluated": 4}, TEXT, "a"),
    ("llama last", {"content": "", "stop": True, "tokens_evaluated": 4}, FINISH | USAGE | DONE, ""),
    ("gemini text", candidate({"text": "a"}, {"text": "b"}), ROLE | TEXT, "ab"),
    ("gemini thought", candidate({"text": "hm", "thought": True}, {"text": "a"}), ROLE | TEXT | OTHER, "a"),
    ("gemini call", candidate({"functionCall": {"name": "f"}}), ROLE | OTHER, ""),
    (
        "gemini last",
        {**candidate({"text": "a"}, finishReason="STOP"), "usageMetadata": {}},
        ROLE | TEXT | FINISH | USAGE,
        "a",
    ),
    ("gemini without parts", {"candidates": [{"content": {}, "finishReason": "SAFETY"}]}, FINISH, ""),
    ("gemini counts", {"usageMetadata": {"totalTokenCount": 3}}, USAGE, ""),
    ("gemini blocked", {"promptFeedback": {"blockReason": "SAFETY"}}, OTHER, ""),
]


@pytest.mark.parametrize(("data", "means", "said"), [row[1:] for row in WORDS], ids=[row[0] for row in WORDS])
def test_words(data: bytes | dict[str, Any], means: Meaning, said: str) -> None:
    assert meaning(event(data)) == means
    assert text(event(data)) == said
    assert is_end(event(data)) == bool(means & DONE)


@pytest.mark.parametrize(
    ("name", "data", "means"),
    [
        (b"error", b"Internal Server Error", ERROR),
        (b"error", b'{"error":{"message":"m"}}', ERROR),
        (b"ping", b"", PING),
        (b"ping", b"2026-11-30", PING),
        (b"vendor_x", b"not JSON", OTHER),
        (b"", b"", OTHER),
        (b"", b"null", OTHER),
        (b"", b"[1]", OTHER),
    ],
)
def test_names_say_what_the_data_do_not(name: bytes, data: bytes, means: Meaning) -> None:
    assert meaning(event(data, name)) == means


def test_what_no_client_gets_has_no_meaning_of_its_own() -> None:
    body = b": ka 1/2\n\nretry: 5\n\n\ndata: [DONE]"
    spans = events(body, SSE)
    assert [meaning(span) for span in spans] == [PING, OTHER, OTHER, OTHER]
    unfinished = Event(Kind.TAIL, 0, 9, data=b'{"choices":[{"delta":{"content":"a"}}]}', comments=(b"",))
    assert (meaning(unfinished), text(unfinished)) == (OTHER, "")


# ---------------------------------------------------------------- the end is never found by substring

ENDS = ("[DONE]", "message_stop", "response.completed", '"done":true', '{"type":"message_stop"}', "data: [DONE]\n\n")


@pytest.mark.parametrize("said", ENDS)
def test_text_that_speaks_of_an_end_is_none(said: str) -> None:
    for data in (
        chat({"content": said}),
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": said}},
        {"type": "response.output_text.delta", "delta": said},
        {"response": said, "done": False},
        {"content": said, "stop": False},
        candidate({"text": said}),
    ):
        assert text(event(data)) == said
        assert not is_end(event(data))


@pytest.mark.parametrize(
    "data",
    [
        b"[DONE] ",
        b" [DONE]",
        b"[done]",
        b'"[DONE]"',
        b"[DONE]\n[DONE]",
        b'{"done":"true"}',
        b'{"done":1}',
        b'{"message":{"done":true}}',
        b'{"type":["message_stop"]}',
        b'{"response":{"type":"response.completed"}}',
        b'{"stop":true}',
        b'{"error":"m"}',
        b"message_stop",
        b"",
    ],
)
def test_near_misses_are_no_end(data: bytes) -> None:
    assert not is_end(event(data))
    assert not is_end(event(data, b"message_stop"))


# ---------------------------------------------------------------- garbage

KEYS = ["choices", "delta", "content", "text", "type", "error", "done", "stop", "message", "usage", "response"]
KEYS += ["candidates", "parts", "usageMetadata", "finishReason", "finish_reason", "x_groq", "role", "timings", "item"]
KEYS += ["system_fingerprint", "content_block", "object", "prompt_progress"]
STRINGS = ["", "a", "error", "message_delta", "response.completed", "response.output_item.added", "keepalive", "\ud83c"]
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(STRINGS)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(values.map(lambda value: json.dumps(value).encode()) | st.binary(), st.sampled_from([b"", b"ping", b"error"]))
@example(b'{"choices":[{"delta":{"content":[1,null]}},7,null]}', b"")
@example(b'{"candidates":[7,{"content":[]},{"content":{"parts":[7]}}]}', b"")
@example(b'{"error":' * 5000, b"")
def test_no_data_make_it_raise(data: bytes, name: bytes) -> None:
    given_event = event(data, name)
    assert meaning(given_event)
    assert (TEXT in meaning(given_event)) == bool(text(given_event))
    assert is_end(given_event) == (DONE in meaning(given_event))
    assert family(data, data, [given_event])


def test_dig() -> None:
    assert dig({"a": {"b": 1}}, "a", "b") == 1
    assert dig({"a": {"b": 1}}, "a", "c") is None
    assert dig({"a": [1]}, "a", "b") is None


# ---------------------------------------------------------------- whose stream it is


@pytest.mark.parametrize(
    ("target", "content_type", "body", "who"),
    [
        # The events outweigh the target.
        (b"/v1/chat/completions", SSE, b'data: {"type":"message_start"}\n\n', "anthropic"),
        (b"/x", SSE, b'data: {"type":"response.created"}\n\n', "responses"),
        (b"/x", SSE, b'data: {"candidates":[]}\r\n\r\n', "gemini"),
        (b"/v1/messages", NDJSON, b'{"response":"a","done":false}\n', "ollama"),
        (b"/x", SSE, b'data: {"content":"a","stop":false}\n\n', "llama"),
        (b"/api/chat", SSE, b'data: {"choices":[]}\n\n', "openai"),
        # Who speaks OpenAI's dialect is asked closer.
        (b"/x", SSE, b'data: {"choices":[],"system_fingerprint":"fp_44709d6fcb"}\n\n', "openai"),
        (b"/x", SSE, b'data: {"choices":[],"system_fingerprint":"fp_ollama"}\n\n', "ollama"),
        (b"/x", SSE, b'data: {"choices":[],"system_fingerprint":"b1-0c1e570"}\n\n', "llama"),
        (b"/x", SSE, b'data: {"choices":[]}\n\ndata: {"choices":[],"timings":{}}\n\n', "llama"),
        (b"/x", SSE, b'data: {"choices":[],"system_fingerprint":"0.32.2-0.32.4-macOS-15.1-arm64"}\n\n', "mlx"),
        # Comments alone, as when the client left during prefill.
        (b"/v1/chat/completions", SSE, b": keepalive 19/33\n\n", "mlx"),
        (b"/v1/chat/completions", SSE, b":\n\n:\n\n", "llama"),
        (b"/v1/chat/completions", SSE, b": keepalive\n\n", "openai"),
        # No event that tells: the target, then the content type.
        (b"/v1/chat/completions", SSE, b'data: {"error":{"message":"m"}}\n\n', "openai"),
        (b"/api/chat", NDJSON, b'{"error":"m"}\n', "ollama"),
        (b"/api/generate?x=/v1/messages", b"application/json", b"{}", "ollama"),
        (b"/mounted/v1/messages?beta=true", b"application/json", b"{}", "anthropic"),
        (b"/v1/responses", b"application/json", b"{}", "responses"),
        (b"/v1beta/models/g:streamGenerateContent?alt=sse", SSE, b"", "gemini"),
        (b"/v1beta/models/g:generateContent", b"application/json", b"{}", "gemini"),
        (b"/completion", b"application/json", b"{}", "llama"),
        (b"/infill", b"application/json", b"{}", "llama"),
        (b"/v1/completions", b"application/json", b"{}", "openai"),
        (b"/x", NDJSON, b"", "ollama"),
        (b"/x", None, b"", "openai"),
    ],
)
def test_family(target: bytes, content_type: bytes | None, body: bytes, who: str) -> None:
    assert family(target, content_type, events(body, content_type)) == who


# ---------------------------------------------------------------- the end, sought in a body as it comes

HELLO_STREAM = b'data: {"choices":[{"delta":{"content":"[DONE]"}}]}\n\n'


def packed(coding: bytes | None, *pieces: bytes) -> list[bytes]:
    """The pieces in that coding, each flushed as a streaming server does it."""
    if coding in (None, b"", b"identity"):
        return list(pieces)
    packer = zlib.compressobj(wbits=15 if coding == b"Deflate" else 31)
    return [packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]


def gzipped(*pieces: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return b"".join(map(packer.compress, pieces)) + packer.flush()


def sought(content_type: bytes | None, coding: bytes | None, *pieces: bytes) -> bool:
    end = ProtocolEnd(content_type, coding)
    for piece in pieces:
        end.feed(piece)
    return end.seen


@pytest.mark.parametrize(
    ("content_type", "last"),
    [
        (SSE, b"data: [DONE]\n\n"),
        (SSE, b"data:[DONE]\r\n\r"),
        (SSE, b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
        (SSE, b'data: {"type":"response.completed",\ndata: "response":{}}\n\n'),
        (NDJSON, b'{"done":true}\n'),
    ],
)
@pytest.mark.parametrize("coding", [None, b"", b"identity", b"gzip", b" X-GZIP ", b"Deflate"])
def test_the_end_is_seen_with_its_event_and_stays_seen(content_type: bytes, last: bytes, coding: bytes | None) -> None:
    first = HELLO_STREAM if content_type == SSE else b'{"response":"\\"done\\":true","done":false}\n'
    before, after = packed(coding, first, last)
    end = ProtocolEnd(content_type, coding)
    for at in range(len(before)):
        end.feed(before[at : at + 1])
        assert not end.seen
    for at in range(len(after)):
        # Compressed, the whole event may be there before the last byte.
        assert not end.seen or after != last
        end.feed(after[at : at + 1])
    assert end.seen
    end.feed(b"more\n\n")
    assert end.seen


@pytest.mark.parametrize("coding", [None, b"gzip"])
def test_a_ping_is_an_event_but_no_beginning(coding: bytes | None) -> None:
    comment, ping, text = packed(coding, b": keepalive 1/2\n\n", b"event: ping\ndata: {}\n\n", HELLO_STREAM)
    end = ProtocolEnd(SSE, coding)
    end.feed(comment)
    assert (end.events, end.begun) == (0, False)
    end.feed(ping)
    assert (end.events, end.begun) == (1, False)
    end.feed(text)
    assert end.events > 1
    assert end.begun


@pytest.mark.parametrize(
    ("content_type", "coding"),
    [(None, None), (b"application/json", None), (SSE, b"br"), (SSE, b"zstd"), (SSE, b"gzip, gzip"), (SSE, b"gzip")],
)
def test_the_end_of_what_cannot_be_read_is_never_seen(content_type: bytes | None, coding: bytes | None) -> None:
    assert not sought(content_type, coding, b"data: [DONE]\n\n", b"data: [DONE]\n\n")


def test_what_follows_a_gzip_stream_is_not_read() -> None:
    assert not sought(SSE, b"gzip", gzipped(HELLO_STREAM), gzipped(b"data: [DONE]\n\n"))


def test_an_end_far_inside_one_compressed_read_is_seen() -> None:
    assert sought(SSE, b"gzip", gzipped(HELLO_STREAM * 5_000 + b"data: [DONE]\n\n"))


@pytest.mark.parametrize(
    ("filler", "seen"),
    [
        (b": " + b"x" * 900_000 + b"\n\n", True),
        (b": " + b"x" * 1_200_000 + b"\n\n", False),
        (b"\n" * 1_000, True),
        (b"\n" * 100_000, False),
    ],
)
def test_a_compressed_body_is_read_within_bounds(monkeypatch: pytest.MonkeyPatch, filler: bytes, seen: bool) -> None:
    monkeypatch.setattr(ending, "MAX_DECODED", 1_000_000)
    assert sought(SSE, b"gzip", gzipped(filler, b"data: [DONE]\n\n")) == seen


def test_an_event_beyond_the_bounds_is_given_up_without_coding_too() -> None:
    assert not sought(SSE, None, b": " + b"x" * ending.MAX_EVENT, b"\n\ndata: [DONE]\n\n")
    assert sought(SSE, None, b": " + b"x" * (ending.MAX_EVENT - 10) + b"\n\n", b"\n" * 1000, b"data: [DONE]\n\n")


@given(st.binary(), st.sampled_from([SSE, NDJSON, None]), st.sampled_from([None, b"gzip", b"deflate", b"br"]))
def test_no_body_makes_it_raise(body: bytes, content_type: bytes | None, coding: bytes | None) -> None:
    assert not sought(content_type, coding, body, body)
