"""The names of collections: by the project's id, never by its name, so that no two projects share one."""

from typing import Final

_PREFIX: Final = "cm__"
_NEXT: Final = "__next"
_OLD: Final = "__old"


def live(project_id: str) -> str:
    """Return the collection that answers searches."""
    return _PREFIX + project_id


def staging(project_id: str) -> str:
    """Return the collection that is being rebuilt."""
    return _PREFIX + project_id + _NEXT


def retired(project_id: str) -> str:
    """Return the collection that was just replaced."""
    return _PREFIX + project_id + _OLD


def project_of(name: str) -> str | None:
    """Return the project whose live collection this is, or None for any other name."""
    if not name.startswith(_PREFIX) or name.endswith((_NEXT, _OLD)):
        return None
    return name.removeprefix(_PREFIX)


def unfinished(name: str) -> str | None:
    """Return the project whose interrupted rebuild left this collection behind, or None for any other name."""
    for ending in (_NEXT, _OLD):
        if name.startswith(_PREFIX) and name.endswith(ending):
            return name.removeprefix(_PREFIX).removesuffix(ending)
    return None
