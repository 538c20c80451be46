"""The catalogue: docs/faults.md says what the code says, and every example has an effect."""

from pathlib import Path

import pytest

from mockllm.core.faults.base import Fault, keys_of
from mockllm.core.faults.bend import bend
from mockllm.core.faults.catalogue import CATALOGUE
from mockllm.core.faults.describe import example, markdown, page, sample, table, written
from mockllm.core.faults.spec import parse
from mockllm.core.http1 import scan

DOCS = Path(__file__).parents[3] / "docs" / "faults.md"
MARK = "a test compares it with the code -->\n"


def catalogue_of(text: str) -> tuple[str, str]:
    """What stands in docs/faults.md up to the catalogue, and the catalogue."""
    before, mark, after = text.partition(MARK)
    assert mark, "docs/faults.md has no catalogue"
    return before + mark, after


def test_the_docs_have_the_catalogue_of_the_code() -> None:
    _, catalogue = catalogue_of(DOCS.read_text(encoding="utf-8"))
    assert catalogue == f"\n{markdown(CATALOGUE)}"


def test_the_sample_is_a_whole_answer() -> None:
    found = scan(sample())
    assert found.done
    assert found.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("fault", CATALOGUE.values(), ids=CATALOGUE)
def test_every_example_has_an_effect_on_the_sample(fault: type[Fault]) -> None:
    faults = [step.fault for step in parse(fault.example, CATALOGUE)]
    assert any(type(one) is fault for one in faults)
    assert bend(sample(), faults).idle == (None,) * len(faults)
    before, after = example(fault, CATALOGUE)
    assert before != after


@pytest.mark.parametrize("fault", CATALOGUE.values(), ids=CATALOGUE)
def test_a_page_says_all_there_is(fault: type[Fault]) -> None:
    text = page(fault, CATALOGUE)
    assert text.startswith(written(fault))
    for key, item in keys_of(fault).items():
        assert f"  {key}" in text
        assert item.metadata["doc"] in text
    assert fault.example in text


def test_the_table_has_every_fault_once_under_its_family() -> None:
    rows = table(CATALOGUE)
    assert [row[1].partition(":")[0] for row in rows] == list(CATALOGUE)
    families = [family for family, _, _ in rows]
    assert families == sorted(families, key=families.index), "a family's faults stand together"
    assert all(what.endswith(".") for _, _, what in rows)


if __name__ == "__main__":
    head, _ = catalogue_of(DOCS.read_text(encoding="utf-8"))
    DOCS.write_text(f"{head}\n{markdown(CATALOGUE)}", encoding="utf-8")
