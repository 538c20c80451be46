"""The fault language: every fault can be written and read back; a wrong spec says where, what and what is nearest."""
# ruff: noqa: RUF009  (key() makes a field)

from dataclasses import MISSING, Field, dataclass
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints
from urllib.parse import quote

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from mockllm.core.errors import UsageError
from mockllm.core.faults.base import Fault, Forever, Micros, Position, Unit, key, keys_of
from mockllm.core.faults.catalogue import CATALOGUE
from mockllm.core.faults.spec import (
    SpecError,
    Step,
    When,
    duration,
    duration_text,
    join,
    parse,
    position_of,
    render,
)
from mockllm.core.response import Response

LARGEST = 10**15


@dataclass(frozen=True, slots=True)
class Toy:
    """A fault with a key of every kind."""

    name: ClassVar[str] = "toy"
    family: ClassVar[str] = "Toys"
    example: ClassVar[str] = "toy:at=1ev"

    at: Position = key("a place")
    for_: Micros | Forever = key("a time or for ever", "forever")
    ms: Micros | None = key("a time in ms", None, unit="ms")
    retry_after: Micros | None = key("a time in s", None, unit="s")
    count: int | None = key("a whole number", None)
    rate: float = key("a number", 1.0)
    text: str | None = key("a text", None)
    event: Literal["finish", "done"] | int | None = key("a word or a number", None)
    end: Literal["fin", "rst"] = key("a word", "fin")
    loud: bool = key("a flag", False)

    def __post_init__(self) -> None:
        if self.count == 13:
            raise ValueError("13 brings bad luck")

    def __call__(self, response: Response) -> Response:
        return response


@dataclass(frozen=True, slots=True)
class Seeded:
    """A fault with a seed of its own, and nothing that is needed."""

    name: ClassVar[str] = "seeded"
    family: ClassVar[str] = "Toys"
    example: ClassVar[str] = "seeded"

    seed: int = key("decides", 0)

    def __call__(self, response: Response) -> Response:
        return response


TOYS: dict[str, type[Fault]] = {"toy": Toy, "seeded": Seeded}
START = Position(Unit.EVENTS, 1)


def only(text: str) -> Step:
    (step,) = parse(text, TOYS)
    return step


def toy(keys: str) -> Toy:
    fault = only(f"toy:at=1ev,{keys}").fault
    assert isinstance(fault, Toy)
    return fault


def refusal(text: str) -> tuple[int, str]:
    """Where and why a spec is refused."""
    with pytest.raises(SpecError) as caught:
        parse(text, TOYS)
    start = f"fault spec, character {caught.value.position + 1}: "
    told = str(caught.value)
    assert told.startswith(start)
    assert "\n" not in told
    return caught.value.position, told.removeprefix(start)


# ---------------------------------------------------------------- everything in the catalogue

WHOLE = st.integers(0, LARGEST)
FRACTION = st.floats(0, LARGEST, allow_nan=False).map(abs)
POSITIONS = (
    st.builds(Position, st.sampled_from([Unit.EVENTS, Unit.BYTES, Unit.TIME]), WHOLE)
    | st.floats(0, 100, allow_nan=False).map(lambda share: Position(Unit.PERCENT, abs(share)))
)  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.text("+,=:%&;/~{}\"' \r\n\0é\u2028")
BY_TYPE = {Position: POSITIONS, Micros: WHOLE, int: WHOLE, float: FRACTION, str: TEXT, bool: st.booleans()}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """The values of a field of that type, None aside."""
    if hint in BY_TYPE:
        return BY_TYPE[hint]
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    return st.one_of(values(choice) for choice in get_args(hint) if choice is not type(None))


def field_values(item: "Field[Any]", hint: Any) -> st.SearchStrategy[Any]:
    return values(hint) if item.default is MISSING else st.just(item.default) | values(hint)


@st.composite
def steps(draw: st.DrawFn, catalogue: dict[str, type[Fault]]) -> Step:
    kind = draw(st.sampled_from(list(catalogue.values())))
    hints = get_type_hints(kind)
    keys = {item.name: draw(field_values(item, hints[item.name])) for item in keys_of(kind).values()}
    try:
        fault = kind(**keys)
    except ValueError:
        assume(False)
    seed = keys.get("seed", draw(st.just(0) | WHOLE))
    p = draw(st.just(1.0) | st.floats(0, 1).map(abs))
    when = When(draw(st.none() | WHOLE), draw(st.just(0) | WHOLE), p, seed, draw(st.none() | TEXT))
    return Step(fault, when)


