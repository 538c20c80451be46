"""What the events of each server family mean: one file a family, asked through the functions named here."""

from mockllm.core.dialects.base import Meaning
from mockllm.core.dialects.ending import ProtocolEnd
from mockllm.core.dialects.guess import family
from mockllm.core.dialects.reading import is_end, meaning, text

__all__ = ["Meaning", "ProtocolEnd", "family", "is_end", "meaning", "text"]
