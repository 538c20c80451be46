"""A masked tape is a cassette like any other, holds no credential, and lags only by what may become one."""

import gzip
import json
import zlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core import maskedtape
from mockllm.core.cassette import loads
from mockllm.core.covering import cover
from mockllm.core.exchange import Exchange, Request
from mockllm.core.http1 import Tracker, scan
from mockllm.core.maskedtape import MaskedTape
from mockllm.core.redact import KNOWN
from mockllm.core.redaction import Redaction
from mockllm.core.response import End, Response, Segment, Then
from mockllm.core.secrets import Secrets
from mockllm.core.tape import Tape
from tests.core.nasties import CHUNKED, CLOSE, LAST, NASTIES, OK, Nasty, answers, chunk, counted, cuttings
from tests.core.roundtrip import META, at_times, cut, singly, taped

KEY = b"sk-CANARY-0123456789"
STARS = b"*" * len(KEY)
ASKED = Request("POST", b"/v1/chat/completions", ((b"Authorization", b"Bearer " + KEY),), b'{"stream":true}')
REQUEST, SECRETS = Redaction().split(ASKED)
Reads = list[tuple[int, bytes]]


class Written:
    """What a writer of a masked tape has on disk, after each read and in the end."""

    def __init__(self, reads: Iterable[tuple[int, bytes]], method: str = "POST", secrets: Secrets = SECRETS) -> None:
        self.tape = MaskedTape(method)
        self.tape.begin(replace(REQUEST, method=method), META, secrets)
        self.text = b""
        self.after: list[bytes] = []
        for at, data in reads:
            self.text += self.tape.read(at, data)
            self.after.append(self.text)

    def end(self, end: End | None = None, late: Request | None = None, **meta: Any) -> Exchange:
        """The exchange of all lines."""
        tracker = self.tape.tracker
        how = end or (End.COMPLETE if tracker.eof() else End.FIN)
        last = self.tape.end(
            how, self.tape.at + 5, Then.FIN if how is End.COMPLETE else Then.OPEN, self.tape.at + 9, meta, late
        )
        self.text = last if self.tape.anew else self.text + last
        [exchange] = loads(self.text)
        return exchange


def whole(reads: Iterable[tuple[int, bytes]], **more: Any) -> Exchange:
    return Written(reads, **more).end()


# --- without a credential nothing changes


@given(answers().flatmap(lambda answer: st.tuples(st.just(answer[0]), cuttings(answer[1]))), st.booleans())
def test_an_answer_without_a_credential_is_exact(drawn, secret):
    method, reads = drawn
    written = Written(reads, method, SECRETS if secret else Secrets())
    exchange = written.end()
    assert list(exchange.response.reads()) == reads
    assert not written.tape.anew


@pytest.mark.parametrize("nasty", [nasty for nasty in NASTIES if b"et-Cookie" not in nasty.wire], ids=str)
@pytest.mark.parametrize("secret", [True, False])
def test_an_answer_in_whole_reads_is_taped_as_without_masking(nasty: Nasty, secret: bool) -> None:
    reads = at_times(nasty.reads)
    plain = taped(nasty.method, reads, end_after=5)
    written = Written(reads, nasty.method, SECRETS if secret else Secrets())
    written.end()
    body = plain.text.split(b"\n", 1)[1].rsplit(b"\n", 2)[0]
    if nasty.name not in ("gzip", "surplus-in-the-read"):  # the one is decoded at its end, the other ends with an s
        assert written.text.split(b"\n", 1)[1].rsplit(b"\n", 2)[0] == body
    assert [data for _, data in loads(written.text)[0].response.reads()] == list(nasty.reads)


def test_reads_are_kept_apart_and_time_never_goes_back():
    reads = [(-5, counted(4)), (0, b"a"), (0, b"b"), (0, b"c"), (9, b"d")]
    for secrets in (Secrets(), SECRETS):
        exchange = Written(reads, secrets=secrets).end()
        assert [at for at, _ in exchange.response.reads()] == [0, 1, 2, 3, 9]


