"""mockllm: records what a real LLM server sends, every byte with its time, and replays it exactly.

`mockllm.replay`, `mockllm.record` and `mockllm.load` are the Python API; importing the package loads none of it.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mockllm.api import Cassette as Cassette
    from mockllm.api import Entry as Entry
    from mockllm.api import Event as Event
    from mockllm.api import Recorded as Recorded
    from mockllm.api import RecordServer as RecordServer
    from mockllm.api import ReplayServer as ReplayServer
    from mockllm.api import load as load
    from mockllm.api import record as record
    from mockllm.api import replay as replay
    from mockllm.api import shipped as shipped

__version__ = "0.1.0"

_API = frozenset(
    ("Cassette", "Entry", "Event", "RecordServer", "Recorded", "ReplayServer", "load", "record", "replay", "shipped")
)


class _Package(ModuleType):
    """The functions `replay` and `record` share their names with modules of this package.

    Importing those would put them in the functions' place (the import system sets a submodule as an attribute).
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _API and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in _API:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module("mockllm.api"), name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_API})


sys.modules[__name__].__class__ = _Package
