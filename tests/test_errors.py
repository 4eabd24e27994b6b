"""The errors of the domain: what each of them tells a client and a retry."""

import pytest

from app import errors
from app.errors import AppError, Conflict, Invalid, Issue, NotFound, Unavailable


def test_wrong_field_is_named_in_the_message_and_in_the_issues():
    """A person reads the one, a client the other."""
    failure = Invalid.field("body.limit", "must be at least 1")

    assert (str(failure), failure.issues) == (
        "body.limit: must be at least 1",
        (Issue("body.limit", "must be at least 1"),),
    )


def test_missing_credential_does_not_say_what_is_wrong_with_it():
    """Unknown, expired and revoked keys read the same."""
    assert str(errors.Unauthenticated()) == "A valid API key or access token is required."


def test_foreign_thing_reads_like_a_missing_one():
    """The text depends on the noun alone."""
    assert str(NotFound("memory")) == "There is no such memory."


@pytest.mark.parametrize(
    ("kind", "parent"),
    [
        (errors.IdempotencyMismatch, Conflict),
        (errors.DatabaseConnectionLost, Unavailable),
        (errors.NothingDone, Unavailable),
    ],
)
def test_special_case_is_caught_like_the_general_one(kind: type[AppError], parent: type[AppError]):
    """A caller that knows only the general error still handles it."""
    assert issubclass(kind, parent)


def test_work_that_may_be_committed_is_not_mistaken_for_work_that_was_not():
    """Only the second may be retried when it is a write."""
    assert not issubclass(errors.DatabaseConnectionLost, errors.NothingDone)
    assert not issubclass(errors.NothingDone, errors.DatabaseConnectionLost)


def test_outage_says_when_to_retry():
    """After a second, unless the cause knows better."""
    assert (
        Unavailable("busy").retry_after_seconds,
        Unavailable("full", retry_after_seconds=30).retry_after_seconds,
    ) == (
        1,
        30,
    )
