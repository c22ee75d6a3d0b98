"""Instructions of the interpreter for each request, beside those of the last release."""

from bench.instructions import PYTHON, InstructionCounter, compare


def add(numbers: list[int]) -> int:
    total = 0
    for number in numbers:
        total += number
    return total


def count_instructions_of_add(numbers: list[int]) -> int:
    counter = InstructionCounter()
    with counter:
        add(numbers)
    return counter.count


def test_instructions_are_counted_alike_in_each_run() -> None:
    none, one, three = (
        count_instructions_of_add([]),
        count_instructions_of_add([1]),
        count_instructions_of_add([1, 2, 3]),
    )
    assert 0 < none < one
    assert three - one == 2 * (one - none)
    assert count_instructions_of_add([1, 2, 3]) == three


def test_counts_stand_beside_those_of_the_release() -> None:
    recorded = {"release": "1.0", "python": PYTHON, "instructions": {"produce-1": 1000}}
    head, produce, fetch = compare({"produce-1": 900, "fetch-1": 500}, recorded)
    assert "1.0" in head
    assert produce.split() == ["produce-1", "900", "1000", "0.90", "×"]
    assert fetch.split() == ["fetch-1", "500"], "what the release did not count has no ratio"


def test_another_version_of_python_has_no_ratio() -> None:
    recorded = {"release": "1.0", "python": "2.7", "instructions": {"produce-1": 1000}}
    _, produce = compare({"produce-1": 900}, recorded)
    assert produce.split() == ["produce-1", "900"]
