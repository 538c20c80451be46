"""The streams from the field that break clients (C1 to C31): each can be made from a plain recording by a fault.

C8, C16, C17 and C27 need other JSON, not another wire: they are recordings of their own.
"""

from collections import Counter
from dataclasses import dataclass

import pytest

from mockllm.core.cassette import loads
from mockllm.core.dialects.errors import status_error
from mockllm.core.exchange import Exchange, Request
from mockllm.core.faults.bend import bend
from mockllm.core.faults.catalogue import CATALOGUE
from mockllm.core.faults.firing import fires
from mockllm.core.faults.keepalives import MOST
from mockllm.core.faults.spec import parse
from mockllm.core.response import End, Response, Then
from mockllm.core.tape import dump
from tests.captures import Capture, captures
from tests.core.faults.making import NDJSON, from_capture, response, writes

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
E1 = b'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'
E2 = b'data: {"choices":[{"index":0,"delta":{"content":"lo"}}]}\n\n'
E3 = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
U = b'data: {"choices":[],"usage":{"total_tokens":9}}\n\n'
DN = b"data: [DONE]\n\n"
LAST = b"0\r\n\r\n"
A1 = b'event: message_start\ndata: {"type":"message_start","message":{"role":"assistant"}}\n\n'
A2 = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi"}}\n\n'
A3 = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
L1, L2 = b'{"response":"a","done":false}\n', b'{"response":"","done":true}\n'
JSON = b'{"choices":[]}'


