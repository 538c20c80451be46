"""Compressed bodies: all that can be read of them is, and what cannot is said."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core import decoding
from mockllm.core.decoding import decode

TEXT = b"data: hello\n\n" * 20
RAW = zlib.compressobj(wbits=-15)
CODED = {
    b"gzip": gzip.compress(TEXT, mtime=0),
    b"x-gzip": gzip.compress(TEXT, mtime=0),
    b"deflate": zlib.compress(TEXT),
    b"raw": RAW.compress(TEXT) + RAW.flush(),
}


@pytest.mark.parametrize("coding", [b"", b"identity"])
def test_a_body_that_is_not_compressed_stays_as_it_is(coding: bytes) -> None:
    assert decode(coding, [b"a", b"", b"\x1f\x8b"]).pieces == (b"a", b"", b"\x1f\x8b")
    assert decode(coding, []).finished


@given(st.sampled_from(sorted(CODED)), st.lists(st.integers(0, 60), max_size=5))
def test_a_compressed_body_cut_anywhere_gives_its_text(name: bytes, cuts: list[int]) -> None:
    data = CODED[name]
    places = sorted(min(cut, len(data)) for cut in cuts)
    pieces = [data[start:stop] for start, stop in zip([0, *places], [*places, len(data)], strict=True)]
    found = decode(b"deflate" if name == b"raw" else name, pieces)
    assert len(found.pieces) == len(pieces)
    assert (b"".join(found.pieces), found.problem, found.finished) == (TEXT, None, True)


def test_a_flushed_piece_gives_its_own_text() -> None:
    deflate = zlib.compressobj(wbits=31)
    pieces = [deflate.compress(part) + deflate.flush(zlib.Z_SYNC_FLUSH) for part in (b"one", b"two")]
    found = decode(b"gzip", pieces)
    assert (found.pieces, found.problem, found.finished) == ((b"one", b"two"), None, False)


def test_what_cannot_be_read_is_said_and_the_rest_is_there() -> None:
    deflate = zlib.compressobj(wbits=31)
    first = deflate.compress(b"one") + deflate.flush(zlib.Z_SYNC_FLUSH)
    corrupt = decode(b"gzip", [first, b"\xff" * 40, b"more"])
    assert corrupt.pieces == (b"one", b"", b"")
    assert corrupt.problem == "the compressed body is corrupt"
    assert not corrupt.finished
    after = decode(b"gzip", [CODED[b"gzip"] + b"x", b"y"])
    assert after.pieces == (TEXT, b"")
    assert after.problem == "something follows the end of the compressed body"
    assert after.finished


@pytest.mark.parametrize("coding", [b"br", b"gzip,gzip", b"\xff"])
def test_another_coding_is_named(coding: bytes) -> None:
    found = decode(coding, [b"abc"])
    assert found.pieces == (b"",)
    assert not found.finished
    assert found.problem is not None
    assert coding.decode("ascii", "backslashreplace") in found.problem


@pytest.mark.parametrize("bound", [len(TEXT) - 1, 13])
def test_no_more_than_the_bound_is_decoded(monkeypatch: pytest.MonkeyPatch, bound: int) -> None:
    monkeypatch.setattr(decoding, "MAX_DECODED", bound)
    deflate = zlib.compressobj(wbits=31)
    pieces = [
        deflate.compress(TEXT[:13]) + deflate.flush(zlib.Z_SYNC_FLUSH),
        deflate.compress(TEXT[13:]) + deflate.flush(),
    ]
    found = decode(b"gzip", pieces)
    assert found.problem == "larger than 0 MiB once decoded"
    assert b"".join(found.pieces) == TEXT[:bound]
    monkeypatch.setattr(decoding, "MAX_DECODED", len(TEXT))
    assert decode(b"gzip", pieces).problem is None