def test_what_a_recorder_asks_of_it():
    tape = MaskedTape("POST")
    assert not tape.tracker.eof()
    tape.begin(REQUEST, META, SECRETS)
    assert tape.read(5, counted(21) + KEY).startswith(Tape("POST").begin(REQUEST, META))
    assert (tape.at, tape.body, tape.tracker.done) == (5, KEY, False)
    assert tape.tracker.head is not None
    tape.read(7, b"s")
    assert (tape.at, tape.body, tape.tracker.done) == (7, b"s", True), "though the tape is behind"
    tape.end(End.COMPLETE, 8, Then.OPEN, 0, {})
    assert tape.at == 8


# --- by value


FRAMINGS = {
    "close": lambda body: CLOSE + body,
    "length": lambda body: counted(len(body)) + body,
    "chunked": lambda body: CHUNKED + b"".join(chunk(body[at : at + 7]) for at in range(0, len(body), 7)) + LAST,
    "too short a length": lambda body: counted(len(body) // 2) + body,
    "bad chunk": lambda body: CHUNKED + b"%x\r\n" % (len(body) // 2) + body + b"\r\n",
    "no head": lambda body: b"\x00" + body,
    "trailer": lambda body: CHUNKED + LAST[:-2] + b"X: " + body.replace(b"\n", b"") + b"\r\n\r\n",
    "extension": lambda body: CHUNKED + b"1;" + body.replace(b"\n", b"") + b"\r\na\r\n" + LAST,
    "head": lambda body: OK + b"X-Echo: " + body.replace(b"\n", b"") + b"\r\nContent-Length: 0\r\n\r\n",
    "reason": lambda body: b"HTTP/1.1 401 no " + body.replace(b"\n", b"") + b"\r\nContent-Length: 0\r\n\r\n",
    "interim": lambda body: b"HTTP/1.1 103 x\r\nA: " + body.replace(b"\n", b"") + b"\r\n\r\n" + counted(0),
}
BODY = b'data: {"key":"' + KEY + b'"}\n\xff'


@pytest.mark.parametrize("name", FRAMINGS)
def test_t9_a_secret_is_masked_whatever_the_framing_and_the_cut(name: str) -> None:
    wire = FRAMINGS[name](BODY)
    expected = FRAMINGS[name](BODY.replace(KEY, STARS))
    for place in range(1, len(wire)):
        reads = at_times(cut(wire, place))
        written = Written(reads)
        exchange = written.end()
        assert list(exchange.response.reads()) == at_times(cut(expected, place))
        assert KEY not in b"".join(written.after) + written.text
    reads = at_times(singly(wire))
    assert list(whole(reads).response.reads()) == at_times(singly(expected))


@given(st.data(), st.sampled_from(sorted(FRAMINGS)))
def test_t9_killed_at_any_time_it_left_all_but_a_suffix_and_no_secret(data, name):
    wire = FRAMINGS[name](BODY + b"a" + KEY)
    reads = data.draw(cuttings(wire))
    written = Written(reads)
    came = b""
    for text, (_, read) in zip(written.after, reads, strict=True):
        came += read
        left = loads(text)[0].response.wire if text else b""
        masked = Response((Segment(0, before=came),), End.CLIENT, 0, method="POST")
        assert cover(masked, KNOWN, SECRETS).response.wire.startswith(left) or KEY[:16] in came[-30:]
        assert len(came) - len(left) < len(KEY) + 40
        assert KEY not in text


def test_a_secret_over_chunks_and_reads():
    pieces = [CHUNKED, b"8\r\ndata: sk\r\n", b"a\r\n-CANARY-01\r", b"\n8\r\n23456789\r\n", LAST]
    written = Written(at_times(pieces))
    exchange = written.end()
    assert exchange.response.wire == CHUNKED + chunk(b"data: **") + chunk(b"*" * 10) + chunk(b"*" * 8) + LAST
    assert [data for _, data in exchange.response.reads()] == [
        CHUNKED, b"8\r\ndata: **\r\n", b"a\r\n" + b"*" * 10 + b"\r", b"\n8\r\n" + b"*" * 8 + b"\r\n", LAST
    ]  # fmt: skip
    killed = [loads(text)[0].response.wire for text in written.after]
    assert killed[1] == killed[2] == CHUNKED + b"8\r\ndata: "
    assert killed[3].endswith(b"8\r\n********\r\n")


def test_held_bytes_are_a_line_of_their_own_read():
    written = Written([(1000, CHUNKED), (2000, chunk(b"data: s")), (3000, chunk(b"afe\n\n") + LAST)])
    written.end()
    assert written.text.decode().splitlines()[2:] == [
        r'[1,"data","data: ",{"before":"7\r\n","after":""}]',
        r'[0,"data","s",{"before":"","after":"\r\n"}]',
        r'[1,"data","afe\n\n"]',
        r'[0,"wire","0\r\n\r\n"]',
        '[0.005,"end","complete",{"then":"fin","then_ms":0.004}]',
    ]


def test_an_end_holds_nothing_back():
    for end in (End.FIN, End.RST, End.CLIENT, End.HANG):
        reads = [(0, CHUNKED + b"9\r\ndata: sk-")]
        assert Written(reads).end(end).response.wire == reads[0][1]
        assert Written([(0, CLOSE + b"sk-")]).end(end).response.wire == CLOSE + b"sk-"
        assert Written([(0, OK + b"Set-Coo")]).end(end).response.wire == OK + b"Set-Coo"
        assert Written([(0, OK + b"Set-Cookie: a=b")]).end(end).response.wire == OK + b"Set-Cookie: a=[redacted]"


def test_a_secret_that_the_end_cuts_off_is_masked_from_16_bytes_on():
    for head in (CLOSE, counted(99), CHUNKED + b"63\r\n"):
        assert Written([(0, head + KEY[:16])]).end(End.RST).response.wire == head + STARS[:16]
        assert Written([(0, head + KEY[:15])]).end(End.RST).response.wire == head + KEY[:15]


def test_bytes_that_are_not_utf8_are_masked_before_they_are_coded():
    written = Written([(0, CLOSE + b"\xff" + KEY + b"\xfe")])
    assert written.end().response.wire == CLOSE + b"\xff" + STARS + b"\xfe"
    assert b'"data64"' in written.text


def test_a_secret_that_looks_like_framing_leaves_a_cassette_that_can_be_read():
    """The tape follows what it holds itself: here the masks break the chunks, and the rest of it is wire."""
    zeros = b"0000000000000000"
    _, secrets = Redaction().split(Request("GET", b"/?key=" + zeros))
    wire = CHUNKED + zeros + b"5\r\nhello\r\n" + LAST
    exchange = Written([(0, wire)], secrets=secrets).end(End.FIN)
    assert exchange.response.wire == wire.replace(zeros, b"1" * 16)
    _, secrets = Redaction().split(Request("GET", b"/?key=transfer-encoding"))
    head = CHUNKED.replace(b"Transfer-E", b"transfer-e")
    exchange = Written([(0, head + chunk(b"a")), (1, LAST)], secrets=secrets).end()
    assert exchange.response.wire == (head + chunk(b"a") + LAST).replace(b"transfer-encoding", b"*" * 17)


def test_an_early_answers_request_comes_before_the_end():
    request = replace(REQUEST, early=True)
    tape = MaskedTape("POST")
    tape.begin(replace(request, body=b""), META, SECRETS)
    text = tape.read(0, CLOSE + b"sk-")
    text += tape.end(End.CLIENT, 5, Then.OPEN, 0, {"by": "recorder"}, replace(request, body=b"{}", cut=True))
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line[1] for line in lines[1:]] == ["head", "data", "request", "end"]
    assert loads(text)[0].request == replace(request, body=b"{}", cut=True)


def test_nothing_came_at_all():
    exchange = Written([]).end(End.RST)
    assert (exchange.response.segments, exchange.response.end) == ((), End.RST)


# --- compressed


def gzipped(body: bytes, coding: bytes = b"gzip", compress: Any = gzip.compress) -> tuple[bytes, bytes]:
    """Head and body."""
    data = compress(body)
    return OK + b"Content-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (coding, len(data)), data


SECRET_BODY = b'{"echo":"' + KEY + b'"}' * 5


COMPRESSED = {
    b"gzip": gzip.compress,
    b"X-GZIP": gzip.compress,
    b"deflate": zlib.compress,
    b"identity, deflate": lambda data: zlib.compress(data)[2:-4],
}


@pytest.mark.parametrize("coding", COMPRESSED)
def test_a_hit_in_a_compressed_body_stores_it_decoded(coding):
    head, data = gzipped(SECRET_BODY, coding, COMPRESSED[coding])
    written = Written([(1000, head + data[:9]), (2000, data[9:20]), (3000, data[20:])])
    assert written.text == b"", "it waits for its end"
    exchange = written.end(by="x")
    body = SECRET_BODY.replace(KEY, STARS)
    assert exchange.response.wire == OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    assert exchange.meta == {**META, "decoded": True}
    assert exchange.end_meta == {"by": "x"}
    assert (exchange.response.end, exchange.response.then) == (End.COMPLETE, Then.FIN)
    assert not written.tape.anew
    assert written.tape.unseen is None


def test_a_compressed_stream_in_chunks_is_decoded_read_by_read():
    deflate = zlib.compressobj(wbits=31)
    pieces = [
        deflate.compress(part) + deflate.flush(zlib.Z_SYNC_FLUSH) for part in (b"data: " + KEY[:9], KEY[9:], b"\n\n")
    ]
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\nSet-Cookie: a=b\r\n\r\n")
    reads = [(0, head), *((at, chunk(piece)) for at, piece in enumerate(pieces, 1)), (9, chunk(deflate.flush()) + LAST)]
    response = Written(reads).end().response
    assert [(at, data) for at, data in response.reads()] == [
        (0, CHUNKED.replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=[redacted]\r\n\r\n")),
        (1, chunk(b"data: " + b"*" * 9)),
        (2, chunk(b"*" * 11)),
        (3, chunk(b"\n\n")),
        (9, LAST),
    ]


@pytest.mark.parametrize("cut_at", [30, 70, 120])
def test_a_head_that_came_before_it_was_known_is_written_anew(cut_at):
    head, data = gzipped(SECRET_BODY)
    wire = b"HTTP/1.1 103 Early Hints\r\n\r\n" + head + data
    written = Written([(0, wire[:cut_at]), (5, wire[cut_at:])])
    assert (written.text != b"") is (cut_at < len(wire) - len(data))
    exchange = written.end()
    assert written.tape.anew is (written.after[0] != b"")
    assert scan(exchange.response).body == SECRET_BODY.replace(KEY, STARS)
    assert KEY not in exchange.response.wire


@pytest.mark.parametrize("body", [b"{}", b"", KEY[:15], b"x" * 100_000])
def test_no_hit_in_a_compressed_body_stores_it_as_it_came(body):
    head, data = gzipped(body)
    reads = at_times([head, *cut(data, 5, 9)])
    written = Written(reads)
    exchange = written.end()
    assert list(exchange.response.reads()) == reads
    assert exchange.meta == META


def test_a_compressed_answer_without_a_secret_is_written_as_it_comes():
    head, data = gzipped(SECRET_BODY)
    written = Written([(0, head), (1, data)], secrets=Secrets())
    assert loads(written.text)[0].response.wire == head + data
    assert written.end().response.wire == head + data
    assert written.tape.unseen is None


def test_a_body_that_is_called_compressed_and_is_not_is_masked_as_it_is():
    head = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(SECRET_BODY)
    written = Written([(0, head + SECRET_BODY)])
    assert written.end().response.wire == head + SECRET_BODY.replace(KEY, STARS)
    assert written.tape.unseen == "the compressed body is corrupt"


def test_what_cannot_be_decoded_is_written_as_it_comes_and_said():
    head = OK + b"Content-Encoding: br\r\nContent-Length: 30\r\n\r\n"
    written = Written([(0, head + b"\x8b" + KEY), (1, b"123456789")])
    assert loads(written.text)[0].response.wire == head + b"\x8b" + STARS + b"123456789"
    assert written.tape.unseen == "it is compressed as br"
    assert written.end().response.wire == head + b"\x8b" + STARS + b"123456789"


def test_a_compressed_body_that_was_cut_off_is_searched_as_far_as_it_goes():
    head, data = gzipped(SECRET_BODY + bytes(range(256)) * 9)
    exchange = Written([(0, head + data[:-20])]).end(End.RST)
    assert exchange.meta["decoded"]
    assert exchange.response.end is End.RST
    assert b"CANARY" not in exchange.response.wire
    assert not scan(exchange.response).whole


def test_what_follows_a_compressed_body_is_not_kept_where_that_has_a_secret():
    head, data = gzipped(SECRET_BODY)
    head = head.replace(b"%d" % len(data), b"%d" % (len(data) + 5))
    response = Written([(0, head + data + b"extra")]).end().response
    assert scan(response).body == SECRET_BODY.replace(KEY, STARS)


def test_a_head_request_has_no_body_to_open():
    head, _ = gzipped(SECRET_BODY)
    exchange = Written([(0, head)], "HEAD").end()
    assert exchange.response.wire == head


def test_a_compressed_answer_is_kept_within_a_bound(monkeypatch):
    monkeypatch.setattr(maskedtape, "MAX_KEPT", 2000)
    body = SECRET_BODY + bytes(range(256)) * 4
    head, data = gzipped(body, compress=lambda data: gzip.compress(data, 0, mtime=0))
    written = Written([(0, head), (1, data), (2, b"y" * 2000), (3, b"z")])
    exchange = written.end(End.COMPLETE)
    assert written.tape.cut
    assert (exchange.response.end, exchange.response.then, exchange.end_meta) == (
        End.CLIENT,
        Then.OPEN,
        {"by": "recorder"},
    )
    assert scan(exchange.response).body == body.replace(KEY, STARS)
    assert [at for at, _ in exchange.response.reads()] == [0, 1]


def test_heads_without_end_are_not_kept(monkeypatch):
    monkeypatch.setattr(maskedtape, "MAX_KEPT", 2000)
    head, data = gzipped(SECRET_BODY)
    interim = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    reads = [*((at, interim) for at in range(100)), (200, head + data)]
    assert whole(reads).response.wire == interim * 100 + head + data


def test_early_and_compressed():
    head, data = gzipped(SECRET_BODY)
    late = replace(REQUEST, early=True, body=b'{"a":1}')
    tape = MaskedTape("POST")
    tape.begin(replace(late, body=b""), META, SECRETS)
    assert tape.read(0, head + data) == b""
    [exchange] = loads(tape.end(End.COMPLETE, 5, Then.OPEN, 0, {}, late))
    assert exchange.request == late
    assert KEY not in exchange.response.wire


@given(st.binary(max_size=300), st.data())
def test_a_masked_tape_is_what_covering_the_whole_answer_gives(tail, data):
    """Online and afterwards: the same bytes, but that a segment may be cut in two."""
    body = b"a" + KEY + tail + KEY
    wire = FRAMINGS[data.draw(st.sampled_from(["close", "length", "chunked", "trailer"]))](body)
    reads = data.draw(cuttings(wire))
    tracker = Tracker("POST")
    segments = tuple(segment for at, read in reads for segment in tracker.feed(at, read))
    came = Response(segments, End.COMPLETE if tracker.eof() else End.FIN, reads[-1][0] + 5, method="POST")
    covered = cover(came, KNOWN, SECRETS).response
    assert list(whole(reads).response.reads()) == list(covered.reads())
