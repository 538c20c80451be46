"""What is masked does not depend on how an answer is cut up, and no read loses its time or its border."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core import masking
from mockllm.core.http1 import Tracker
from mockllm.core.masking import Chunks, Heads, Mask, Reads, Search
from mockllm.core.redact import KNOWN
from mockllm.core.response import Segment
from mockllm.core.secrets import Secrets, secrets_of
from mockllm.core.spelling import MAX_UNIT
from tests.core.nasties import CHUNKED, LAST, NASTIES, answers, chunk, cuttings
from tests.core.roundtrip import cut, singly

KEY = b"sk-CANARY-0123456789"
SECRETS = secrets_of([KEY])
STARS = b"*" * len(KEY)


def fed(search: Search, pieces: list[bytes]) -> bytes:
    return b"".join(search.feed(piece) for piece in pieces if piece) + search.finish()


PARTS = st.sampled_from(
    [
        KEY,
        KEY[:1],
        KEY[:7],
        KEY[:-1],
        KEY[5:],
        b"ab" * 8,
        b"ab" * 3,
        b"a",
        b"b",
        b"\\",
        b"\\u",
        b"0073",
        b"\\u0073k-CANARY",
        *(b"%", b"25", b"73", b"%6b", b"\n", b"\xff", b"-0123456789"),
    ]
)
TEXTS = st.lists(PARTS, max_size=30).map(b"".join)
SOME = st.lists(st.sampled_from([KEY, b"ab" * 8, b"a" * 16, b"aab" * 6, b"1" * 16]), min_size=1, max_size=3)


@st.composite
def pieces_of(draw: st.DrawFn, text: bytes) -> list[bytes]:
    return cut(text, *draw(st.sets(st.integers(0, len(text)), max_size=12)))


@given(TEXTS, SOME, st.data())
def test_any_cutting_gives_the_same_bytes(text, values, data):
    secrets = secrets_of(values)
    assert fed(Search(secrets), data.draw(pieces_of(text))) == secrets.cover(text)
    assert fed(Search(secrets), singly(text)) == secrets.cover(text)


@pytest.mark.parametrize("place", range(len(KEY) + 1))
def test_a_border_at_every_byte_of_a_secret(place):
    search = Search(SECRETS)
    assert search.feed(b"<" + KEY[:place]) == b"<" + (STARS if place == len(KEY) else b"")
    assert search.holding is (0 < place < len(KEY))
    assert search.feed(KEY[place:] + b">") == (b">" if place == len(KEY) else STARS + b">")
    assert not search.holding


@given(TEXTS, st.data())
def test_only_what_may_become_a_secret_is_held(text, data):
    search = Search(SECRETS)
    given_out = b""
    given = b""
    for piece in data.draw(pieces_of(text)):
        given_out += search.feed(piece) if piece else b""
        given += piece
        held = given[len(given_out) :]
        assert len(held) <= MAX_UNIT * len(KEY)
        assert search.holding == bool(held)
        if held and held[:1] not in (b"\\", b"%"):
            assert KEY.startswith(held[:1])
            assert secrets_of([KEY]).scan(held)[1] == 0
    assert given_out + search.finish() == SECRETS.cover(text)


def test_a_secret_that_ends_in_what_may_begin_the_next_one():
    search = Search(secrets_of([b"a-0123456789012345-a"]))
    assert search.feed(b"a-0123456789012345-a") == b"*" * 19, "the last letter may begin another one"
    assert search.feed(b"-") == b""
    assert search.feed(b"x") == b"*-x", "and is masked all the same"


def test_a_stream_may_go_on_after_its_end():
    search = Search(SECRETS)
    assert search.feed(KEY[:5]) == b""
    assert search.finish() == KEY[:5]
    assert search.finish() == b""
    assert search.feed(KEY[5:] + KEY) == KEY[5:] + STARS


@given(TEXTS, st.data())
def test_reads_keep_their_times_and_borders(text, data):
    pieces = [piece for piece in data.draw(pieces_of(text)) if piece]
    reads = Reads(SECRETS)
    parts = (
        [part for at, piece in enumerate(pieces) for part in reads.feed(at, piece)]
        + reads.feed(99, b"")
        + reads.finish()
    )
    joined = {
        at: b"".join(part for _, part in group) for at, group in itertools.groupby(parts, key=lambda part: part[0])
    }
    assert [len(joined[at]) for at in sorted(joined)] == [len(piece) for piece in pieces]
    assert list(joined) == sorted(joined)
    assert b"".join(joined.values()) == SECRETS.cover(text)


# --- chunks


def segments_of(wire: bytes) -> list[Segment]:
    return Tracker("POST").feed(0, CHUNKED + wire)[1:]


def test_a_secret_over_chunks_is_masked_and_the_framing_stays():
    pieces = [b"data: " + KEY[:3], KEY[3:9], KEY[9:] + b"\n\n"]
    chunks = Chunks(SECRETS)
    out = chunks.feed(segments_of(b"".join(map(chunk, pieces)) + LAST))
    assert [segment.data for segment in out] == [b"data: ***", b"*" * 6, b"*" * 11 + b"\n\n", b""]
    assert b"".join(segment.wire for segment in out) == (
        chunk(b"data: ***") + chunk(b"*" * 6) + chunk(b"*" * 11 + b"\n\n") + LAST
    )


def test_what_is_held_of_a_chunk_becomes_a_segment_of_its_own():
    chunks = Chunks(SECRETS)
    one, two, three = segments_of(chunk(b"abc sk-") + chunk(b"CANARY") + chunk(b"-x"))
    assert chunks.feed([one]) == [Segment(0, b"abc ", b"7\r\n")]
    assert chunks.feed([two]) == []
    assert chunks.feed([three]) == [Segment(0, b"sk-", b"", b"\r\n"), two, three]
    assert chunks.feed([one]) == [Segment(0, b"abc ", b"7\r\n")]
    assert chunks.finish() == [Segment(0, b"sk-", b"", b"\r\n")]


def test_untouched_segments_pass_as_they_are():
    chunks = Chunks(SECRETS)
    segments = segments_of(chunk(b"data: {}\n\n") + LAST)
    assert chunks.feed(segments) is segments
    assert chunks.feed(segments * 2) == segments * 2
    assert chunks.feed([]) == []


def test_framing_without_end_is_not_kept_for_a_body_that_never_goes_on(monkeypatch):
    monkeypatch.setattr(masking, "MAX_FRAMING", 1000)
    chunks = Chunks(SECRETS)
    assert chunks.feed([Segment(0, b"sk-", b"3\r\n", b"\r\n")]) == []
    trailer = [Segment(0, before=b"X: y\r\n" * 100)]
    assert chunks.feed(trailer) == []
    assert [segment.data for segment in chunks.feed(trailer)] == [b"sk-", b"", b""]
    assert chunks.feed(trailer) == trailer


@given(
    st.lists(st.sampled_from([KEY, KEY[:4], KEY[4:9], KEY[9:], b"x", b"\n", b"\\u0073", b"k-"]), max_size=12), st.data()
)
def test_the_body_is_masked_whatever_its_chunks_and_reads_are(parts, data):
    body = b"".join(parts)
    cuts = data.draw(pieces_of(body))
    wire = b"".join(chunk(piece) for piece in cuts if piece)
    reads, tracker, chunks = Reads(SECRETS), Tracker("POST"), Chunks(SECRETS)
    tracker.feed(0, CHUNKED)
    parts = [part for at, piece in enumerate(data.draw(pieces_of(wire))) for part in reads.feed(at, piece)]
    out = [segment for part in [*parts, *reads.finish()] for segment in chunks.feed(tracker.feed(*part))]
    out += chunks.finish()
    assert b"".join(segment.data for segment in out) == SECRETS.cover(body)
    framing = b"".join(segment.before + segment.after for segment in out)
    assert framing == b"".join(b"%x\r\n\r\n" % len(piece) for piece in cuts if piece)
    assert [segment.at for segment in out] == sorted(segment.at for segment in out)


# --- heads


def headed(pieces: list[bytes]) -> bytes:
    heads = Heads(KNOWN)
    parts = [part for at, piece in enumerate(pieces) for part in heads.feed(at, piece)] + heads.finish()
    assert [at for at, _ in parts] == sorted(at for at, _ in parts)
    assert all(part for _, part in parts)
    return b"".join(part for _, part in parts)


HEAD = (
    b"HTTP/1.1 103 Early Hints\r\nset-cookie: a=1\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nServer: x\r\nSet-Cookie: session=abc; Path=/; HttpOnly\r\nSETTINGS: 1\r\n"
    b"SET-COOKIE : \t b=2  \r\nSet-Cookie: gone=; Max-Age=0\r\nSet-Cookie:\r\n c=3\r\n\td=4\r\n  \r\n"
    b"Location: https://me:pw@host/x?key=1&b=2#access_token=3\r\nX-Api-Key: 4\nAuthorization:\r\n"
    b"X: y\r\n folded\r\n\r\n"
)
MASKED_HEAD = (
    b"HTTP/1.1 103 Early Hints\r\nset-cookie: a=[redacted]\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nServer: x\r\nSet-Cookie: session=[redacted]; Path=/; HttpOnly\r\nSETTINGS: 1\r\n"
    b"SET-COOKIE : \t b=[redacted]  \r\nSet-Cookie: gone=; Max-Age=0\r\n"
    b"Set-Cookie:\r\n [redacted]\r\n\t[redacted]\r\n  \r\n"
    b"Location: https://host/x?key=[redacted]&b=2#access_token=[redacted]\r\nX-Api-Key: [redacted]\nAuthorization:\r\n"
    b"X: y\r\n folded\r\n\r\n"
)


def test_t9_a_head_is_masked_by_name():
    assert headed([HEAD]) == MASKED_HEAD
    assert headed([MASKED_HEAD]) == MASKED_HEAD


@pytest.mark.parametrize("place", range(len(HEAD)))
def test_a_border_at_every_byte_of_a_head(place):
    assert headed([HEAD[:place], HEAD[place:]]) == MASKED_HEAD


def test_a_head_in_single_bytes():
    assert headed(singly(HEAD)) == MASKED_HEAD


@pytest.mark.parametrize("place", range(1, len(HEAD)))
def test_a_head_that_is_broken_off_is_masked_too(place):
    out = headed([HEAD[:place]])
    for secret in (b"abc", b"pw@", b"=1&b", b"=3\r", b"d=4"):
        assert secret not in out


def test_a_line_is_held_only_as_long_as_it_may_be_a_credentials():
    heads = Heads(KNOWN)
    assert heads.feed(1, b"X") == []
    assert heads.feed(2, b"-Echo: a") == [(1, b"X"), (2, b"-Echo: a")]
    assert heads.feed(3, b"b\r") == [(3, b"b\r")]
    assert heads.feed(4, b"\nCookie") == [(4, b"\n")]
    assert heads.feed(5, b": a") == []
    assert heads.feed(6, b"b\r") == []
    assert heads.feed(7, b"\n") == [(4, b"Cookie"), (5, b": ["), (6, b"re"), (7, b"dacted]\r\n")]
    assert heads.feed(8, b" c") == []
    assert heads.feed(9, b"d\r\n\r") == [(8, b" ["), (9, b"redacted]\r\n\r")]


def test_a_read_of_a_masked_line_stays_a_read():
    heads = Heads(KNOWN)
    assert heads.feed(1, b"HTTP/1.1 200 OK\r\nSet-Cookie: a") == [(1, b"HTTP/1.1 200 OK\r\n")]
    assert heads.feed(2, b"=" + b"s" * 20) == []
    assert heads.feed(3, b"; Path=/\r\nServer: x\r\n") == [
        (1, b"Set-Cookie: a"),
        (2, b"=[redacted]; Path=/\r\n"),
        (3, b"Server: x\r\n"),
    ]
    heads = Heads(KNOWN)
    assert heads.feed(1, b"Set-Cookie: a=") == []
    assert heads.feed(2, b"s" * 30) == []
    assert heads.feed(3, b"\n") == [(1, b"Set-Cookie: a="), (2, b"[redacted]\n")]
    assert heads.feed(4, b"Server: x\r\n") == [(4, b"Server: x\r\n")]


@given(answers().flatmap(lambda answer: st.tuples(st.just(answer), cuttings(answer[1]))))
def test_an_answer_without_a_credential_passes_byte_for_byte_and_read_for_read(drawn):
    (method, _), reads = drawn
    for secrets in (Secrets(), SECRETS):
        mask, tracker = Mask(KNOWN, secrets), Tracker(method)
        parts = [part for at, data in reads for part in mask.feed(at, data, tracker, tracker.feed(at, data))]
        parts += mask.finish()
        joined = [
            (at, b"".join(p for _, p in group)) for at, group in itertools.groupby(parts, key=lambda part: part[0])
        ]
        assert joined == reads


@pytest.mark.parametrize("nasty", NASTIES, ids=str)
def test_nothing_is_held_after_the_last_byte_of_what_has_no_credential(nasty):
    mask, tracker = Mask(KNOWN, SECRETS), Tracker(nasty.method)
    out = b""
    for at, data in enumerate(nasty.reads):
        out += b"".join(part for _, part in mask.feed(at, data, tracker, tracker.feed(at, data)))
    left = b"".join(part for _, part in mask.finish())
    assert out + left == nasty.wire.replace(b"Set-Cookie: a\r", b"Set-Cookie: [redacted]\r").replace(
        b"set-cookie: b\r", b"set-cookie: [redacted]\r"
    )
    assert len(left) < len(KEY)


def test_garbage_ends_a_head():
    mask, tracker = Mask(KNOWN, Secrets()), Tracker("GET")
    data = b"HTTP/1.1 103 Hi\r\nSet-Cookie: a=1\r\n\r\nS"
    first = mask.feed(0, data, tracker, tracker.feed(0, data))
    assert b"".join(part for _, part in first) == b"HTTP/1.1 103 Hi\r\nSet-Cookie: a=[redacted]\r\n\r\nS"
    assert tracker.bad
    assert not mask.holding
    assert mask.feed(1, b"et-Cookie: a=1\r\n", tracker, tracker.feed(1, b"et-Cookie: a=1\r\n")) == [
        (1, b"et-Cookie: a=1\r\n")
    ]
