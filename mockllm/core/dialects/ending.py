"""How far a body, as it comes in, has got in its protocol: the events so far, and whether its own end is reached.

The recorder asks it when a client leaves, and for its log. It decodes and parses for this only, within bounds, and
gives up quietly: no body makes it raise. It must not know sockets or HTTP framing.
"""

import zlib

from mockllm.core.dialects.base import Meaning
from mockllm.core.dialects.reading import meaning
from mockllm.core.events import Kind, reader_for

MAX_EVENT = 4 * 1024 * 1024
"""An event longer than this is not waited for (bytes, decoded)."""

MAX_DECODED = 32 * 1024 * 1024
"""A compressed body is not decoded beyond this: bytes, and SPAN_COST more for each event, comment or blank line."""

SPAN_COST = 64
"""Without it a few kB that hold millions of blank lines would keep the recorder busy for a minute."""

_SLICE = 64 * 1024

_PLAIN = (b"", b"identity")
# zlib finds by itself whether the header is gzip's or zlib's.
_ZLIB = (b"gzip", b"x-gzip", b"deflate")
_AUTO_WBITS = 32 + zlib.MAX_WBITS


class ProtocolEnd:
    """Feed it body bytes without framing, as sent; `seen` turns true with the event that ends the protocol.

    It stays false for what is no stream of events, for other encodings (br, zstd, several) and bad ones, and past
    the bounds. Until then `events` counts those that a client gets, and `begun` tells whether one came that is no ping.
    """

    __slots__ = ("_budget", "_inflate", "_reader", "begun", "events", "seen")

    def __init__(self, content_type: bytes | None, content_encoding: bytes | None = None) -> None:
        self.seen = self.begun = False
        self.events = 0
        coding = (content_encoding or b"").strip().lower()
        self._reader = reader_for(content_type, MAX_EVENT) if coding in _PLAIN + _ZLIB else None
        self._inflate = zlib.decompressobj(_AUTO_WBITS) if coding in _ZLIB else None
        self._budget = MAX_DECODED

    def feed(self, data: bytes) -> None:
        """The next body bytes, in pieces of any size."""
        if self._inflate is None:
            self._read(data)
            return
        full = True
        while full and self._reader is not None:
            decoded = self._decode(self._inflate, data)
            data = self._inflate.unconsumed_tail
            full = len(decoded) == _SLICE
            self._read(decoded)

    def _decode(self, inflate: "zlib._Decompress", data: bytes) -> bytes:
        """At most a slice of what these bytes hold, so that a small read which blows up takes little memory."""
        try:
            return inflate.decompress(data, _SLICE)
        except zlib.error:
            self._reader = None
            return b""

    def _read(self, body: bytes) -> None:
        if self._reader is None:
            return
        found = self._reader.feed(body)
        for event in found:
            carried = meaning(event)
            self.seen = self.seen or Meaning.DONE in carried
            if event.kind is Kind.EVENT:
                self.events += 1
                self.begun = self.begun or Meaning.PING not in carried
        self._budget -= len(body) + SPAN_COST * len(found)
        over = self._inflate is not None and (self._inflate.eof or self._budget < 0)
        if self.seen or self._reader.gave_up or over:
            self._reader = None
