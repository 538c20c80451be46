"""core is pure: what it may import, and that nothing in it is random without a seed."""

import ast
from collections.abc import Iterator
from pathlib import Path

import mockllm.core

FOLDER = Path(mockllm.core.__file__).parent
ALLOWED = {
    "array", "base64", "binascii", "bisect", "collections", "dataclasses", "datetime", "decimal", "difflib", "email",
    "enum",
    "fnmatch", "functools", "hashlib", "http", "inspect", "itertools", "json", "math", "msgspec", "operator", "random",
    "re", "struct", "types", "typing", "urllib", "zlib",
}  # fmt: skip
"""Nothing that touches a clock, a socket, a file, or the environment."""
IMPURE = {
    "datetime": ("now", "today", "utcnow"),
    "random": ("random", "choice", "randint", "seed", "shuffle", "SystemRandom"),
}
"""Calls that would make an allowed module impure."""


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(FOLDER.rglob("*.py")):
        yield str(path.relative_to(FOLDER)), ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_core_imports_nothing_that_touches_the_world() -> None:
    found = {(name, module.split(".")[0]) for name, tree in trees() for module in imports(tree)}
    assert len(found) > 50
    assert {(name, module) for name, module in found if module not in ALLOWED | {"mockllm"}} == set()
    deep = {module for _, tree in trees() for module in imports(tree) if module.startswith("mockllm.")}
    assert {module for module in deep if not module.startswith("mockllm.core")} == set()


def test_nothing_in_core_reads_a_clock_or_rolls_dice_without_a_seed() -> None:
    calls = []
    for name, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                if called.attr in IMPURE.get(called.value.id, ()):
                    calls.append(f"{name}:{node.lineno} {called.value.id}.{called.attr}")
                if (called.value.id, called.attr) == ("random", "Random") and not node.args:
                    calls.append(f"{name}:{node.lineno} random.Random without a seed")
            if isinstance(called, ast.Name) and called.id in ("open", "input", "print"):
                calls.append(f"{name}:{node.lineno} {called.id}")
    assert calls == []
