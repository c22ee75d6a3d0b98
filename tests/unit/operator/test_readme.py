"""README's table of APIs is what the broker says. `python -m tests.unit.operator.test_readme` writes it."""

from pathlib import Path

from ottla_broker.api.table import served

README = Path(__file__).parents[3] / "README.md"
BEGIN, END = "<!-- apis: a test compares this table with what the broker says -->\n", "<!-- end of apis -->"


def table() -> str:
    rows = [
        f"| {''.join(part.title() for part in api.name.split('_'))} | {api.key} | {api.low if api.low == api.high else f'{api.low}–{api.high}'} |"
        for _, api in sorted(served().items())
    ]
    return "\n".join(["| API | key | versions |", "|---|---|---|", *rows]) + "\n"


def parts() -> tuple[str, str, str]:
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    middle, after = rest.split(END)
    return before, middle, after


def test_the_table_of_apis_is_what_the_broker_serves() -> None:
    assert parts()[1] == table(), "run `python -m tests.unit.operator.test_readme`"


def test_every_file_that_is_pointed_to_is_there() -> None:
    import re

    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target


if __name__ == "__main__":
    first, _, last = parts()
    README.write_text(first + BEGIN + table() + END + last, encoding="utf-8")
