"""Settings that stand in files, as containers are handed their secrets."""

import secrets
from pathlib import Path

import pytest

from app import settings
from app.settings import SettingsError

SECRET = secrets.token_hex(32)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No `.env` of this machine is read."""
    monkeypatch.chdir(tmp_path)


def test_a_setting_may_stand_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Secrets, numbers and lists alike; the line end that an editor leaves does not belong to the value."""
    values = {"CMEM_JWT_SECRET": SECRET, "CMEM_PORT": "4242", "CMEM_TRUSTED_PROXIES": "10.1.0.0/24, 10.2.0.1"}
    for name, value in values.items():
        (tmp_path / name).write_text(f"{value}\n")
        monkeypatch.setenv(f"{name}_FILE", str(tmp_path / name))

    loaded = settings.load()

    assert loaded.jwt_secret.get_secret_value() == SECRET
    assert (loaded.port, loaded.trusted_proxies) == (4242, ["10.1.0.0/24", "10.2.0.1"])


def test_the_file_may_be_named_in_a_dotenv_file(tmp_path: Path):
    """Wherever a setting can be, its file can be named."""
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / ".env").write_text(f"CMEM_JWT_SECRET_FILE={tmp_path / 'secret'}\n")

    assert settings.load().jwt_secret.get_secret_value() == SECRET


def test_an_empty_name_of_a_file_is_none(monkeypatch: pytest.MonkeyPatch):
    """A compose file may hand on a variable that nobody set."""
    monkeypatch.setenv("CMEM_JWT_SECRET_FILE", "")

    assert settings.load().jwt_secret.get_secret_value() == ""


def test_a_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch):
    """A forgotten secret stops the start; it must not become a secret of each replica's own."""
    monkeypatch.setenv("CMEM_JWT_SECRET_FILE", "/nowhere/secret")

    with pytest.raises(SettingsError, match=r"^CMEM_JWT_SECRET_FILE=/nowhere/secret: No such file or directory$"):
        settings.load()


def test_a_value_and_a_file_together_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nobody has to guess which one counts."""
    (tmp_path / "port").write_text("1")
    monkeypatch.setenv("CMEM_PORT", "2")
    monkeypatch.setenv("CMEM_PORT_FILE", str(tmp_path / "port"))

    with pytest.raises(SettingsError, match=r"^CMEM_PORT, CMEM_PORT_FILE: only one of them may be set$"):
        settings.load()


def test_a_wrong_secret_from_a_file_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is said about it names the setting alone."""
    (tmp_path / "secret").write_text("too-short-a-secret")
    monkeypatch.setenv("CMEM_JWT_SECRET_FILE", str(tmp_path / "secret"))

    with pytest.raises(SettingsError, match=r"^CMEM_JWT_SECRET=\(hidden\): ") as failure:
        settings.load()
    assert "too-short" not in str(failure.value)


def test_a_password_in_a_wrong_address_is_not_shown(monkeypatch: pytest.MonkeyPatch):
    """The rest of the address is, so that the mistake can be seen."""
    monkeypatch.setenv("CMEM_DATABASE_URL", "mysql://cmem:p@ss:word@db.example/cmem")

    with pytest.raises(SettingsError, match=r"^CMEM_DATABASE_URL=mysql://cmem:\(hidden\)@db.example/cmem: "):
        settings.load()


def test_a_wrong_address_of_redis_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch):
    """With what is allowed."""
    monkeypatch.setenv("CMEM_REDIS_URL", "http://:s3cret@redis.example:6379")

    with pytest.raises(SettingsError, match=r"^CMEM_REDIS_URL=http://.*: allowed is redis://") as failure:
        settings.load()
    assert "s3cret" not in str(failure.value)


def test_a_file_that_holds_no_certificates_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """At the start, and not by the first search that needs them."""
    (tmp_path / "ca.pem").write_text("no certificate")
    monkeypatch.setenv("CMEM_CHROMA_CA_FILE", str(tmp_path / "ca.pem"))

    with pytest.raises(SettingsError, match=r"CMEM_CHROMA_CA_FILE=.*ca\.pem: allowed is a file of certificates"):
        settings.load()
