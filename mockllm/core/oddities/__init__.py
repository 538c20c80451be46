"""What is odd about a recorded answer: all that a weak client may stumble over, a line each.

Nothing here is forbidden; most of it some server does every day.
"""

from mockllm.core.exchange import Exchange
from mockllm.core.look import Look
from mockllm.core.oddities import borders, ending, head, meaning, spelling

CHECKS = (*head.CHECKS, *ending.CHECKS, *borders.CHECKS, *spelling.CHECKS, *meaning.CHECKS)
"""Each gives the lines of one kind of oddity."""


def odd(exchange: Exchange) -> list[str]:
    """What is odd about an exchange, in the order head, ending, borders, spelling, meaning."""
    return odd_of(Look(exchange))


def odd_of(look: Look) -> list[str]:
    """What is odd about an exchange that was looked into already."""
    return [line for check in CHECKS for line in check(look)]


__all__ = ["CHECKS", "odd", "odd_of"]
