"""Settings: where they are read from, and the one line that says what is wrong with one."""

from hashlib import sha256
from pathlib import Path

import pytest

from app import settings
from app.settings import Settings, SettingsError

SECRET = sha256(b"a secret of these tests").hexdigest()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No `.env` of this machine is read."""
    monkeypatch.chdir(tmp_path)


def error_of(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    """Return what `load` says about these variables."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as failure:
        settings.load()
    return str(failure.value)


def test_a_setting_is_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Secrets, numbers and lists alike; the final newline that an editor adds is not part of the value."""
    values = {"CMEM_JWT_SECRET": SECRET, "CMEM_PORT": "4242", "CMEM_TRUSTED_PROXIES": "10.1.0.0/24, 10.2.0.1"}
    for name, value in values.items():
        (tmp_path / name).write_text(f"{value}\n")
        monkeypatch.setenv(f"{name}_FILE", str(tmp_path / name))

    loaded = settings.load()

    assert loaded.jwt_secret.get_secret_value() == SECRET
    assert (loaded.port, loaded.trusted_proxies) == (4242, ["10.1.0.0/24", "10.2.0.1"])


def test_a_file_is_named_in_a_dotenv_file(tmp_path: Path):
    """Wherever a setting can be, its file can be named."""
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / ".env").write_text(f"CMEM_JWT_SECRET_FILE={tmp_path / 'secret'}\n")

    assert settings.load().jwt_secret.get_secret_value() == SECRET


def test_an_empty_file_name_means_no_file(monkeypatch: pytest.MonkeyPatch):
    """A compose file may pass on a variable that nobody set."""
    monkeypatch.setenv("CMEM_JWT_SECRET_FILE", "")

    assert settings.load().jwt_secret.get_secret_value() == ""


def test_an_unreadable_file_is_named(monkeypatch: pytest.MonkeyPatch):
    """A forgotten secret stops the start: otherwise each replica would generate its own."""
    assert error_of(monkeypatch, CMEM_JWT_SECRET_FILE="/nowhere/secret") == (
        'CMEM_JWT_SECRET_FILE must name a readable text file (got "/nowhere/secret": No such file or directory)'
    )


def test_a_binary_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A setting is text."""
    path = tmp_path / "secret"
    path.write_bytes(b"\xff\xfe")

    assert error_of(monkeypatch, CMEM_JWT_SECRET_FILE=str(path)) == (
        f'CMEM_JWT_SECRET_FILE must name a readable text file (got "{path}": not UTF-8 text)'
    )


def test_a_value_and_a_file_together_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nobody has to guess which one counts."""
    (tmp_path / "port").write_text("1")

    error = error_of(monkeypatch, CMEM_PORT="2", CMEM_PORT_FILE=str(tmp_path / "port"))

    assert error == "CMEM_PORT and CMEM_PORT_FILE must not both be set"


def test_a_weak_secret_from_a_file_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The error names the setting only."""
    (tmp_path / "secret").write_text("too-short-a-secret")

    error = error_of(monkeypatch, CMEM_JWT_SECRET_FILE=str(tmp_path / "secret"))

    assert error == "CMEM_JWT_SECRET must be a random secret of at least 32 bytes"


@pytest.mark.parametrize("secret", ["x" * 64, f"change-me-{SECRET}", "your-secret" * 4, "short"])
@pytest.mark.parametrize("variable", ["CMEM_JWT_SECRET", "CMEM_JWT_PREVIOUS_SECRET"])
def test_a_guessable_secret_is_refused_and_not_shown(variable: str, secret: str, monkeypatch: pytest.MonkeyPatch):
    """One character repeated, or a phrase from example configurations."""
    assert error_of(monkeypatch, **{variable: secret}) == f"{variable} must be a random secret of at least 32 bytes"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mysql://cmem:p@ss:word@db.example/cmem", "mysql://cmem:(hidden)@db.example/cmem"),
        ("cmem:p@ss:word@db.example/cmem", "cmem:(hidden)@db.example/cmem"),
        ("mysql://cmem:a://b@db.example/cmem", "mysql://cmem:(hidden)@db.example/cmem"),
        ("mysql://db.example/cmem?user=cmem&password=p@ss&x=1", None),
        (
            "mysql://db.example/cmem?user=cmem&password=word&x=1",
            "mysql://db.example/cmem?user=cmem&password=(hidden)&x=1",
        ),
    ],
)
def test_a_password_in_a_wrong_url_is_not_shown(monkeypatch: pytest.MonkeyPatch, url: str, shown: str | None):
    """The rest of the URL is, so that the mistake can be seen."""
    error = error_of(monkeypatch, CMEM_DATABASE_URL=url)

    wanted = "CMEM_DATABASE_URL must be sqlite:///PATH or postgresql+psycopg://ROLE:PASSWORD@HOST/DATABASE"
    assert error.startswith(f'{wanted} (got "')
    assert shown is None or error == f'{wanted} (got "{shown}")'
    assert not any(part in error for part in ("p@ss", "word@", "word&", "a://b"))


