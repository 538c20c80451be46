"""The blocks of a trace: what curl dumped is read back, whatever the bytes, and what is cut off is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.errors import MockllmError
from mockllm.core.importers.trace_lines import Kind, blocks, is_trace
from tests.core.importers.traces import block, came, info, sent

AT = "18:54:04.747215"
AT_US = ((18 * 60 + 54) * 60 + 4) * 1_000_000 + 747_215
ANY = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from([b"\r\n", b"\r", b"\n", b" ", b"abc", b"x" * 62, b"x" * 64, b".", b"50 4f "])).map(
        b"".join
    ),
)


@given(ANY)
def test_a_dump_in_hex_is_read_back(data: bytes) -> None:
    found, strange = blocks(came(data, "data", at=AT), "t")
    assert [(one.kind, one.at, one.data, one.exact) for one in found] == [(Kind.RECV_DATA, AT_US, data, True)]
    assert strange == 0


@given(ANY)
def test_a_dump_as_text_is_read_back_but_for_bytes_that_do_not_print(data: bytes) -> None:
    [found] = blocks(block("<= Recv", "data", data, text=True), "t")[0]
    at_line_ends = data.replace(b"\r\n", b"\0\0")
    dotted = bytes(byte if 0x20 <= byte < 0x7F or not byte else 0x2E for byte in at_line_ends.replace(b"\0", b"\0"))
    if b"\0" not in data:
        assert found.data == dotted.replace(b"\0\0", b"\r\n")
        assert found.exact == (b"." not in dotted)
    assert len(found.data) == len(data)
    assert found.at is None


def test_kinds_and_ids() -> None:
    trace = (
        info("Trying 127.0.0.1:80...", at=AT, ids="0-x")
        + sent(b"GET / HTTP/1.1\r\n\r\n", at=AT, ids="0-0")
        + sent(b"\x16\x03", "SSL data", at=AT)
        + sent(b"{}", "data")
        + came(b"HTTP/1.1 200 OK\r\n\r\n")
        + came(b"\x17", "SSL data")
        + came(b"", "data")
    )
    found, _ = blocks(trace, "t")
    kinds = [
        Kind.INFO,
        Kind.SEND_HEAD,
        Kind.SSL,
        Kind.SEND_DATA,
        Kind.RECV_HEAD,
        Kind.RECV_HEAD,
        Kind.SSL,
        Kind.RECV_DATA,
    ]
    assert [one.kind for one in found] == kinds
    assert [one.transfer for one in found[:3]] == [b"0-x", b"0-0", b""]
    assert found[0].data == b"Trying 127.0.0.1:80..."
    assert [one.line for one in found[:4]] == [1, 2, 5, 7]


def test_times_go_on_over_midnight_and_never_back() -> None:
    times = ["23:59:59.999999", "00:00:00.000001", "00:00:00.000000", "23:00:00.000000", "01:00:00.000000"]
    found, _ = blocks(b"".join(info("x", at=at) for at in times), "t")
    day = 24 * 3600 * 1_000_000
    assert [one.at for one in found] == [day - 1, day + 1, day + 1, day + 23 * day // 24, 2 * day + day // 24]


def test_the_body_that_curl_printed_in_between_is_passed_over() -> None:
    trace = came(b"hi", "data") + b"hi" + came(b"ho\n", "data") + b"ho\n\n" + b"end" + info("left intact")
    found, strange = blocks(trace, "t")
    assert [one.data for one in found] == [b"hi", b"ho\n", b"left intact"]
    assert strange == 1  # the other two end with a block


def test_a_trace_from_windows_and_one_from_an_editor() -> None:
    trace = block("<= Recv", "header", b"A: \r\n", text=True) + block(
        "<= Recv", "data", b"a \r\nb  \r\n\r\nc", text=True
    )
    for changed in (trace.replace(b"\n", b"\r\n"), b"\n".join(line.rstrip() for line in trace.split(b"\n"))):
        assert [one.data for one in blocks(changed, "t")[0]] == [b"A: \r\n", b"a \r\nb  \r\n\r\nc"]
    hexed = block("<= Recv", "data", b"a b\n\n")
    assert blocks(b"\n".join(line.rstrip() for line in hexed.split(b"\n")), "t")[0][0].data == b"a b\n\n"


@pytest.mark.parametrize(
    ("trace", "told"),
    [
        (came(b"x" * 40, "data")[:-60], "t:1: a block of 40 bytes of which 32 are there"),
        (came(b"x" * 40, "data").split(b"\n")[0], "t:1: a block of 40 bytes of which 0 are there"),
        (b"\n" + block("<= Recv", "data", b"x" * 40, text=True)[:-9], "t:2: a block of 40 bytes of which 0 are there"),
        (block("<= Recv", "data", b"y" * 90, text=True)[:-9], "t:1: a block of 90 bytes of which 64 are there"),
        (block("<= Recv", "data", b"y" * 90, text=True).replace(b"0040", b"0050"), "t:1: a block of 90 bytes of which"),
        (came(b"x" * 40, "data").replace(b"0010:", b"0011:"), "t:1: a block of 40 bytes of which 16 are there"),
    ],
)
def test_a_block_that_is_not_whole_is_refused(trace: bytes, told: str) -> None:
    with pytest.raises(MockllmError) as error:
        blocks(trace, "t")
    assert str(error.value).startswith(told)
    assert str(error.value).endswith("the trace is cut off or edited; take the block out to import the rest")


def test_what_is_a_trace() -> None:
    assert is_trace(b"x\n" + came(b"hi", "data", at=AT, ids="1-0"))
    assert not is_trace(b"data: <= Recv data, many bytes\n\n")
    assert not is_trace(info("Trying"))