@given(st.lists(steps(CATALOGUE | TOYS), max_size=4))
@example([Step(Toy(START, rate=1e-7), When(p=5e-324))])
@example([Step(Toy(Position(Unit.PERCENT, 0.1), rate=0.1 + 0.2))])
@example([Step(Toy(START, text="")), Step(Seeded(7), When(seed=7))])
def test_what_is_written_is_read_back(spec: list[Step]) -> None:
    text = render(tuple(spec))
    assert parse(text, CATALOGUE | TOYS) == tuple(spec)
    assert render(parse(text, CATALOGUE | TOYS)) == text


@given(st.text() | st.text("toy:at=1ev,fr+%20.\ud800"))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        spec = parse(text, TOYS)
    except SpecError:
        position, told = refusal(text)
        assert 0 <= position <= len(text)
        assert len(told.splitlines()) == 1
        return
    assert parse(render(spec), TOYS) == spec


@given(st.lists(steps(TOYS), min_size=1, max_size=3), st.data())
def test_a_wrong_step_is_found_wherever_it_stands(spec: list[Step], data: st.DataObject) -> None:
    parts = [render((step,)) for step in spec]
    place = data.draw(st.integers(0, len(parts)))
    text = "+".join([*parts[:place], "tpy:at=1ev", *parts[place:]])
    position, told = refusal(text)
    assert text[position:].startswith("tpy")
    assert told == "unknown fault 'tpy'; the nearest is 'toy'"


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_example_of_every_fault_can_be_read(name: str) -> None:
    spec = parse(CATALOGUE[name].example, CATALOGUE)
    assert spec[0].fault.name == name
    assert parse(render(spec), CATALOGUE) == spec


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_keys_of_every_fault_are_described_and_none_is_reserved(name: str) -> None:
    items = keys_of(CATALOGUE[name])
    assert not {"times", "skip", "p", "path"} & set(items)
    assert all(item.metadata["doc"] for item in items.values())
    assert "seed" not in items or items["seed"].default == 0


# ---------------------------------------------------------------- how it is read


def test_the_spec_of_the_design() -> None:
    spec = parse("crlf+keepalive:every=500ms,style=mlx+cut:at=3ev,end=rst", CATALOGUE)
    assert [step.fault.name for step in spec] == ["crlf", "keepalive", "cut"]
    assert spec[2].fault == CATALOGUE["cut"](Position(Unit.EVENTS, 3), "rst")
    assert {step.when for step in spec} == {When()}


def test_the_spec_of_c14_counts_requests() -> None:
    first, second = parse("status:code=429,retry-after=1,times=1+status:code=529,skip=1,times=1", CATALOGUE)
    assert first.when == When(times=1)
    assert second.when == When(times=1, skip=1)


def test_all_that_is_reserved() -> None:
    step = only("toy:times=3,at=1ev,skip=2,p=0.25,seed=9,path=/v1/*")
    assert step == Step(Toy(START), When(3, 2, 0.25, 9, "/v1/*"))


def test_a_seed_of_the_fault_is_the_seed_of_its_firing() -> None:
    assert only("seeded:seed=5,p=0.5") == Step(Seeded(5), When(p=0.5, seed=5))
    assert only("seeded") == Step(Seeded(), When())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("none", []),
        ("seeded+none", []),
        ("none+seeded", ["seeded"]),
        ("seeded+none+toy:at=1ev+none+seeded", ["seeded"]),
        ("seeded:", ["seeded"]),
    ],
)
def test_none_restarts_the_list(text: str, names: list[str]) -> None:
    assert [step.fault.name for step in parse(text, TOYS)] == names


def test_no_fault_is_written_as_none() -> None:
    assert render(()) == "none"


def test_specs_of_one_source_are_one_spec() -> None:
    assert join(["crlf", "", "none", "cut:at=1ev"]) == "crlf+none+cut:at=1ev"
    assert join([]) == ""


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("a:b=c", "a:b=c"),
        ("%2B%2C%0A", "+,\n"),
        ("%252B", "%2B"),
        ("100%", "100%"),
        ("%zz", "%zz"),
        ("", ""),
        ("é%C3%A9", "éé"),
        ("%E2%80%A8%00%0D", "\u2028\0\r"),
    ],
)
def test_a_value_is_decoded_once_and_later_colons_and_equals_are_its_own(raw: str, text: str) -> None:
    assert toy(f"text={raw}").text == text


