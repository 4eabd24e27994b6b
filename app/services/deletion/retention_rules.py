"""Retention rules as values: which memories expire. `retention` applies them to rows."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from app.errors import Invalid

MAX_RULES: Final = 50

Days = Annotated[int, Meta(ge=1, le=36_500)]
Word = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"\S")]


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A memory expires when it meets every condition of a rule; a pinned memory never does."""

    kinds: list[Literal["observation", "summary", "prompt", "manual"]] | None = None
    types: list[Annotated[str, Meta(min_length=1, max_length=1_000)]] | None = None
    max_age_days: Days | None = None
    keep_last: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    expire_when: Annotated[list[Word], Meta(min_length=1, max_length=100)] | None = None
    after_days: Annotated[int, Meta(ge=0, le=36_500)] | None = None


def validated(rules: list[Rule], path: str = "body.rules") -> list[Rule]:
    """Return the rules. Raises Invalid for too many of them, and for one that would delete everything."""
    if len(rules) > MAX_RULES:
        raise Invalid.field(path, f"must have at most {MAX_RULES} rules")
    for position, rule in enumerate(rules):
        if rule.max_age_days is None and rule.keep_last is None and rule.expire_when is None:
            raise Invalid.field(f"{path}[{position}]", "requires maxAgeDays, keepLast or expireWhen")
        if rule.after_days is not None and rule.expire_when is None:
            raise Invalid.field(f"{path}[{position}].afterDays", "requires expireWhen; for age alone use maxAgeDays")
    return rules


def to_json(rules: list[Rule]) -> list[dict[str, Any]]:
    """Return rules as they are stored with a project."""
    stored: list[dict[str, Any]] = msgspec.to_builtins(rules)
    return stored


def from_json(stored: list[Any]) -> list[Rule]:
    """Return the rules that are stored with a project. Raises Invalid when they are malformed."""
    try:
        return msgspec.convert(stored, list[Rule])
    except msgspec.ValidationError as cause:
        raise Invalid(f"The stored retention rules are malformed: {cause}") from cause
