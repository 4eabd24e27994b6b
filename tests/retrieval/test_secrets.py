"""What looks like a secret is masked, and prose about secrets is not."""

import pytest

from app.retrieval import secrets

HIDDEN = "a1B2c3D4e5F6g7H8"
PRIVATE_KEY = "PRIVATE " + "KEY-----"


@pytest.mark.parametrize(
    "text",
    [
        f"sk-{HIDDEN}",
        f"ghp_{HIDDEN}{HIDDEN}",
        f"github_pat_{HIDDEN}{HIDDEN}",
        f"glpat-{HIDDEN}",
        f"xoxb-{HIDDEN}",
        "AKIA" + "ABCDEFGH12345678",
        f"AIza{HIDDEN}{HIDDEN}",
        f"cmem_{HIDDEN}_{HIDDEN}",
        f"eyJ{HIDDEN}.{HIDDEN}.{HIDDEN}",
        f"-----BEGIN RSA {PRIVATE_KEY}\n{HIDDEN}\n-----END RSA {PRIVATE_KEY}",
        f"-----BEGIN {PRIVATE_KEY}\n{HIDDEN} cut off",
    ],
)
def test_secret_of_a_known_form_is_masked(text: str):
    """Anywhere in a text, and whole."""
    assert secrets.mask(f"before {text} after").startswith(f"before {secrets.MASK}")
    assert HIDDEN not in secrets.mask(text)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('password = "hunter22"', 'password = "[masked]"'),
        ("the api_key is abc123", "the api_key is [masked]"),
        ("密码是abc12345", "密码是[masked]"),
        ("Authorization: Bearer abc123def", "Authorization: Bearer [masked]"),
        ("postgresql://cmem:s3cret@db/cmem", "postgresql://cmem:[masked]@db/cmem"),
    ],
)
def test_value_is_masked_after_a_name_that_announces_it(text: str, masked: str):
    """The name stays, so that the sentence can be understood."""
    assert secrets.mask(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "the password is never logged",
        "token: expires daily",
        "rotate the secret key every 90 days",
        "see https://example.org/path2026",
        "sk-short",
        "密码是什么",
    ],
)
def test_prose_about_secrets_stays_as_it_is(text: str):
    """A value has six characters or more and a digit, unlike a word."""
    assert secrets.mask(text) == text
