"""Compressed bodies: opened piece by piece, closed again as a valid stream that can be decoded after every piece."""

import gzip
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.faults import coding
from mockllm.core.faults.base import Meaningless
from mockllm.core.faults.body import Piece, put_together, take_apart
from mockllm.core.faults.coding import compressed, identity, on_text
from mockllm.core.faults.edit import Edit, edit
from mockllm.core.faults.view import View
from mockllm.core.http1 import scan
from mockllm.core.response import End, Response, Then
from tests.core.faults.applying import fault
from tests.core.faults.making import body, chunks, response, responses, strictly_whole, tracked

WBITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
TEXT = b"data: 1\n\ndata: 2\n\ndata: 3\n\n"


def flushed(pieces: Sequence[bytes], wbits: int, *, finish: bool = True) -> list[bytes]:
    """Each piece compressed and flushed, and the end of the stream as a piece of its own."""
    deflate = zlib.compressobj(wbits=wbits)
    made = [deflate.compress(piece) + deflate.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return [*made, deflate.flush()] if finish else made


def squeezed(framing: str, *reads: tuple[int, bytes], name: str = "gzip", wbits: int = 31, **more: object) -> Response:
    """An answer whose body is compressed, one piece a read; the last is the stream's end alone."""
    made = flushed([data for _, data in reads], wbits)
    last = reads[-1][0] if reads else 1000
    timed = [*zip([at for at, _ in reads], made[:-1], strict=True), (last + 5, made[-1])]
    return response(framing, *timed, lines=f"Content-Encoding: {name}\r\nX-After: 1\r\n", **more)  # type: ignore[arg-type]


def decoded(bent: Response, wbits: int = 31) -> bytes:
    """What a client gets that decodes all there is. Raises zlib.error where it is corrupt."""
    inflate = zlib.decompressobj(wbits)
    data = inflate.decompress(body(bent))
    assert inflate.unused_data == b""
    return data


def seen_after_each(bent: Response, wbits: int = 31) -> list[bytes]:
    """What a client can have decoded after each piece."""
    inflate = zlib.decompressobj(wbits)
    return [inflate.decompress(data) for _, data in chunks(bent)]


# ---------------------------------------------------------------- properties


@given(responses())
def test_what_is_compressed_opens_again_with_the_same_pieces(drawn: Response) -> None:
    if not body(drawn):
        return
    squeezed = compressed(drawn)
    plain, _ = identity(squeezed)
    assert chunks(plain) == chunks(drawn)
    assert [
        (at, data) for at, data in zip([at for at, _ in chunks(drawn)], seen_after_each(squeezed), strict=True)
    ] == (chunks(drawn))
    assert scan(squeezed).whole == scan(drawn).whole
    assert scan(plain).missing == scan(drawn).missing
    assert (squeezed.end, squeezed.end_at, squeezed.then) == (drawn.end, drawn.end_at, drawn.then)


@given(
    st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=5),
    st.sampled_from(["chunked", "length", "close"]),
    st.sampled_from([("gzip", 31), ("x-gzip", 31), ("deflate", 15), ("deflate", -15), ("GZIP ", 31)]),
    st.data(),
)
def test_a_changed_body_is_compressed_again_as_it_was(
    pieces: list[bytes], framing: str, how: tuple[str, int], data: st.DataObject
) -> None:
    name, wbits = how
    recorded = squeezed(framing, *((2000 + 10 * i, piece) for i, piece in enumerate(pieces)), name=name, wbits=wbits)
    plain, again = identity(recorded)
    assert b"".join(pieces) == body(plain)
    assert scan(plain).head is not None
    assert b"content-encoding" not in plain.wire.lower().partition(b"\r\n\r\n")[0]
    assert strictly_whole(plain)
    place = data.draw(st.integers(0, len(body(plain))))
    changed = edit(View(take_apart(plain)).parts, [Edit(place, place, b"new")])
    bent = again(changed)
    assert decoded(bent, wbits) == body(plain)[:place] + b"new" + body(plain)[place:]
    assert strictly_whole(bent)
    assert f"Content-Encoding: {name}\r\nX-After: 1\r\n\r\n".encode() in bent.wire, "its line is where it was"


