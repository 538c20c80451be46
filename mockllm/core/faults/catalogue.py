"""Every fault by its name, in the order in which the catalogue shows them."""

from mockllm.core.faults.base import Fault
from mockllm.core.faults.content import CONTENT
from mockllm.core.faults.ends import ENDS
from mockllm.core.faults.instead import INSTEAD
from mockllm.core.faults.keepalives import KEEPALIVES
from mockllm.core.faults.more import MORE
from mockllm.core.faults.segments import SEGMENTS
from mockllm.core.faults.spelling import SPELLING
from mockllm.core.faults.time import TIME

_FAMILIES: tuple[tuple[type[Fault], ...], ...] = (
    TIME,
    KEEPALIVES,
    MORE,
    SPELLING,
    SEGMENTS,
    ENDS,
    CONTENT,
    INSTEAD,
)

CATALOGUE: dict[str, type[Fault]] = {fault.name: fault for family in _FAMILIES for fault in family}
