"""Which recording answers now."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockllm.core.deck import Deck, Drawn, Positions, entry
from mockllm.core.exchange import Request
from mockllm.core.matching import reasons
from mockllm.core.rules import DEFAULT, Matcher, Rules

HELLO = Request("POST", b"/v1/chat/completions", (), b'{"model":"m","messages":[{"role":"user","content":"hello"}]}')
OTHER = Request("POST", b"/v1/chat/completions", (), b'{"model":"m","messages":[{"role":"user","content":"other"}]}')


def deck(*recorded, rules=DEFAULT):
    """A deck whose handles are the places of the recordings."""
    return Deck((entry(request, place, rules) for place, request in enumerate(recorded)), rules)


def test_t8_repeats_play_in_recorded_order_then_the_last_one_again():
    cards, positions = deck(HELLO, OTHER, HELLO, HELLO), {}
    drawn = [cards.draw(HELLO, positions) for _ in range(5)]
    assert drawn == [Drawn(0, False), Drawn(2, False), Drawn(3, False), Drawn(3, True), Drawn(3, True)]
    assert cards.draw(OTHER, positions) == Drawn(1, False)
    assert cards.draw(OTHER, positions) == Drawn(1, True)


def test_t8_a_repeat_is_known_before_it_is_played_and_counts_for_nothing():
    positions: Positions = {}
    deck(HELLO, OTHER).draw(HELLO, positions)
    before = dict(positions)
    assert deck(HELLO, OTHER).draw(HELLO, positions) == Drawn(0, True)
    assert positions == before
    # A recording that was added meanwhile is the next one, and was not used.
    more = deck(HELLO, OTHER, HELLO)
    assert more.unused(positions) == [1, 2]
    assert more.draw(HELLO, positions) == Drawn(2, False)
    # So is a key whose recordings became fewer exhausted.
    assert deck(HELLO).draw(HELLO, positions) == Drawn(0, True)
    assert deck(HELLO).unused(positions) == []


def test_a_deck_plays_by_its_rules():
    rules = Rules(frozenset({Matcher.PATH, Matcher.BODY}), (b"x-tenant",), (("messages",),))
    tenant = Request("PUT", HELLO.target + b"?a=1", ((b"X-Tenant", b"t"),), HELLO.body)
    cards, positions = deck(HELLO, OTHER, tenant, rules=rules), {}
    assert [cards.draw(HELLO, positions) for _ in range(3)] == [Drawn(0, False), Drawn(1, False), Drawn(1, True)]
    assert cards.draw(Request("GET", HELLO.target, ((b"x-tenant", b"t"),), b'{"model":"m"}'), positions) == Drawn(
        2, False
    )
    assert cards.draw(Request("GET", HELLO.target, ((b"x-tenant", b"u"),), HELLO.body), positions) is None


def test_without_path_and_query_recordings_of_any_target_take_their_turn():
    cards, positions = deck(HELLO, Request("POST", b"*", (), None), rules=Rules(frozenset({Matcher.METHOD}))), {}
    assert [cards.draw(OTHER, positions) for _ in range(2)] == [Drawn(0, False), Drawn(1, False)]


def test_t13_two_last_user_messages_are_two_recordings():
    cards, positions = deck(HELLO, OTHER), {}
    assert cards.draw(OTHER, positions) == Drawn(1, False)
    assert cards.draw(HELLO, positions) == Drawn(0, False)


def test_t20_unused_recordings_are_told():
    cards, positions = deck(HELLO, OTHER, HELLO, HELLO), {}
    assert cards.unused(positions) == [0, 1, 2, 3]
    cards.draw(HELLO, positions)
    cards.draw(HELLO, positions)
    assert cards.unused(positions) == [1, 3]
    for _ in range(3):
        cards.draw(HELLO, positions)
        cards.draw(OTHER, positions)
    assert cards.unused(positions) == []


def test_a_miss_draws_nothing():
    cards, positions = deck(HELLO), {}
    for asked in (OTHER, Request("GET", HELLO.target), Request("POST", b"/v1", (), HELLO.body), Request("GET", b"*")):
        assert cards.draw(asked, positions) is None
    assert positions == {}
    assert deck().draw(HELLO, positions) is None


def test_the_most_particular_recordings_answer_and_do_not_give_way():
    any_of_all = Request("POST", b"*", (), None)
    this_body = Request("POST", b"*", (), OTHER.body)
    any_body = Request("POST", HELLO.target, (), None)
    cards, positions = deck(any_of_all, this_body, any_body, HELLO), {}
    assert [cards.draw(HELLO, positions) for _ in range(2)] == [Drawn(3, False), Drawn(3, True)]
    assert cards.draw(OTHER, positions) == Drawn(2, False)
    assert cards.draw(Request("POST", b"/x", (), OTHER.body), positions) == Drawn(1, False)
    assert cards.draw(Request("POST", b"/x", (), b"?"), positions) == Drawn(0, False)
    assert cards.draw(Request("POST", b"/y", (), b"!"), positions) == Drawn(0, True)
    assert cards.draw(Request("GET", b"/y"), positions) is None


def test_recordings_of_any_body_play_in_order_whatever_is_asked():
    cards, positions = deck(*[Request("POST", b"/v1", (), None)] * 2), {}
    asked = [Request("POST", b"/v1", (), b"%d" % number) for number in range(3)]
    assert [cards.draw(one, positions) for one in asked] == [Drawn(0, False), Drawn(1, False), Drawn(1, True)]


def test_positions_of_two_players_do_not_disturb_each_other():
    cards = deck(HELLO, HELLO)
    one: Positions = {}
    two: Positions = {}
    assert cards.draw(HELLO, one) == Drawn(0, False)
    assert cards.draw(HELLO, two) == Drawn(0, False)
    assert cards.draw(HELLO, one) == Drawn(1, False)
    assert cards.unused(two) == [1]


def test_candidates_are_those_of_the_same_method_and_path_in_order():
    get = Request("GET", HELLO.target)
    cards = deck(HELLO, get, Request("POST", b"/v1/completions"), Request("POST", b"http://h" + HELLO.target + b"?a=1"))
    assert [item.handle for item in cards.candidates("POST", HELLO.target)] == [0, 3]
    assert cards.candidates("PUT", HELLO.target) == []
    assert [item.handle for item in cards.entries] == [0, 1, 2, 3]


REQUESTS = st.builds(
    Request,
    st.sampled_from(["GET", "POST"]),
    st.sampled_from([b"/a", b"/a?key=1", b"/b", b"*"]),
    st.sampled_from([(), ((b"X-A", b"1"),)]),
    st.sampled_from([b"[1]", b"[1.0]", b"[1,2]", b"x", None]),
)
RULES = st.builds(
    Rules,
    st.frozensets(st.sampled_from(Matcher)),
    st.sampled_from([(), (b"x-a",)]),
    st.sampled_from([(), (("1",),)]),
)


@given(st.lists(REQUESTS, max_size=6), st.lists(REQUESTS, max_size=8), st.just(DEFAULT) | RULES)
def test_what_is_drawn_answers_and_nothing_answers_a_miss(recorded, asked, rules):
    cards, positions = deck(*recorded, rules=rules), {}
    used = set()
    for request in asked:
        answers = [place for place, other in enumerate(recorded) if reasons(request, other, rules) == ()]
        drawn = cards.draw(request, positions)
        assert (drawn is None) is (answers == [])
        if drawn is not None:
            assert drawn.handle in answers
            assert drawn.repeat is (drawn.handle in used)
            used.add(drawn.handle)
    assert cards.unused(positions) == [place for place in range(len(recorded)) if place not in used]
    assert len(positions) <= len(recorded)


def test_t18_ten_thousand_recordings():
    entries = [entry(Request("POST", b"/v1", (), b'{"n":%d}' % number), number) for number in range(10_000)]
    started = time.perf_counter()
    cards = Deck(entries)
    assert time.perf_counter() - started < 1  # takes some 3 ms
    assert cards.draw(Request("POST", b"/v1", (), b'{ "n": 9999 }'), {}) == Drawn(9999, False)


def test_an_entry_holds_no_body():
    assert HELLO.body
    held = entry(HELLO, 7)
    assert (len(held.key), held.method, held.path, held.handle) == (16, "POST", HELLO.target, 7)
    with pytest.raises(AttributeError):
        held.handle = 8