TEXT_FAULTS = [
    *["crlf", "cr", "mixed:seed=3", "nospace", "multiline", "nogap", "tail", "tail:strip=2", "bom", "ids"],
    *["comment:text=x,at=1ev", "retry:at=0ev", "empty:at=2ev", "event:at=1ms", "garbage:at=9b", "dup:event=1"],
    *["drop:event=1", "error:at=1ev", "error:at=5ms,style=vllm", "keepalive:every=5ms,style=ping,before=2,hold=8ms"],
]


@given(responses(), st.sampled_from(TEXT_FAULTS))
def test_a_fault_of_the_text_does_the_same_in_a_compressed_stream(drawn: Response, spec: str) -> None:
    drawn = replace(drawn, end=End.FIN if drawn.end is End.HANG else drawn.end)
    if not body(drawn):
        return
    packed = compressed(drawn)
    try:
        bent = fault(spec)(drawn)
    except Meaningless as reason:
        with pytest.raises(Meaningless, match=re.escape(str(reason))):
            fault(spec)(packed)
        return
    opened = fault(spec)(packed)
    assert decoded(opened) == body(bent)
    assert scan(opened).whole == scan(bent).whole
    assert (opened.end, opened.end_at, opened.then) == (bent.end, bent.end_at, bent.then)
    if body(bent):
        assert [at for at, _ in chunks(opened)] == [at for at, _ in chunks(bent)]
    assert (bent is drawn) == (opened is packed)


@given(st.binary(max_size=40), st.integers(0, 200))
def test_any_bytes_are_opened_or_refused(junk: bytes, keep: int) -> None:
    wire = gzip.compress(TEXT, mtime=0)[:keep] + junk
    recorded = response("close", (2000, wire), lines="Content-Encoding: gzip\r\n") if wire else response("close")
    try:
        plain, again = identity(recorded)
    except Meaningless:
        return
    assert decoded(again(plain)) == body(plain) if wire else again(plain) is plain


# ---------------------------------------------------------------- opened


def test_an_uncompressed_response_comes_back_as_it_is() -> None:
    for lines in ["", "Content-Encoding: identity\r\n", "Content-Encoding:\r\n"]:
        recorded = response("chunked", (2000, TEXT), lines=lines)
        plain, again = identity(recorded)
        assert plain is recorded
        assert again(plain) is plain


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_a_body_is_opened_in_its_pieces_and_framed_anew(framing: str) -> None:
    plain, _ = identity(squeezed(framing, (2000, TEXT[:9]), (3000, TEXT[9:])))
    expected = response(framing, (2000, TEXT[:9]), (3000, TEXT[9:]), lines="X-After: 1\r\n", end_at=3005)
    if framing == "chunked":
        assert plain.wire == expected.wire
    else:
        assert (plain.wire, list(plain.reads())) == (expected.wire, list(expected.reads()))


def test_bytes_that_give_nothing_yet_come_with_later_ones() -> None:
    whole = flushed([TEXT], 31)[0]
    recorded = response(
        "close", (2000, whole[:5]), (2100, whole[5:10]), (2200, whole[10:]), lines="Content-Encoding: gzip\r\n"
    )
    assert chunks(identity(recorded)[0]) == [(2200, TEXT)]


def test_an_empty_body_loses_its_label_only() -> None:
    recorded = response("chunked", lines="Content-Encoding: gzip\r\n")
    plain, again = identity(recorded)
    assert plain.wire == response("chunked").wire
    bent = again(put_together(take_apart(plain), [Piece(1500, b"x")]))
    assert seen_after_each(bent) == [b"x"]


