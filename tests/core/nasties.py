"""Answers that real servers and broken ones send, made by hand, and any answer at all (Hypothesis).

Shared by the tests of framing, tape and cassette. What each of them is in HTTP stands beside it: head or none, how its
body is framed, the body, and whether it is whole when the server closes.
"""

import gzip
import itertools
from dataclasses import dataclass

from hypothesis import strategies as st

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSE = b"HTTP/1.0 200 OK\r\nContent-type: text/event-stream\r\n\r\n"
LAST = b"0\r\n\r\n"
ODD = "a\u2028b\u2029c\u0085d\x00e\x7ff\rg\x1ch\x0bi\x0cj\ufeff\U0001f389é".encode()
"""Characters that some reader of lines or of JSON takes for something else."""


@dataclass(frozen=True, slots=True)
class Nasty:
    """The reads of one answer, in order. `status` None: it has no head. `whole`: complete if the server closes now."""

    name: str
    reads: tuple[bytes, ...]
    body: bytes = b""
    status: int | None = 200
    whole: bool = True
    method: str = "POST"

    @property
    def wire(self) -> bytes:
        """All bytes."""
        return b"".join(self.reads)

    def __str__(self) -> str:
        return self.name


def counted(length: int) -> bytes:
    """A head with a Content-Length."""
    return OK + b"Content-Length: %d\r\n\r\n" % length


def chunk(data: bytes) -> bytes:
    """A chunk in its usual spelling."""
    return b"%x\r\n%b\r\n" % (len(data), data)


EVENT = b'data: {"choices":[]}\n\n'
GZIPPED = gzip.compress(EVENT * 3, mtime=0)
MANY = b"".join(b"X-%d: %d\r\n" % (number, number) for number in range(300))

