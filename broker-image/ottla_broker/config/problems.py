"""What is wrong with a setting, in a sentence that names it, its value, and what is allowed."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ottla_broker.config.setting import Setting

T = TypeVar("T")


class SettingError(ValueError):
    """One or more settings that are not possible. `problems`: a sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def parse_value(setting: Setting[T], text: str) -> T:
    """SettingError says what is allowed."""
    try:
        return setting.kind.parse(text)
    except ValueError as problem:
        reason = str(problem)
        # Python's own messages ("could not convert string to float") say nothing that `allowed` does not say better.
        reason = f" ({reason})" if reason and not reason.startswith(("could not convert", "invalid literal")) else ""
        shown = "a value that is kept secret" if setting.sensitive else repr(text)
        sentence = f"{setting.name} cannot be {shown}{reason}; allowed: {setting.kind.allowed}"
        raise SettingError([sentence]) from None


def unknown_name(name: str, known: Iterable[str], what: str) -> str:
    """`what`: "setting of a broker" and the like."""
    from difflib import get_close_matches  # only when something is wrong: start-up does not pay for it

    close = get_close_matches(name, list(known), n=1, cutoff=0.75)
    return f"{name} is no {what}{f'; did you mean {close[0]}?' if close else ''}"


def conflict(values: Mapping[str, int], lower: str, higher: str) -> list[str]:
    """A problem when the first exceeds the second."""
    if values[lower] <= values[higher]:
        return []
    return [f"{lower} ({values[lower]}) must not exceed {higher} ({values[higher]})"]