def test_keys_are_written_without_pythons_needs() -> None:
    assert toy("for=2s").for_ == 2_000_000
    assert toy("retry-after=2").retry_after == 2_000_000
    assert render((Step(Toy(START, for_=Micros(5), retry_after=Micros(7))),)) == "toy:at=1ev,for=5us,retry-after=7us"


def test_a_key_takes_what_its_type_says() -> None:
    assert toy("for=forever").for_ == "forever"
    assert toy("event=done").event == "done"
    assert toy("event=3").event == 3
    assert toy("loud").loud is True
    assert toy("rate=0.5").rate == 0.5
    assert toy("count=0007").count == 7


def test_only_what_differs_from_the_default_is_written() -> None:
    assert render((Step(Toy(START, for_="forever", end="fin", loud=False, rate=1)),)) == "toy:at=1ev"
    assert render((Step(Toy(START, loud=True), When(p=0.5)),)) == "toy:at=1ev,loud,p=0.5"


@pytest.mark.parametrize(
    ("text", "unit", "us"),
    [
        ("250ms", None, 250_000),
        ("2s", None, 2_000_000),
        ("1m", None, 60_000_000),
        ("7us", None, 7),
        ("0.5ms", None, 500),
        ("1.0005s", None, 1_000_500),
        ("0s", None, 0),
        ("3000", "ms", 3_000_000),
        ("1.5", "s", 1_500_000),
        ("20ms", "s", 20_000),
        ("3000", None, None),
        ("1h", None, None),
        ("-1s", None, None),
        (".5s", None, None),
        ("1.s", None, None),
        ("1e3s", None, None),
        ("1 s", None, None),
        ("s", None, None),
        ("", "ms", None),
        ("١s", None, None),
        ("16666666m", None, 999_999_960_000_000),
        ("16666667m", None, None),
        ("9" * 5000 + "s", None, None),
    ],
)
def test_durations(text: str, unit: str | None, us: int | None) -> None:
    assert duration(text, unit) == us


@pytest.mark.parametrize(
    ("us", "text"),
    [(0, "0s"), (1, "1us"), (1500, "1500us"), (250_000, "250ms"), (90_000_000, "90s"), (120_000_000, "2m")],
)
def test_durations_are_written_in_the_largest_unit(us: int, text: str) -> None:
    assert duration_text(us) == text


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("3ev", Position(Unit.EVENTS, 3)),
        ("0ev", Position(Unit.EVENTS, 0)),
        ("12b", Position(Unit.BYTES, 12)),
        ("50pct", Position(Unit.PERCENT, 50)),
        ("12.5pct", Position(Unit.PERCENT, 12.5)),
        ("100pct", Position(Unit.PERCENT, 100)),
        ("1.5s", Position(Unit.TIME, 1_500_000)),
        ("0" * 5000 + "3ev", Position(Unit.EVENTS, 3)),
        ("100.1pct", None),
        ("1.5ev", None),
        ("-1ev", None),
        ("3", None),
        ("ev", None),
        ("9" * 5000 + "ev", None),
        ("9" * 5000 + "b", None),
        ("1000000000000001b", None),
        ("9" * 5000 + "s", None),
    ],
)
def test_positions(text: str, position: Position | None) -> None:
    assert position_of(text) == position


# ---------------------------------------------------------------- how it is refused

EVERY_KEY = "at, count, end, event, for, loud, ms, p, path, rate, retry-after, seed, skip, text, times"


