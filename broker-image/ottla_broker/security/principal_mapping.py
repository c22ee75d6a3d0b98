"""`ssl.principal.mapping.rules` (KIP-371): the name of a client's principal, made of its
certificate's subject.

A rule is `DEFAULT`, the subject as it is, or `RULE:PATTERN/REPLACEMENT/`, with `L` or `U` at its
end for lower or upper case. Patterns and replacements are those of Java's regular expressions: `$1`
is a group, and a backslash makes the next character literal.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(?:.*?)"
_NEXT_RULE: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)")
_WHOLE_RULE: Final = re.compile(_RULE)
_NAMED_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")
"""Java's way to begin a named group."""
_REPLACEMENT_PART: Final = re.compile(r"\\(.)|\$(\d+)|\$\{([A-Za-z][A-Za-z0-9]*)\}|([^\\$]+)|(.)", re.DOTALL)


class NoMatchingRule(Exception):
    """No rule matches a subject, so its client has no principal."""


class Rule(msgspec.Struct, frozen=True):
    pattern: re.Pattern[str]
    replacement: tuple[str | int, ...]  # literal texts, and numbers of groups
    change_case: Callable[[str], str]

    def apply(self, subject: str) -> str | None:
        """None: the pattern does not match the whole subject."""
        if self.pattern.fullmatch(subject) is None:
            return None
        return self.change_case(self.pattern.sub(self._replace, subject))

    def _replace(self, found: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else found.group(part) or "" for part in self.replacement)


class PrincipalMapper(msgspec.Struct, frozen=True):
    """`rules`: None stands for DEFAULT. `text`: as it was set."""

    text: str
    rules: tuple[Rule | None, ...]

    @classmethod
    def parse(cls, text: str) -> "PrincipalMapper":
        """Raises ValueError, which names the rule."""
        rules = [_parse_rule(found.group(1)) for found in _NEXT_RULE.finditer(text.strip()) if found.group(1)]
        return cls(text, tuple(rules))

    def map_subject(self, subject: str) -> str:
        """The name of the principal, by the first rule that matches. Raises NoMatchingRule."""
        for rule in self.rules:
            name = subject if rule is None else rule.apply(subject)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules={self.text} matches {subject}")

    def __str__(self) -> str:
        return self.text


def _parse_rule(text: str) -> Rule | None:
    found = _WHOLE_RULE.match(text)
    if found is None or found.end() != len(text):
        raise ValueError(f"the rule {text!r} is malformed")
    is_default, pattern, replacement, case = found.groups()
    if is_default:
        return None
    try:
        compiled = re.compile(_NAMED_GROUP.sub("(?P<", pattern), re.ASCII)
    except re.error as reason:
        raise ValueError(f"the pattern of the rule {text!r} cannot be compiled: {reason}") from None
    change_case = {"L": str.lower, "U": str.upper}.get(case, str)
    return Rule(compiled, tuple(_parse_replacement(text, replacement, compiled)), change_case)


def _parse_replacement(rule: str, text: str, pattern: re.Pattern[str]) -> list[str | int]:
    """Parses a replacement like Java's Matcher.appendReplacement, but a number without a group is
    literal, as in Kafka.
    """
    parts: list[str | int] = []
    for found in _REPLACEMENT_PART.finditer(text):
        escaped, number, name, literal, other = found.groups()
        if number is not None:
            parts += _find_group(number, pattern.groups)
        elif name is not None and name in pattern.groupindex:
            parts.append(pattern.groupindex[name])
        elif name is not None or other is not None:
            raise ValueError(f"the replacement of the rule {rule!r} has {found.group()!r}, which is not a group")
        else:
            parts.append(escaped if escaped is not None else literal)
    return parts


def _find_group(digits: str, group_count: int) -> list[str | int]:
    """Splits the digits after a `$` into the number of a group and literal text: the number is the
    longest prefix that is not above `group_count`. Without such a prefix all is literal, with its
    `$`.
    """
    for length in range(len(digits), 0, -1):
        if int(digits[:length]) <= group_count:
            return [int(digits[:length]), digits[length:]]
    return [f"${digits}"]


DEFAULT: Final = PrincipalMapper.parse("DEFAULT")
