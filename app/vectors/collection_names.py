"""The names of collections: made from the project's id, not its name, so that no two projects share one."""

from typing import Final

_PREFIX: Final = "cm__"
_NEXT: Final = "__next"
_OLD: Final = "__old"


def live(project_id: str) -> str:
    """Return the name of the collection that serves searches."""
    return _PREFIX + project_id


def staging(project_id: str) -> str:
    """Return the name of the collection that a rebuild fills."""
    return _PREFIX + project_id + _NEXT


def retired(project_id: str) -> str:
    """Return the name of the collection that a rebuild has just replaced."""
    return _PREFIX + project_id + _OLD


def project_of(name: str) -> str | None:
    """Return the project of a live collection; None for any other name."""
    if not name.startswith(_PREFIX) or name.endswith((_NEXT, _OLD)):
        return None
    return name.removeprefix(_PREFIX)


def unfinished(name: str) -> str | None:
    """Return the project of a collection that an interrupted rebuild left behind; None for any other name."""
    for suffix in (_NEXT, _OLD):
        if name.startswith(_PREFIX) and name.endswith(suffix):
            return name.removeprefix(_PREFIX).removesuffix(suffix)
    return None
