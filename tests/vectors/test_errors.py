"""Every cause of an outage of the index has its documented code."""

from typing import get_args

from app.vectors import errors
from app.vectors.errors import VectorsUnavailable


def subclasses(kind: type[VectorsUnavailable]) -> set[type[VectorsUnavailable]]:
    return {kind for each in kind.__subclasses__() for kind in {each, *subclasses(each)}}


def test_every_error_has_a_documented_reason():
    """And every documented reason is the reason of an error: clients branch on it."""
    causes = {each.reason for each in subclasses(VectorsUnavailable) if each.__module__ == errors.__name__}

    assert causes == set(get_args(errors.Reason))
