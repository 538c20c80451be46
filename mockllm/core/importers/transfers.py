"""The requests of a curl trace, each with what came back: blocks sorted by transfer.

It must not know how an answer becomes a response.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from mockllm.core.exchange import Request, header
from mockllm.core.http1 import parse_head, scan
from mockllm.core.importers.dots import restored_json
from mockllm.core.importers.trace_lines import Block, Kind
from mockllm.core.response import End, Response, Segment

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([^ \r\n]+) HTTP/[0-9](?:\.[0-9])?\r?\n")
_STATUS_LINE = b"HTTP/1.1 200 OK\r\n"
_CONTINUE = re.compile(rb"HTTP/1\.[01] 100\b")
NO_BODY_KNOWN = "letters outside ASCII may be lost in the request: any body matches (--trace keeps them)"


@dataclass(slots=True)
class Transfer:
    """One request and what came for it: heads, data and what curl said of the connection, in order.

    `began` and `sent` are µs, None without times or without a request. `exact`: the request's body is known byte for
    byte. `early`: an answer began before the request was fully sent.
    """

    head: bytearray = field(default_factory=bytearray)
    body: bytearray = field(default_factory=bytearray)
    began: int | None = None
    sent: int | None = None
    exact: bool = True
    early: bool = False
    came: list[Block] = field(default_factory=list)


def transfers(found: Iterable[Block]) -> list[Transfer]:
    """The transfers of a trace in the order in which they began."""
    made: list[Transfer] = []
    current: dict[bytes, Transfer] = {}
    for block in found:
        name = block.transfer.partition(b"-")[0]
        transfer = current.get(name)
        if block.kind is Kind.SSL or (block.kind is Kind.INFO and transfer is None):
            continue
        if transfer is None or (block.kind is Kind.SEND_HEAD and _is_asked(transfer)):
            transfer = current[name] = Transfer()
            made.append(transfer)
        _take(transfer, block)
    return made


def begins_head(block: Block) -> bool:
    """Is this the first line of a head?"""
    return block.kind is Kind.RECV_HEAD and block.data.startswith(b"HTTP/")


def is_continue(block: Block) -> bool:
    """Is this the first line of 100 Continue?"""
    return _CONTINUE.match(block.data) is not None


def request_of(transfer: Transfer) -> tuple[Request | None, str]:
    """The request of a transfer, None where the trace has none, and what cannot be known of it."""
    line = _REQUEST_LINE.match(transfer.head)
    parsed = parse_head(_STATUS_LINE + bytes(transfer.head[line.end() :])) if line else None
    if line is None or parsed is None:
        return None, ""
    headers = tuple(pair for pair in parsed.headers if pair[0].isascii())
    body, note = _body(transfer, chunked=parsed.values(b"transfer-encoding")[-1:] == [b"chunked"])
    promised = header(headers, b"content-length") or b""
    cut = promised.isdigit() and len(transfer.body) < int(promised)
    request = Request(line[1].decode(), line[2], headers, body, transfer.early or cut, cut)
    return request, note


def _is_asked(transfer: Transfer) -> bool:
    """Is the head of its request whole, or missing for good?"""
    return transfer.head.endswith(b"\r\n\r\n") or any(block.kind is not Kind.INFO for block in transfer.came)


def _take(transfer: Transfer, block: Block) -> None:
    if block.kind not in (Kind.SEND_HEAD, Kind.SEND_DATA):
        transfer.came.append(block)
        return
    if transfer.began is None:
        transfer.began = block.at
    transfer.sent = block.at
    transfer.exact = transfer.exact and (block.exact or block.kind is Kind.SEND_HEAD)
    transfer.early = transfer.early or any(_answers(come) for come in transfer.came)
    (transfer.head if block.kind is Kind.SEND_HEAD else transfer.body).extend(block.data)


def _answers(block: Block) -> bool:
    return block.kind is Kind.RECV_DATA or (begins_head(block) and not is_continue(block))


def _body(transfer: Transfer, *, chunked: bool) -> tuple[bytes | None, str]:
    body = bytes(transfer.body)
    if chunked:
        wire = _STATUS_LINE + b"Transfer-Encoding: chunked\r\n\r\n" + body
        body = scan(Response((Segment(0, before=wire),), End.CLIENT, 0)).body
    if transfer.exact or not body:
        return body, ""
    restored = restored_json(body)
    return restored, NO_BODY_KNOWN if restored is None else ""
