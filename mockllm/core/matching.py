"""Whether a request asks for what was recorded: matchers that say why not, and keys that are equal where they do not.

Credentials never count. It must not know which recordings there are, nor in what order they play.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from operator import itemgetter

from mockllm.core.content import Form, Json, content_of
from mockllm.core.differences import Difference, content_differences, list_difference
from mockllm.core.exchange import Request
from mockllm.core.jsonvalue import canonical
from mockllm.core.redact import decoded, redact_target, redact_value
from mockllm.core.rules import DEFAULT, Matcher, Rules
from mockllm.core.shown import escaped, shown_pair

ANY_TARGET = b"*"
"""The target of a recording that answers every target. (RFC 9112 §3.2.4 leaves `*` to OPTIONS; there it is itself.)"""

MAX_DIFFERENCES = 5
"""So many differences of a matcher are told at most."""

_ABSOLUTE = re.compile(rb"\A[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")

Pairs = tuple[tuple[bytes, bytes], ...]


def any_target(recorded: Request) -> bool:
    """Whether a recording answers every target."""
    return recorded.target == ANY_TARGET and recorded.method != "OPTIONS"


def path_of(target: bytes) -> bytes:
    """The path of a target, byte for byte; of an absolute URL, what follows the host (RFC 9112 §3.2.2)."""
    return _split(target)[0]


def pairs_of(target: bytes, rules: Rules = DEFAULT) -> Pairs:
    """The query's (name, value) pairs that count, decoded, sorted by name; equal names keep their order.

    Servers look parameters up by name: the order of different names, the way they are encoded, empty pieces (`&&`) and
    whether an empty value has its `=` count for nothing. Credentials and ignored names are left out.
    """
    query = _split(redact_target(target, rules.secrets))[1]
    if not query or Matcher.QUERY not in rules.matchers:
        return ()
    secret, ignored = rules.secrets.query, rules.ignore_query
    pieces = (piece.partition(b"=") for piece in query.split(b"&") if piece)
    pairs = ((decoded(name), decoded(value)) for name, _, value in pieces)
    kept = (pair for pair in pairs if pair[0].lower() not in secret and pair[0] not in ignored)
    return tuple(sorted(kept, key=itemgetter(0)))


def headers_of(request: Request, rules: Rules) -> tuple[tuple[bytes, tuple[bytes, ...]], ...]:
    """The headers that count, each name in lower case with all its values in order, as they are written on tape."""
    return tuple(
        (
            name,
            tuple(
                redact_value(name, value, rules.secrets) for other, value in request.headers if other.lower() == name
            ),
        )
        for name in rules.counted_headers
    )


def explain(asked: Request, recorded: Request, rules: Rules = DEFAULT) -> tuple[Difference, ...]:
    """All that a recording differs in from a request, MAX_DIFFERENCES of a matcher at most, safe to print.

    In the order method, path, query, headers, body; none where it answers.
    """
    return tuple(one for found in _found(asked, recorded, rules) for one in found[:MAX_DIFFERENCES])


def reasons(asked: Request, recorded: Request, rules: Rules = DEFAULT) -> tuple[str, ...]:
    """All the reasons why a recording does not answer a request, one line a matcher, safe to print; none where it does.

    Each says what `explain` gives of its matcher, and whether there is more.
    """
    return tuple(map(_reason, _found(asked, recorded, rules)))


def method(asked: Request, recorded: Request, rules: Rules) -> Iterator[Difference]:
    """Methods are equal as they stand (RFC 9110 §9.1: case counts)."""
    if Matcher.METHOD in rules.matchers and asked.method != recorded.method:
        yield Difference("method", "", escaped(asked.method), escaped(recorded.method))


def path(asked: Request, recorded: Request, rules: Rules) -> Iterator[Difference]:
    """Paths are equal byte for byte; scheme, host and port of an absolute URL count for nothing."""
    ours, theirs = path_of(asked.target), path_of(recorded.target)
    if Matcher.PATH in rules.matchers and ours != theirs and not any_target(recorded):
        yield Difference("path", "", *shown_pair(ours, theirs))


def query(asked: Request, recorded: Request, rules: Rules) -> Iterator[Difference]:
    """Queries are equal where their pairs are (see `pairs_of`)."""
    ours, theirs = pairs_of(asked.target, rules), pairs_of(recorded.target, rules)
    if ours == theirs or any_target(recorded):
        return
    for name in sorted({name for name, _ in (*ours, *theirs)}):
        mine, other = ([value for one, value in pairs if one == name] for pairs in (ours, theirs))
        if mine != other:
            yield list_difference("query", name, mine, other)


def headers(asked: Request, recorded: Request, rules: Rules) -> Iterator[Difference]:
    """Headers that the rules name are equal where all their values are, in order; the case of names is free."""
    for (name, mine), (_, other) in zip(headers_of(asked, rules), headers_of(recorded, rules), strict=True):
        if mine != other:
            yield list_difference("headers", name, mine, other)


def body(asked: Request, recorded: Request, rules: Rules) -> Iterator[Difference]:
    """Bodies are equal as JSON values where both are JSON (see `jsonvalue`), part by part where both are multipart,
    else byte for byte.

    A recorded None is any body. An asked None is a body too large to be kept: nothing is known of it.
    """
    ours, theirs = asked.body, recorded.body
    if Matcher.BODY not in rules.matchers or theirs is None:
        return
    if ours is None:
        yield Difference("body", "", "too large to be compared", f"{len(theirs)} bytes")
        return
    mine, other = content_of(asked, ours, rules), content_of(recorded, theirs, rules)
    yield from content_differences((ours, mine), (theirs, other), rules.secrets.fields)


MATCHERS = (method, path, query, headers, body)


def key(recorded: Request, rules: Rules = DEFAULT) -> bytes:
    """16 bytes that name what a recording answers: a request that it answers has this among its `keys`.

    Two requests whose bodies are known, neither of any target, have the same key exactly where `reasons` finds none.
    """
    target = None if any_target(recorded) else _target_part(recorded, rules)
    return _digest(_fixed_part(recorded, rules), target, _body_part(recorded, rules))


def keys(asked: Request, rules: Rules = DEFAULT) -> tuple[bytes, ...]:
    """The keys under which a recording that answers a request may stand, the most particular first.

    That is: this target and body, this target and any body, any target and this body, any target and any body.
    """
    fixed, target, content = _fixed_part(asked, rules), _target_part(asked, rules), _body_part(asked, rules)
    parts = ((target, content), (target, None), (None, content), (None, None))
    return tuple(dict.fromkeys(_digest(fixed, *part) for part in parts))


def _digest(fixed: object, target: object, content: object) -> bytes:
    # The repr of strings, bytes, tuples and None is different for different values.
    return _hash(repr((fixed, target, content)).encode())


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _fixed_part(request: Request, rules: Rules) -> object:
    """What no recording leaves open."""
    return request.method if Matcher.METHOD in rules.matchers else None, headers_of(request, rules)


def _target_part(request: Request, rules: Rules) -> object:
    """None where no target counts: then all recordings are of any target."""
    if rules.matchers.isdisjoint((Matcher.PATH, Matcher.QUERY)):
        return None
    return path_of(request.target) if Matcher.PATH in rules.matchers else None, pairs_of(request.target, rules)


def _body_part(request: Request, rules: Rules) -> object:
    if request.body is None or Matcher.BODY not in rules.matchers:
        return None
    content = content_of(request, request.body, rules)
    if isinstance(content, Json):
        return "json", _hash(canonical(content.value))
    if isinstance(content, Form):
        return "form", tuple((part.name, part.filename, part.type, _hash(part.content)) for part in content.parts)
    return "bytes", _hash(content)


def _split(target: bytes) -> tuple[bytes, bytes]:
    """Path and query of a target."""
    absolute = _ABSOLUTE.match(target)
    path, _, query = target[absolute.end() if absolute else 0 :].partition(b"?")
    return path or b"/", query


def _found(asked: Request, recorded: Request, rules: Rules) -> Iterator[list[Difference]]:
    """The differences of each matcher that has any, one more than are told at most."""
    for matcher in MATCHERS:
        found = list(islice(matcher(asked, recorded, rules), MAX_DIFFERENCES + 1))
        if found:
            yield found


def _reason(found: list[Difference]) -> str:
    told = "; ".join(map(str, found[:MAX_DIFFERENCES]))
    return f"{found[0].matcher}: {told}{'; and more' if len(found) > MAX_DIFFERENCES else ''}"