def c(data: bytes) -> bytes:
    """A chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def head(*lines: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


CHAT = response("chunked", (100_000, E1), (200_000, E2), (300_000, [E3, U, DN]))
ANTHROPIC = response("chunked", (100_000, A1), (200_000, A2), (300_000, A3))
LINES = response("chunked", (100_000, L1), (200_000, L2), media=NDJSON)
LINES_HEAD = HEAD.replace(b"text/event-stream", b"application/x-ndjson")
PLAIN = response("length", (800_000, JSON), head_at=800_000, media="application/json")
WHOLE = [(1000, HEAD), (100_000, c(E1)), (200_000, c(E2)), (300_000, c(E3) + c(U) + c(DN) + LAST)]


@dataclass(frozen=True)
class Case:
    """A recording, a spec, and all that is then written when (µs), and how it ends."""

    name: str
    spec: str
    writes: list[tuple[int, bytes]]
    end: End = End.COMPLETE
    then: Then = Then.OPEN
    recorded: Response = CHAT

    def __str__(self) -> str:
        return self.name


def spelled(change: tuple[bytes, bytes]) -> list[tuple[int, bytes]]:
    """The whole recording with other bytes in its events."""
    e1, e2, e3, u, dn = (event.replace(*change) for event in (E1, E2, E3, U, DN))
    return [(1000, HEAD), (100_000, c(e1)), (200_000, c(e2)), (300_000, c(e3) + c(u) + c(dn) + LAST)]


ROUTER = b": OPENROUTER PROCESSING\n\n"
ERROR = b'data: {"error":{"message":"Bad gateway","type":"server_error","param":null,"code":502}}\n\n'
OVERLOADED = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'

CASES = [
    Case(
        "C1 comments before and between events",
        "keepalive:every=60ms,before=1,style=openrouter",
        [
            *[(1000, HEAD), (50_500, c(ROUTER)), (100_000, c(E1)), (160_000, c(ROUTER))],
            *[(200_000, c(E2)), (260_000, c(ROUTER)), WHOLE[3]],
        ],
    ),
    Case(
        "C1 a comment before the first event",
        "comment:text=keepalive 19/33,at=50ms",
        [(1000, HEAD), (50_000, c(b": keepalive 19/33\n\n")), *WHOLE[1:]],
    ),
    Case(
        "C2 retry between events",
        "retry:ms=3000,at=1ev",
        [(1000, HEAD), (100_000, c(E1) + c(b"retry: 3000\n\n")), *WHOLE[2:]],
    ),
    Case("C2 empty data", "empty:at=1ev", [(1000, HEAD), (100_000, c(E1) + c(b"data:\n\n")), *WHOLE[2:]]),
    Case("C3 a clean end too early", "cut:at=1ev,end=complete", [(1000, HEAD), (100_000, c(E1) + LAST)]),
    Case("C4 FIN without the last chunk", "cut:at=1ev", WHOLE[:2], End.FIN),
    Case("C5 silence with the socket open", "cut:at=1ev,end=hang", WHOLE[:2], End.HANG),
    Case("C7 all events in one write", "join", [(1000, HEAD), (300_000, c(E1 + E2 + E3 + U + DN) + LAST)]),
    Case("C10 CR LF", "crlf", spelled((b"\n", b"\r\n"))),
    Case("C10 CR", "cr", spelled((b"\n", b"\r"))),
    Case("C11 no space after data:", "nospace", spelled((b"data: ", b"data:"))),
    Case("C12 an error in the 200", "error:code=502", [(1000, HEAD), (100_000, c(E1) + c(ERROR) + LAST)]),
    Case(
        "C13 Anthropic overloaded in mid-stream",
        "error:at=2ev",
        [(1000, HEAD), (100_000, c(A1)), (200_000, c(A2) + c(OVERLOADED) + LAST)],
        then=Then.FIN,
        recorded=ANTHROPIC,
    ),
    Case("C15 no [DONE]", "drop:event=done", [*WHOLE[:3], (300_000, c(E3) + c(U) + LAST)]),
    Case("C18 the finish twice", "dup:event=finish", [*WHOLE[:3], (300_000, c(E3) + c(E3) + c(U) + c(DN) + LAST)]),
    Case(
        "C19 an unknown event without JSON",
        "event:name=vendor_x,data=not json,at=1ev",
        [
            *[(1000, HEAD), (100_000, c(A1) + c(b"event: vendor_x\ndata: not json\n\n"))],
            *[(200_000, c(A2)), (300_000, c(A3) + LAST)],
        ],
        recorded=ANTHROPIC,
    ),
    Case("C20 3 s before the status line", "ttfb:add=3s", [(at + 3_000_000, data) for at, data in WHOLE]),
    Case(
        "C20 the head at once and 3 s before the first byte",
        "ttft:add=3s",
        [(1000, HEAD), *((at + 3_000_000, data) for at, data in WHOLE[1:])],
    ),
    Case(
        "C22 no Content-Type",
        "header:drop=content-type",
        [(1000, HEAD.replace(b"Content-Type: text/event-stream\r\n", b"")), *WHOLE[1:]],
    ),
    Case(
        "C22 text/plain",
        "header:name=Content-Type,value=text/plain",
        [(1000, HEAD.replace(b"text/event-stream", b"text/plain")), *WHOLE[1:]],
    ),
    Case(
        "C22 another charset",
        "header:name=Content-Type,value=text/event-stream; charset=iso-8859-1",
        [(1000, HEAD.replace(b"text/event-stream", b"text/event-stream; charset=iso-8859-1")), *WHOLE[1:]],
    ),
    Case(
        "C23 an error as JSON with 200",
        "json200:style=ollama",
        [
            (
                1000,
                head(b"Content-Type: application/json; charset=utf-8", b"Content-Length: 33")
                + b'{"error":"Internal server error"}',
            )
        ],
    ),
    Case(
        "C24 NDJSON whose last line has no LF",
        "tail:strip=1",
        [(1000, LINES_HEAD), (100_000, c(L1)), (200_000, c(L2[:-1]) + LAST)],
        recorded=LINES,
    ),
    Case(
        "C24 NDJSON that is never done",
        "drop:event=done",
        [(1000, LINES_HEAD), (100_000, c(L1)), (200_000, LAST)],
        recorded=LINES,
    ),
    Case("C25 a buffering proxy", "buffer", [(300_000, HEAD + c(E1) + c(E2) + c(E3) + c(U) + c(DN) + LAST)]),
    Case(
        "C26 newlines slowly before a body of JSON",
        "keepalive:style=blank,before=3",
        [
            (0, head(b"Content-Type: application/json", b"Content-Length: 17")),
            *[(200_000, b"\n"), (400_000, b"\n"), (600_000, b"\n"), (800_000, JSON)],
        ],
        recorded=PLAIN,
    ),
    Case(
        "C26 200 with 0 bytes",
        "cut:at=0b,end=complete",
        [(800_000, head(b"Content-Type: application/json", b"Content-Length: 0"))],
        recorded=PLAIN,
    ),
    Case("C29 a byte order mark", "bom", [(1000, HEAD), (100_000, c(b"\xef\xbb\xbf" + E1)), *WHOLE[2:]]),
    Case("C30 a reset before any byte", "reset", [], End.RST),
    Case("C30 a close before any byte", "refuse", [], End.FIN),
    Case("C30 an idle connection closed", "idle-close:after=1s", WHOLE, then=Then.FIN),
]


def applied(spec: str, recorded: Response) -> Response:
    bent = bend(recorded, [step.fault for step in parse(spec, CATALOGUE)])
    assert set(bent.idle) == {None}, bent.idle
    return bent.response


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_stimulus_of_the_case(case: Case) -> None:
    bent = applied(case.spec, case.recorded)
    assert writes(bent) == case.writes
    assert (bent.end, bent.then) == (case.end, case.then)


def test_c6_heartbeats_for_ever_after_a_finish_without_done() -> None:
    spec = "drop:event=done+drop:event=usage+keepalive:every=500ms,text=ka,hold=forever"
    bent = applied(spec, CHAT)
    sent = writes(bent)
    assert sent[:4] == [*WHOLE[:3], (300_000, c(E3))]
    assert sent[4:7] == [(at, c(b": ka\n\n")) for at in (800_000, 1_300_000, 1_800_000)]
    assert len(sent) == 4 + MOST
    assert bent.end is End.HANG


def test_c7_each_event_in_two_writes_5_ms_apart() -> None:
    sent = writes(applied("split:inside=event,gap=5ms", CHAT))
    assert sent[0] == (1000, HEAD)
    middle = int(sent[1][1].partition(b"\r\n")[0], 16)
    assert 0 < middle < len(E1) - 2
    assert sent[1:3] == [(100_000, c(E1[:middle])), (105_000, c(E1[middle:]))]
    assert [at for at, _ in sent[5:]] == [300_000, 305_000, 310_000, 315_000], "three events that came in one read"


def test_c9_finish_usage_and_done_in_writes_of_their_own() -> None:
    sent = writes(applied("rate:events=100", CHAT))
    assert [data.removesuffix(LAST) for _, data in sent[-3:]] == [c(E3), c(U), c(DN)]
    assert len({at for at, _ in sent}) == 6


def test_c14_429_then_529_then_the_stream() -> None:
    spec = "status:code=429,retry-after=1,times=1,style=anthropic+status:code=529,skip=1,times=1,style=anthropic"
    steps, counters = parse(spec, CATALOGUE), Counter[tuple[str, int]]()
    answers = []
    for _ in range(3):
        fired = [
            step.fault for place, step in enumerate(steps) if fires(spec, place, step.when, "/v1/messages", counters)
        ]
        answers.append(bend(ANTHROPIC, fired).response)
    media, limited = status_error("anthropic", 429)
    assert writes(answers[0]) == [
        (
            1000,
            head(
                *[b"Content-Type: " + media, b"Content-Length: %d" % len(limited), b"Retry-After: 1"],
                status=b"429 Too Many Requests",
            )
            + limited,
        )
    ]
    assert answers[1].wire.startswith(b"HTTP/1.1 529 Overloaded\r\n")
    assert b'"type":"overloaded_error"' in answers[1].wire
    assert b"Retry-After" not in answers[1].wire
    assert answers[2] is ANTHROPIC


def test_c21_a_cut_and_then_the_whole() -> None:
    spec = "cut:at=1ev,times=1"
    [step], counters = parse(spec, CATALOGUE), Counter[tuple[str, int]]()
    assert [fires(spec, 0, step.when, "/v1/chat/completions", counters) for _ in range(3)] == [True, False, False]
    assert writes(step.fault(CHAT)) == WHOLE[:2]


def test_c24_ndjson_in_pieces_of_seven_bytes() -> None:
    bent = applied("tail:strip=1+split:bytes=7,gap=5ms", LINES)
    text = L1 + L2[:-1]
    assert writes(bent)[1] == (100_000, c(text[:7]))
    assert writes(bent)[2] == (105_000, c(text[7:14]))
    assert bent.end is End.COMPLETE


def test_c28_one_json_over_two_lines() -> None:
    bent = applied("multiline", CHAT)
    assert writes(bent)[2] == (200_000, c(E2.replace(b'"delta"', b'\ndata: "delta"')))


def test_c31_a_proxys_page() -> None:
    bent = applied("html:code=502", CHAT)
    [(at, sent)] = writes(bent)
    assert at == 1000
    assert sent.startswith(b"HTTP/1.1 502 Bad Gateway\r\nServer: nginx\r\nContent-Type: text/html\r\n")
    assert sent.endswith(b"</html>\r\n")


# ---------------------------------------------------------------- all of them, on all that real servers sent


@pytest.mark.parametrize("capture", captures(), ids=str)
def test_whatever_a_fault_makes_a_cassette_holds(capture: Capture) -> None:
    recorded = from_capture(capture)
    request = Request(recorded.method, recorded.target, (), b"{}")
    for fault in CATALOGUE.values():
        for spec in (fault.example, f"gzip+{fault.example}"):
            bent = bend(recorded, [step.fault for step in parse(spec, CATALOGUE)]).response
            [read] = loads(dump(Exchange(request, bent)))
            assert writes(read.response) == writes(bent), spec
            ending = (bent.end, bent.end_at, bent.then)
            assert (read.response.end, read.response.end_at, read.response.then) == ending, spec
