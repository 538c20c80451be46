"""What a base URL says beside the server's own path."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.prefix import Prefixed, PrefixError, session_name, strip

ALLOWED = "ABCXYZabcxyz0189._:,=+-"
SEGMENT = st.text(ALLOWED, min_size=1, max_size=20).filter(
    lambda said: not said.startswith("session=") and "path=" not in said
)
NAME = st.text("ABCXYZabcxyz0189._:-", min_size=1, max_size=100)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"/v1/chat", Prefixed(b"/v1/chat")),
        (b"*", Prefixed(b"*")),
        (b"/v1/~crlf", Prefixed(b"/v1/~crlf")),
        (b"/v1?x=/~crlf/", Prefixed(b"/v1?x=/~crlf/")),
        (b"http://h:1/v1", Prefixed(b"http://h:1/v1")),
        (b"/~crlf/v1/chat?x=1", Prefixed(b"/v1/chat?x=1", spec="crlf")),
        (b"/~crlf+cut:at=3ev,end=rst/v1", Prefixed(b"/v1", spec="crlf+cut:at=3ev,end=rst")),
        (b"/~crlf%2Bcut%3Aat%3D3ev/v1", Prefixed(b"/v1", spec="crlf+cut:at=3ev")),
        (b"/%7Ecrlf/%7esession=t/v1", Prefixed(b"/v1", "t", "crlf")),
        (b"/~session=t1/v1", Prefixed(b"/v1", "t1")),
        (b"/~session=t1/~crlf+cut:at=3ev/v1", Prefixed(b"/v1", "t1", "crlf+cut:at=3ev")),
        (b"/~crlf/~none/~split/v1", Prefixed(b"/v1", spec="crlf+none+split")),
        (b"/~session=a/~session=b/v1", Prefixed(b"/v1", "b")),
        (b"/~crlf", Prefixed(b"/", spec="crlf")),
        (b"/~crlf/", Prefixed(b"/", spec="crlf")),
        (b"/~crlf?x=1", Prefixed(b"/?x=1", spec="crlf")),
        (b"/~crlf?x=a/~b/c", Prefixed(b"/?x=a/~b/c", spec="crlf")),
        (b"/~crlf//v1", Prefixed(b"//v1", spec="crlf")),
        (b"http://h:1/~crlf/v1?x", Prefixed(b"/v1?x", spec="crlf")),
        (b"/~crlf/a%2Fb%7E", Prefixed(b"/a%2Fb%7E", spec="crlf")),
    ],
)
def test_what_is_left_of_a_target_and_what_it_says(target: bytes, expected: Prefixed) -> None:
    assert strip(target) == expected


@given(st.lists(SEGMENT, min_size=1, max_size=4), st.none() | NAME, st.booleans())
def test_any_segments_come_off_and_are_decoded_once(specs: list[str], name: str | None, encoded: bool) -> None:
    said = [*([] if name is None else [f"session={name}"]), *specs]
    prefix = "".join(f"/~{quote(one, safe='') if encoded else one}" for one in said)
    assert strip(f"{prefix}/v1/x?y=%7E".encode()) == Prefixed(b"/v1/x?y=%7E", name, "+".join(specs))


@given(st.binary(max_size=30))
def test_a_target_without_a_prefix_stays_byte_for_byte(path: bytes) -> None:
    target = b"/v1" + path
    assert strip(target) == Prefixed(target)


@pytest.mark.parametrize(
    "segment",
    [
        "",
        "comment:text=%20",
        "comment:text=a%2520b",
        "crlf;",
        "a%2Fb",
        "%00",
        "%ff",
        "\u00e9",
        "cut:at=50%25",
        "~",
        "a b",
    ],
)
def test_other_characters_are_refused_and_the_message_says_where_they_go(segment: str) -> None:
    with pytest.raises(PrefixError) as caught:
        strip(f"/~{segment}/v1".encode())
    assert "use the header mockllm-fault or PUT /_mockllm/faults" in str(caught.value)
    assert (caught.value.status, caught.value.kind) == (400, "mockllm_bad_prefix")
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("segment", ["crlf:path=x", "cut:at=1ev,path=v1", "crlf+cut:at=1ev,path%3Dv1"])
def test_a_path_cannot_stand_in_a_prefix(segment: str) -> None:
    with pytest.raises(PrefixError, match="path= cannot stand in a URL prefix; use the header mockllm-fault"):
        strip(f"/~{segment}/v1".encode())


def test_a_value_that_only_looks_like_a_path_key_is_left_to_the_spec() -> None:
    assert strip(b"/~comment:text=path=x/v1").spec == "comment:text=path=x"


@given(NAME)
def test_session_names(name: str) -> None:
    assert session_name(name) == name
    assert strip(f"/~session={name}/".encode()).session == name


@pytest.mark.parametrize("name", ["", "a/b", "a b", "a" * 101, "\u00e9", "a\n", "a+b", "a,b"])
def test_what_is_no_session_name(name: str) -> None:
    with pytest.raises(PrefixError, match="a name is 1 to 100 of the characters"):
        session_name(name)