NASTIES = (
    Nasty("nothing", (), status=None, whole=False),
    Nasty("half-a-head", (b"HTTP/1.1 200 OK\r\nServer: x",), status=None, whole=False),
    Nasty("head-in-two-reads", (OK + b"Content-Le", b"ngth: 2\r\n\r\nhi"), b"hi"),
    Nasty("head-cut-in-its-last-crlf", (OK + b"Content-Length: 2\r\n\r", b"\nhi"), b"hi"),
    Nasty("size-line-in-two-reads", (CHUNKED + b"1", b"0\r\n0123456789abcdef\r\n" + LAST), b"0123456789abcdef"),
    Nasty("size-line-cut-in-crlf", (CHUNKED + b"3\r", b"\nabc\r\n" + LAST), b"abc"),
    Nasty("chunk-in-three-reads", (CHUNKED + b"9\r\nabc", b"def", b"ghi\r\n" + LAST), b"abcdefghi"),
    Nasty("chunk-end-cut", (CHUNKED + b"3\r\nabc\r", b"\n2\r\nde\r\n" + LAST), b"abcde"),
    Nasty("chunk-end-in-the-next-read", (CHUNKED + b"3\r\nabc", b"\r\n" + LAST), b"abc"),
    Nasty("odd-terminator", (CHUNKED, chunk(b"abc"), b"00;x\r\nTrailer-A: 1\r\n", b"B: \xff\r\n\r\n"), b"abc"),
    Nasty("terminator-in-two-reads", (CHUNKED + chunk(b"abc"), b"0\r\n", b"\r\n"), b"abc"),
    Nasty("chunk-extension", (CHUNKED, b'5;name="v;x"\r\nhello\r\n' + LAST), b"hello"),
    Nasty("extension-not-utf8", (CHUNKED, b"5;x=\xff\xfe\r\nhello\r\n" + LAST), b"hello"),
    Nasty("size-spelled-oddly", (CHUNKED, b"000A \t\r\n0123456789\r\n0A\r\n0123456789\r\n" + LAST), b"0123456789" * 2),
    Nasty("size-of-20-digits", (CHUNKED, b"%020x\r\nabc\r\n" % 3 + LAST), b"abc"),
    Nasty("size-of-21-digits", (CHUNKED, b"%021x\r\nabc\r\n" % 3, LAST), whole=False),
    Nasty("size-in-capitals", (CHUNKED, b"1F\r\n" + b"x" * 31 + b"\r\n" + LAST), b"x" * 31),
    Nasty("several-chunks-in-a-read", (CHUNKED + chunk(b"a") + chunk(b"bc") + chunk(b"def") + LAST,), b"abcdef"),
    Nasty("chunks-that-look-like-framing", (CHUNKED, chunk(b"\r\n"), chunk(b"0\r\n\r\n"), LAST), b"\r\n0\r\n\r\n"),
    Nasty("bare-lf-chunks", (CHUNKED, b"3\nabc\n" + LAST), b"abc"),
    Nasty("no-last-chunk", (CHUNKED, chunk(b"abc")), b"abc", whole=False),
    Nasty("chunk-cut-off", (CHUNKED, b"5\r\nab"), b"ab", whole=False),
    Nasty("trailer-never-ends", (CHUNKED, chunk(b"abc"), b"0\r\nA: b\r\n"), b"abc", whole=False),
    Nasty("chunk-size-is-no-number", (CHUNKED, chunk(b"abc"), b"zz\r\nabc\r\n", LAST), b"abc", whole=False),
    Nasty("chunk-size-is-negative", (CHUNKED, b"-5\r\nabcde\r\n", LAST), whole=False),
    Nasty("chunk-size-has-underscore", (CHUNKED, b"1_0\r\n0123456789abcdef\r\n", LAST), whole=False),
    Nasty("chunk-longer-than-its-size", (CHUNKED, b"2\r\nabc\r\n", LAST), b"ab", whole=False),
    Nasty("chunk-ends-with-cr-only", (CHUNKED, b"2\r\nab\r", b"x" + LAST), b"ab", whole=False),
    Nasty("empty-line-for-a-size", (CHUNKED, b"\r\n" + chunk(b"abc") + LAST), whole=False),
    Nasty("continue-before-the-head", (b"HTTP/1.1 100 Continue\r\n\r\n", counted(2), b"hi"), b"hi"),
    Nasty(
        "early-hints-in-the-same-read", (b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + counted(2) + b"hi",), b"hi"
    ),
    Nasty(
        "two-interim-heads-cut-oddly",
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early", b" Hints\r\n\r\n" + counted(2), b"hi"),
        b"hi",
    ),
    Nasty("interim-only", (b"HTTP/1.1 102 Processing\r\n\r\n",), status=None, whole=False),
    Nasty("garbage", (b"\x16\x03\x01\x02\x00\x01", b"hello"), status=None, whole=False),
    Nasty("garbage-that-begins-like-http", (b"HTT", b"X/1.1 200 OK\r\n\r\n"), status=None, whole=False),
    Nasty("not-a-status-line", (b"HTTP/1.1 2000 OK\r\n\r\nhi", b"there"), status=None, whole=False),
    Nasty("blank-line-first", (b"\r\n" + counted(2) + b"hi",), status=None, whole=False),
    Nasty("lone-cr-in-status-line", (b"HTTP/1.1 200 O\rK\r\n\r\nhi",), status=None, whole=False),
    Nasty("http2-preface", (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",), status=None, whole=False),
    Nasty("garbage-then-a-head", (b"HTTP/1.1 abc\r\n\r\n", counted(2)), status=None, whole=False),
    Nasty("surplus-in-the-read", (counted(2) + b"hisurplus",), b"hi"),
    Nasty("surplus-later", (CHUNKED, chunk(b"abc") + LAST, b"more", b"\xff"), b"abc"),
    Nasty("surplus-that-is-a-head", (OK + b"Content-Length: 0\r\n\r", b"\n" + OK + b"A: b\r\n\r\n", counted(0)), b""),
    Nasty("surplus-equal-to-the-head", (counted(0) + counted(0),), b""),
    Nasty("bare-lf-head", (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",), b"hi"),
    Nasty("mixed-line-ends", (b"HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nhi",), b"hi"),
    Nasty("bare-lf-head-and-its-twin", (b"HTTP/1.1 200 OK\nContent-Length: 0\n\n" + counted(0),), b""),
    Nasty("http10-chunked", (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"abc") + LAST,), b"abc"),
    Nasty(
        "chunked-not-last",
        (OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n", chunk(b"abc") + LAST),
        chunk(b"abc") + LAST,
    ),
    Nasty(
        "gzip-then-chunked",
        (OK + b"Transfer-Encoding: gzip\r\nTransfer-encoding: Chunked\r\n\r\n", chunk(b"a") + LAST),
        b"a",
    ),
    Nasty("chunked-beats-length", (OK + b"Content-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n" + LAST,)),
    Nasty("folded-transfer-encoding", (OK + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + chunk(b"abc") + LAST,), b"abc"),
    Nasty(
        "upgrade-nobody-asked-for",
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", b"\x81\x00"),
        b"\x81\x00",
        101,
    ),
    Nasty("head-with-a-length", (counted(99),), method="HEAD"),
    Nasty("head-with-a-body-anyway", (counted(2) + b"hi",), method="HEAD"),
    Nasty("head-with-chunked", (CHUNKED,), method="HEAD"),
    Nasty("no-content-with-a-length", (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",), b"", 204),
    Nasty("not-modified-with-a-length", (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",), b"", 304),
    Nasty("lengths-that-conflict", (OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabcdef",), b"abcdef"),
    Nasty("lengths-that-agree", (OK + b"Content-Length: 2\r\ncontent-length: 2, 2\r\n\r\nab",), b"ab"),
    Nasty("length-that-is-no-number", (OK + b"Content-Length: +2\r\n\r\nabc",), b"abc"),
    Nasty("length-with-many-digits", (OK + b"Content-Length: 000000000000000000002\r\n\r\nabc",), b"abc"),
    Nasty("length-of-20-digits", (OK + b"Content-Length: %020d\r\n\r\nabc" % 3,), b"abc"),
    Nasty("length-of-zero", (counted(0),)),
    Nasty("length-not-reached", (counted(5), b"ab"), b"ab", whole=False),
    Nasty("empty-body-until-close", (CLOSE,)),
    Nasty(
        "body-until-close",
        (CLOSE, b": keepalive 1/2\n\n", EVENT, b"data: [DONE]\n\n"),
        b": keepalive 1/2\n\n" + EVENT + b"data: [DONE]\n\n",
    ),
    Nasty(
        "half-characters",
        (CLOSE + "é".encode()[:1], "é".encode()[1:] + "🎉".encode()[:3], "🎉".encode()[3:]),
        "é🎉".encode(),
    ),
    Nasty(
        "half-characters-in-chunks",
        (CHUNKED + chunk(b"\xc3") + chunk(b"\xa9"), b"2\r\n\xc3", b"\xa9\r\n" + LAST),
        "éé".encode(),
    ),
    Nasty("odd-characters", (CLOSE + ODD, ODD), ODD * 2),
    Nasty(
        "odd-characters-in-chunks",
        (CHUNKED + chunk(ODD), b"%x;%b\r\n" % (len(ODD), ODD.replace(b"\r", b"")), ODD + b"\r\n" + LAST),
        ODD * 2,
    ),
    Nasty(
        "gzip", (OK + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(GZIPPED) + LAST), GZIPPED
    ),
    Nasty("every-byte", (counted(256), bytes(range(256))), bytes(range(256))),
    Nasty("zero-bytes", (CLOSE, b"\x00" * 100), b"\x00" * 100),
    Nasty("empty-header-values", (OK + b"A: \r\nB:\r\nContent-Length: 0\r\n\r\n",)),
    Nasty("only-spaced-empty-values", (OK + b"Access-Control-Allow-Origin: \r\nContent-Length: 0\r\n\r\n",)),
    Nasty("duplicate-headers", (OK + b"Set-Cookie: a\r\nset-cookie: b\r\nSet-Cookie: a\r\nContent-Length: 0\r\n\r\n",)),
    Nasty("folded-header", (OK + b"A: b\r\n\tc\r\n  \r\nContent-Length: 0\r\n\r\n",)),
    Nasty("folded-without-a-header", (OK + b" folded\r\nContent-Length: 0\r\n\r\n",)),
    Nasty("header-without-colon", (OK + b"nonsense\r\n: no name\r\nContent-Length: 0\r\n\r\n",)),
    Nasty("space-before-colon", (OK + b"Content-Length : 2\r\n\r\nhi",), b"hi"),
    Nasty("header-value-not-utf8", (OK + b"A: caf\xe9\r\nContent-Length: 0\r\n\r\n",)),
    Nasty("header-name-not-utf8", (OK + b"\xe9: x\r\nContent-Length: 0\r\n\r\n",)),
    Nasty("odd-header-value", (OK + b"A: " + ODD.replace(b"\r", b"") + b"\r\nContent-Length: 0\r\n\r\n",)),
    Nasty("lone-cr-in-a-header", (OK + b"A: b\rc\r\nContent-Length: 0\r\n\r\n",)),
    Nasty("reason-not-utf8", (b"HTTP/1.1 200 caf\xe9\r\nContent-Length: 0\r\n\r\n",)),
    Nasty("no-reason", (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",)),
    Nasty("empty-reason", (b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",)),
    Nasty("odd-status", (b"HTTP/1.1 999 So What\r\nContent-Length: 0\r\n\r\n",), b"", 999),
    Nasty("head-without-headers", (b"HTTP/1.1 200 OK\r\n\r\n", b"x"), b"x"),
    Nasty("header-of-20-kB", (OK + b"X-Long: " + b"y" * 20_000 + b"\r\nContent-Length: 2\r\n\r\nhi",), b"hi"),
    Nasty("many-headers", (OK + MANY + b"Content-Length: 2\r\n\r\n", b"hi"), b"hi"),
)

_TOKENS = st.text("abcXYZ019-_!~", min_size=1, max_size=8).map(str.encode)
_VALUES = st.one_of(
    st.text('abc ,;=\t"é', max_size=12).map(lambda text: text.strip().encode()),
    st.sampled_from([b"", b"caf\xe9", b"x" * 300]),
)
_BODIES = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=40).map(str.encode),
    st.lists(st.sampled_from([EVENT, ODD, b":\n\n"]), max_size=4).map(b"".join),
)
_STATUS_LINES = st.sampled_from(
    [
        OK,
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/1.1 429 Too Many Requests\r\n",
        b"HTTP/1.1 204 No Content\r\n",
        b"HTTP/1.1 200\r\n",
        b"HTTP/1.1 304 \r\n",
    ]
)
_INTERIM = st.sampled_from(
    [b"", b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"]
)


@st.composite
def _chunks(draw: st.DrawFn) -> bytes:
    """A chunked body, its sizes, extensions and trailers spelled in every lawful way."""
    wire = b""
    for data in draw(st.lists(_BODIES.filter(bool), max_size=4)):
        spelling = draw(st.sampled_from([b"%x", b"%x", b"%X", b"%04x"]))
        extension = draw(st.sampled_from([b"", b"", b";x", b';a="b;c"', b";\xff", b" ", b"\t"]))
        wire += spelling % len(data) + extension + b"\r\n" + data + b"\r\n"
    last = draw(st.sampled_from([b"0", b"0", b"000", b"0;x=y"]))
    trailer = draw(st.sampled_from([b"", b"", b"X-Sum: 1\r\n", b"A: \xe9\r\nB:\r\n"]))
    return wire + last + b"\r\n" + trailer + b"\r\n"


@st.composite
def lawful(draw: st.DrawFn) -> tuple[str, bytes]:
    """A request's method, and the bytes of an answer to it as RFC 9112 has it: whole, cut anywhere, or with surplus."""
    headers = b"".join(b"%b: %b\r\n" % pair for pair in draw(st.lists(st.tuples(_TOKENS, _VALUES), max_size=4)))
    framing = draw(st.sampled_from(["length", "chunked", "close"]))
    if framing == "length":
        body = draw(_BODIES)
        headers += draw(st.sampled_from([b"Content-Length: %d\r\n", b"content-length:%d\r\n"])) % len(body)
    elif framing == "chunked":
        body = draw(_chunks())
        headers += draw(st.sampled_from([b"Transfer-Encoding: chunked\r\n", b"transfer-encoding:  Chunked \r\n"]))
    else:
        body = draw(_BODIES)
    wire = draw(_INTERIM) + draw(_STATUS_LINES) + headers + b"\r\n" + body
    if draw(st.booleans()):
        wire = wire[: draw(st.integers(0, len(wire)))]
    elif draw(st.booleans()):
        wire += draw(st.binary(max_size=20))
    return draw(st.sampled_from(["GET", "POST", "HEAD"])), wire


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, bytes]:
    """A method and any bytes at all: lawful answers, those with a few bytes changed, and what is no HTTP."""
    method, wire = draw(st.one_of(lawful(), st.tuples(st.just("POST"), st.binary(max_size=80))))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(wire)))
        wire = (
            wire[:place]
            + draw(st.sampled_from([b"\r", b"\n", b"\x00", b"\xff", b"0", b" ", b":", b""]))
            + wire[place + 1 :]
        )
    return method, wire


@st.composite
def cuttings(draw: st.DrawFn, wire: bytes) -> list[tuple[int, bytes]]:
    """Bytes as reads (µs, bytes): cut anywhere, at any times."""
    places = sorted(draw(st.sets(st.integers(1, max(1, len(wire) - 1)), max_size=12))) if wire else []
    borders = [0, *places, len(wire)]
    pieces = [wire[start:stop] for start, stop in itertools.pairwise(borders) if stop > start]
    gaps = draw(
        st.lists(st.sampled_from([1, 2, 999, 1000, 123_456, 3_600_000_000]), min_size=len(pieces), max_size=len(pieces))
    )
    at = draw(st.sampled_from([-1, 0])) if pieces else 0
    reads = []
    for gap, piece in zip(gaps, pieces, strict=True):
        at += gap
        reads.append((at, piece))
    return reads
