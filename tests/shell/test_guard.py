"""Who may use the control plane: by the Host, the Origin, and the token of a request."""

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.guard import Guard, is_loopback

HERE = {"host": "127.0.0.1:8800"}
TOKEN = "t0ken-t0ken"


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1.2.3", "::1", "localhost", "LOCALHOST", "localhost.", "mock.localhost", "0:0:0:0:0:0:0:1"],
)
def test_this_machine(host: str) -> None:
    assert is_loopback(host)
    authority = f"[{host}]" if ":" in host else host
    for given_host in (authority, f"{authority}:8800"):
        assert Guard(host).refusal({"host": given_host}) is None


@pytest.mark.parametrize(
    "host",
    ["", "0.0.0.0", "::", "10.0.0.1", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "1"],
)
def test_other_machines(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8800", "", "127.0.0.1@evil.example", "[", "[::1", "localhost.evil.example"]
)
def test_a_name_that_points_here_is_not_this_machine(host: str) -> None:
    """DNS rebinding: the page's own name was made to resolve to 127.0.0.1."""
    said = Guard().refusal({"host": host})
    assert said == "the Host header names another machine: ask for 127.0.0.1 or localhost"
    assert Guard().refusal({}) == said


@pytest.mark.parametrize(
    ("origin", "may"),
    [
        ("http://localhost:3000", True),
        ("https://127.0.0.1", True),
        ("http://[::1]:5173", True),
        ("http://evil.example", False),
        ("http://localhost.evil.example", False),
        ("http://evil.example@127.0.0.1.evil.example", False),
        ("null", False),
        ("", False),
        ("localhost", False),
        ("http://[", False),
        ("chrome-extension://abcdef", False),
    ],
)
def test_pages_of_this_machine_may_and_others_may_not(origin: str, may: bool) -> None:
    said = Guard().refusal(HERE | {"origin": origin})
    assert said == (None if may else "a page of another machine may not use this")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "mac.local"])
def test_on_another_host_only_a_token_lets_one_in(host: str) -> None:
    for token in (None, ""):
        for sent in ({}, {"mockllm-token": ""}, {"authorization": "Bearer "}, {"mockllm-token": "None"}):
            said = Guard(host, token).refusal(HERE | sent)
            assert said is not None
            assert "--control-token" in said
    guarded = Guard(host, TOKEN)
    for sent in (
        {},
        {"mockllm-token": TOKEN[:-1]},
        {"mockllm-token": TOKEN + "x"},
        {"authorization": f"Basic {TOKEN}"},
    ):
        said = guarded.refusal(HERE | sent)
        assert said is not None
        assert "mockllm-token: TOKEN" in said
        assert TOKEN not in said
    for sent in ({"mockllm-token": TOKEN}, {"authorization": f"Bearer {TOKEN}"}):
        assert guarded.refusal({"host": "mac.local:8800"} | sent) is None


def test_on_this_machine_a_token_is_not_needed_but_serves_where_the_host_does_not() -> None:
    guarded = Guard("127.0.0.1", TOKEN)
    assert guarded.refusal(HERE) is None
    assert guarded.refusal({"host": "evil.example"}) is not None
    assert guarded.refusal({"host": "forwarded.example", "mockllm-token": TOKEN}) is None


def test_a_token_may_hold_any_character() -> None:
    guarded = Guard("0.0.0.0", "gehe\u00efm \u2603")
    sent = "gehe\u00efm \u2603".encode().decode("latin-1")  # as a header's bytes are read
    assert guarded.refusal({"mockllm-token": sent}) is None
    assert guarded.refusal({"mockllm-token": "gehe\u00efm \u2603"}) is not None


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr(hmac, "compare_digest", compare)
    Guard("0.0.0.0", TOKEN).refusal({"mockllm-token": "guess"})
    assert compared == [(b"guess", TOKEN.encode())]


@given(st.dictionaries(st.sampled_from(["host", "origin", "authorization", "mockllm-token"]), st.text(max_size=40)))
def test_nothing_that_is_sent_makes_it_fail(headers: dict[str, str]) -> None:
    assert isinstance(Guard("0.0.0.0", TOKEN).refusal(headers), str)
    for guarded in (Guard(), Guard("0.0.0.0")):
        assert guarded.refusal({name: value for name, value in headers.items() if name != "host"}) is not None