def test_an_unlabelled_empty_stream_that_ended_ends_again() -> None:
    recorded = response("close", (2000, zlib.compress(b"")), lines="Content-Encoding: deflate\r\n")
    plain, again = identity(recorded)
    assert body(plain) == b""
    assert chunks(again(plain)) == [(2000, zlib.compress(b""))]


# ---------------------------------------------------------------- closed again


def test_the_end_of_the_stream_comes_when_it_came() -> None:
    alone = squeezed("chunked", (2000, TEXT[:9]), (3000, TEXT[9:]))
    plain, again = identity(alone)
    assert [at for at, _ in chunks(again(plain))] == [2000, 3000, 3005]
    together = response("close", (2000, gzip.compress(TEXT, mtime=0)), lines="Content-Encoding: gzip\r\n")
    plain, again = identity(together)
    assert [(at, gzip.decompress(data)) for at, data in chunks(again(plain))] == [(2000, TEXT)]


def test_the_end_of_the_stream_is_never_after_the_answers_end() -> None:
    plain, again = identity(squeezed("chunked", (2000, TEXT[:9]), (9000, TEXT[9:])))
    earlier = Response(
        tuple(segment for segment in plain.segments if segment.at <= 2000), End.COMPLETE, 2000, Then.OPEN, 2000, "POST"
    )
    assert [at for at, _ in chunks(again(earlier))] == [2000, 2000]
    assert again(earlier).end_at == 2000


def _cut(recorded: Response, end: End) -> Response:
    return Response(recorded.segments[:2], end, 2000, Then.OPEN, 0, "POST")


def test_a_stream_that_was_cut_short_stays_unfinished() -> None:
    plain, again = identity(_cut(squeezed("chunked", (2000, TEXT[:9]), (3000, TEXT[9:])), End.RST))
    assert body(plain) == TEXT[:9]
    bent = again(plain)
    assert decoded(bent) == TEXT[:9]
    with pytest.raises(EOFError):
        gzip.decompress(body(bent))
    assert (bent.end, scan(bent).whole) == (End.RST, False)


@pytest.mark.parametrize(
    ("first", "then", "finished"),
    [
        (End.COMPLETE, End.COMPLETE, True),
        (End.COMPLETE, End.HANG, False),
        (End.COMPLETE, End.FIN, False),
        (End.FIN, End.COMPLETE, True),
        (End.FIN, End.FIN, False),
    ],
)
def test_the_stream_ends_where_the_answer_does(first: End, then: End, finished: bool) -> None:
    whole = squeezed("close", (2000, TEXT))
    recorded = whole if first is End.COMPLETE else _cut(whole, first)
    plain, again = identity(recorded)
    bent = again(Response(plain.segments, then, plain.end_at, Then.OPEN, 0, "POST"))
    inflate = zlib.decompressobj(31)
    inflate.decompress(body(bent))
    assert inflate.eof is finished


def test_a_stream_that_never_ended_though_the_answer_did_stays_so() -> None:
    recorded = response("close", (2000, flushed([TEXT], 31, finish=False)[0]), lines="Content-Encoding: gzip\r\n")
    plain, again = identity(recorded)
    bent = again(edit(take_apart(plain), [Edit(0, 0, b"x")]))
    with pytest.raises(EOFError):
        gzip.decompress(body(bent))
    assert decoded(bent) == b"x" + TEXT


# ---------------------------------------------------------------- on_text


def _to(new: bytes) -> Callable[[View], Response]:
    return lambda view: edit(view.parts, [Edit(0, 1, new)])


