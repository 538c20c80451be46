"""The numbers that the events of OpenAI's Responses carry, for new events that stand between them."""

from bisect import bisect_right
from collections.abc import Callable

from mockllm.core.faults.view import View


def sequence(view: View) -> Callable[[int], int]:
    """A function that says the `sequence_number` of the last event before an offset that has one; -1 if none has."""
    stops, numbers = [0], [-1]
    for event in view.events:
        value = event.json()
        number = value.get("sequence_number") if isinstance(value, dict) else None
        if isinstance(number, int):
            stops.append(event.stop)
            numbers.append(number)
    return lambda offset: numbers[bisect_right(stops, offset) - 1]