@pytest.mark.parametrize(
    ("text", "place", "told"),
    [
        ("toi", "toi", "unknown fault 'toi'; the nearest is 'toy'"),
        ("TOY", "TOY", "unknown fault 'TOY'; the nearest is 'toy'"),
        ("none:x=1", ":x=1", "none takes no keys"),
        ("xyzzy", "xyzzy", "unknown fault 'xyzzy'; there are none, seeded, toy"),
        ("seeded+", "", "nothing where a fault was expected; there are none, seeded, toy"),
        ("+seeded", "+seeded", "nothing where a fault was expected; there are none, seeded, toy"),
        ("seeded+sedeed", "sedeed", "unknown fault 'sedeed'; the nearest is 'seeded'"),
        ("seeded toy", "seeded toy", "unknown fault 'seeded toy'; the nearest is 'seeded'"),
        ("toy", "", "toy needs at=, such as toy:at=1ev"),
        ("toy+seeded", "+seeded", "toy needs at=, such as toy:at=1ev"),
        ("toy:loud+seeded", "+seeded", "toy needs at=, such as toy:at=1ev"),
        ("toy:at=1ev,retry_after=1", "retry_after=1", "toy has no key 'retry_after'; the nearest is 'retry-after'"),
        ("toy:at=1ev,tmies=1", "tmies=1", "toy has no key 'tmies'; the nearest is 'times'"),
        ("toy:at=1ev,zzz", "zzz", f"toy has no key 'zzz'; there are {EVERY_KEY}"),
        ("toy:at=1ev,,loud", ",loud", f"nothing where a key was expected; there are {EVERY_KEY}"),
        ("toy:at=1ev,at=2ev", "at=2ev", "toy has at twice"),
        ("toy:at=1ev,for=1s,for=2s", "for=2s", "toy has for twice"),
        ("toy:at=1ev,skip=1,skip=1", "skip=1", "toy has skip twice"),
        ("seeded:seed=1,seed=1", "seed=1", "seeded has seed twice"),
        ("toy:at=1ev,loud=1", "loud=1", "loud is a flag, it takes no value"),
        ("toy:at", "at", "at needs a value: 3ev, 12b, 50pct or a time such as 2s"),
        ("toy:at=3", "at=3", "at='3'; expected 3ev, 12b, 50pct or a time such as 2s"),
        ("toy:at=1ev,end=rts", "end=rts", "end='rts'; expected fin, rst; the nearest is 'rst'"),
        ("toy:at=1ev,end=%2B", "end=%2B", "end='+'; expected fin, rst"),
        ("toy:at=1ev,for=1h", "for=1h", "for='1h'; expected a duration such as 250ms or forever"),
        ("toy:at=1ev,ms=x", "ms=x", "ms='x'; expected a duration such as 250ms, or a number of ms"),
        ("toy:at=1ev,count=1.5", "count=1.5", "count='1.5'; expected a whole number"),
        ("toy:at=1ev,count=-1", "count=-1", "count='-1'; expected a whole number"),
        ("toy:at=1ev,count=1000000000000001", "count=1", "count='1000000000000001'; expected a whole number"),
        ("toy:at=1ev,rate=nan", "rate=nan", "rate='nan'; expected a number"),
        ("toy:at=1ev,rate=1e3", "rate=1e3", "rate='1e3'; expected a number"),
        ("toy:at=1ev,event=x", "event=x", "event='x'; expected finish, done or a whole number"),
        ("toy:at=1ev,count=13", "", "toy: 13 brings bad luck"),
        ("toy:at=1ev,text=%ff", "%ff", "a value that is not UTF-8 once it is percent-decoded"),
        ("toy:at=1ev,text=\udcff", "\udcff", "a value that is not UTF-8 once it is percent-decoded"),
        ("seeded:path=%ff", "%ff", "a value that is not UTF-8 once it is percent-decoded"),
        ("seeded:times", "times", "times=''; expected a whole number of requests"),
        ("seeded:times=-1", "times=-1", "times='-1'; expected a whole number of requests"),
        ("seeded:skip=a", "skip=a", "skip='a'; expected a whole number of requests"),
        ("seeded:p=1.1", "p=1.1", "p='1.1'; expected a probability from 0 to 1"),
        ("toy:seed=a", "seed=a", "seed='a'; expected a whole number"),
        ("seeded:seed=a", "seed=a", "seed='a'; expected a whole number"),
    ],
)  # fmt: skip
def test_a_wrong_spec_says_where_what_and_what_is_nearest(text: str, place: str, told: str) -> None:
    position, found = refusal(text)
    assert found == told
    assert text[position:].startswith(place)
    assert bool(place) or position == len(text)


def test_a_number_of_any_length_is_refused_in_no_time() -> None:
    for key_ in ("count", "rate", "ms", "at"):
        position, _ = refusal(f"seeded+toy:{key_}={'9' * 100_000}")
        assert position == len("seeded+toy:")


def test_a_wrong_spec_is_a_usage_error() -> None:
    error = SpecError(4, "why")
    assert isinstance(error, UsageError)
    assert (error.status, error.exit_code, error.kind) == (400, 2, "mockllm_bad_fault")


@given(TEXT)
def test_a_value_may_also_be_quoted_in_full(text: str) -> None:
    assert toy(f"text={quote(text, safe='')}").text == text