def test_a_change_of_the_text_is_seen_by_who_decodes() -> None:
    recorded = squeezed("length", (2000, TEXT[:9]), (3000, TEXT[9:]))
    bent = on_text(recorded, _to(b"D"))
    assert seen_after_each(bent) == [b"D" + TEXT[1:9], TEXT[9:], b""]
    assert on_text(recorded, _to(b"d")) is recorded, "nothing changed: not even compressed anew"
    plain = response("length", (2000, TEXT))
    assert body(on_text(plain, _to(b"D"))) == b"D" + TEXT[1:]


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("lines", "data", "why"),
    [
        ("Content-Encoding: br\r\n", b"x", "compressed as br"),
        ("Content-Encoding: zstd\r\n", b"x", "compressed as zstd"),
        ("Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n", b"x", "compressed as gzip,gzip"),
        ("Content-Encoding: deflate, gzip\r\n", b"x", "compressed as deflate,gzip"),
        ("Content-Encoding: gzip\r\n", b"no gzip", "the compressed body is corrupt"),
        ("Content-Encoding: deflate\r\n", b"\xff\xff\xff", "the compressed body is corrupt"),
        (
            "Content-Encoding: gzip\r\n",
            gzip.compress(b"a", mtime=0) * 2,
            "something follows the end of the compressed body",
        ),
    ],
)
def test_what_cannot_be_opened_is_refused(lines: str, data: bytes, why: str) -> None:
    with pytest.raises(Meaningless, match=why):
        identity(response("close", (2000, data), lines=lines))


def test_what_follows_the_end_in_a_later_read_is_refused_too() -> None:
    recorded = response("close", (2000, gzip.compress(b"a", mtime=0)), (3000, b"b"), lines="Content-Encoding: gzip\r\n")
    with pytest.raises(Meaningless, match="something follows"):
        identity(recorded)


def test_a_body_is_not_decoded_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coding, "MAX_DECODED", 1 << 20)
    recorded = squeezed("close", (2000, bytes(1 << 20)))
    assert len(body(identity(recorded)[0])) == 1 << 20
    with pytest.raises(Meaningless, match="larger than 1 MiB"):
        identity(squeezed("close", (2000, bytes(1 << 19)), (2500, bytes(1 << 19)), (3000, b"\0")))


@pytest.mark.parametrize("start", [b"", b"\x78"])
def test_a_body_too_short_to_tell_counts_as_wrapped(start: bytes) -> None:
    recorded = tracked([(5, b"HTTP/1.0 200 OK\r\nContent-Encoding: deflate\r\n\r\n" + start)], end=End.COMPLETE)
    assert body(identity(recorded)[0]) == b""


# ---------------------------------------------------------------- compressed


def test_compression_is_flushed_after_each_piece() -> None:
    recorded = response("length", (2000, TEXT[:9]), (3000, TEXT[9:]))
    bent = compressed(recorded)
    assert seen_after_each(bent) == [TEXT[:9], TEXT[9:]]
    assert gzip.decompress(body(bent)) == TEXT
    assert strictly_whole(bent)
    assert b"Content-Length: %d\r\nContent-Encoding: gzip\r\n\r\n" % len(body(bent)) in bent.wire


def test_identity_becomes_gzip_at_its_place() -> None:
    bent = compressed(response("close", (2000, TEXT), lines="content-encoding: identity\r\nX: y\r\n"))
    assert b"\r\nContent-Encoding: gzip\r\nX: y\r\n\r\n" in bent.wire
    assert bent.wire.lower().count(b"content-encoding") == 1


def test_what_is_compressed_or_empty_is_not_compressed() -> None:
    with pytest.raises(Meaningless, match="the body is compressed already"):
        compressed(squeezed("close", (2000, TEXT)))
    with pytest.raises(Meaningless, match="there is no body"):
        compressed(response("chunked"))


def test_many_small_pieces_are_opened_and_closed_in_linear_time() -> None:
    pieces = [b"data: %d\n\n" % n for n in range(20_000)]
    recorded = squeezed("chunked", *zip(accumulate([1] * len(pieces), initial=2000), pieces, strict=False))
    plain, again = identity(recorded)
    assert len(chunks(again(plain))) == len(pieces) + 1
