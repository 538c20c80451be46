"""Reads captures that people have into exchanges: one file a source, chosen by content."""

from mockllm.core.importers.base import AS, As, Given, Imported
from mockllm.core.importers.choose import KNOWN_SECRETS, read_capture

__all__ = ["AS", "KNOWN_SECRETS", "As", "Given", "Imported", "read_capture"]
