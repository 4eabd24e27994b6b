"""Rules of retention: which memories may go. Values only; what they mean for rows is `retention`'s."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from app.errors import Invalid

MAX_RULES: Final = 50

Days = Annotated[int, Meta(ge=1, le=36_500)]
Word = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"\S")]


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A memory goes by a rule when it meets every condition of it; a pinned one goes by none."""

    kinds: list[Literal["observation", "summary", "prompt", "manual"]] | None = None
    types: list[Annotated[str, Meta(min_length=1, max_length=1_000)]] | None = None
    max_age_days: Days | None = None
    keep_last: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    expire_when: Annotated[list[Word], Meta(min_length=1, max_length=100)] | None = None
    after_days: Annotated[int, Meta(ge=0, le=36_500)] | None = None


def checked(rules: list[Rule], path: str = "body.rules") -> list[Rule]:
    """Return the rules; Invalid for too many of them, and for one that would remove everything."""
    if len(rules) > MAX_RULES:
        raise Invalid.field(path, f"allowed are {MAX_RULES} rules")
    for place, rule in enumerate(rules):
        if rule.max_age_days is None and rule.keep_last is None and rule.expire_when is None:
            raise Invalid.field(f"{path}[{place}]", "one of maxAgeDays, keepLast and expireWhen is needed")
        if rule.after_days is not None and rule.expire_when is None:
            raise Invalid.field(f"{path}[{place}].afterDays", "needs expireWhen; maxAgeDays is the age alone")
    return rules


def stored(rules: list[Rule]) -> list[dict[str, Any]]:
    """Return rules as a project keeps them."""
    kept: list[dict[str, Any]] = msgspec.to_builtins(rules)
    return kept


def read(kept: list[Any]) -> list[Rule]:
    """Return the rules that a project keeps; Invalid when somebody damaged them."""
    try:
        return msgspec.convert(kept, list[Rule])
    except msgspec.ValidationError as cause:
        raise Invalid(f"The rules of retention cannot be read: {cause}") from cause