def test_a_wrong_redis_url_is_shown_without_its_password(monkeypatch: pytest.MonkeyPatch):
    """With the forms that are accepted."""
    error = error_of(monkeypatch, CMEM_REDIS_URL="http://:s3cret@redis.example:6379")

    assert error == (
        "CMEM_REDIS_URL must be redis://HOST:PORT/NUMBER, rediss://… or unix://PATH"
        ' (got "http://:(hidden)@redis.example:6379")'
    )


def test_a_file_without_certificates_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """At the start, and not by the first search that needs them."""
    path = tmp_path / "ca.pem"
    path.write_text("no certificate")

    error = error_of(monkeypatch, CMEM_CHROMA_CA_FILE=str(path))

    assert error == f'CMEM_CHROMA_CA_FILE must be a PEM file of certificates (got "{path}")'


@pytest.mark.parametrize(
    ("variable", "value", "requirement"),
    [
        ("CMEM_PORT", "abc", "must be an integer"),
        ("CMEM_PORT", "", "must be an integer"),
        ("CMEM_PORT", "1.5", "must be an integer"),
        ("CMEM_PORT", "65536", "must be at most 65535"),
        ("CMEM_PORT", "-1", "must be at least 0"),
        ("CMEM_RECENCY_HALF_LIFE_DAYS", "soon", "must be a number"),
        ("CMEM_RECENCY_HALF_LIFE_DAYS", "0", "must be greater than 0"),
        ("CMEM_AUDIT_READS", "maybe", "must be true or false"),
        ("CMEM_VECTORS", "none", "must be embedded, http or off"),
        ("CMEM_LOG_LEVEL", "LOUD", "must be DEBUG, INFO, WARNING or ERROR"),
        ("CMEM_CHROMA_TENANT", "a/b", "must match ^[A-Za-z0-9][A-Za-z0-9._-]*$"),
        ("CMEM_CHROMA_CA_FILE", "/nowhere/ca.pem", "must be the path of a file"),
        ("CMEM_CHROMA_URL", "foo", "must be an http:// or https:// URL"),
        ("CMEM_EMBEDDER_URL", "foo", "must be an http:// or https:// URL"),
        ("CMEM_CHUNKER_URL", "http://", "must be an http:// or https:// URL"),
        ("CMEM_PUBLIC_URL", "http://[::1", "must be an http:// or https:// URL"),
        ("CMEM_DATABASE_ADMIN_URL", "x", "must be sqlite:///PATH or postgresql+psycopg://ROLE:PASSWORD@HOST/DATABASE"),
    ],
)
def test_every_error_names_the_variable_what_it_must_be_and_what_it_is(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, requirement: str
):
    """In one form, whether our own check found the error or a library did."""
    assert error_of(monkeypatch, **{variable: value}) == f'{variable} {requirement} (got "{value}")'


def test_an_error_is_one_line_whatever_the_value(monkeypatch: pytest.MonkeyPatch):
    """A line break in a value must not look like a second message."""
    assert error_of(monkeypatch, CMEM_PORT="1\n2") == r'CMEM_PORT must be an integer (got "1\n2")'


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ({"CMEM_VECTORS": "http"}, "CMEM_CHROMA_URL must be set when CMEM_VECTORS=http"),
        (
            {"CMEM_EMBEDDER": "openai", "CMEM_EMBEDDER_URL": "http://model.example"},
            "CMEM_EMBEDDER_URL and CMEM_EMBEDDER_MODEL must be set when CMEM_EMBEDDER=openai",
        ),
        (
            {"CMEM_CHUNKER": "openai", "CMEM_CHUNKER_MODEL": "model"},
            "CMEM_CHUNKER_URL and CMEM_CHUNKER_MODEL must be set when CMEM_CHUNKER=openai",
        ),
    ],
)
def test_a_setting_that_another_one_requires_is_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], error: str
):
    """With the setting that requires it."""
    assert error_of(monkeypatch, **variables) == error


def test_every_setting_is_described():
    """The reference is written from the descriptions: each is a sentence, and a number has its unit or its meaning."""
    descriptions = {name: field.description or "" for name, field in Settings.model_fields.items()}

    assert [name for name, text in descriptions.items() if not (text[:1].strip() and text.endswith("."))] == []
