"""Settings: frozen, read once from CMEM_* (and OTEL_*), a .env file, or files that CMEM_*_FILE name.

Nobody else reads the environment; lower rooms get values.
"""

import re
import ssl
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, FilePath, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

_EXAMPLE_WORDS = ("change-me", "changeme", "your-secret", "your_secret", "super-secret", "super_secret", "example")
_PASSWORD_IN_URL = re.compile(r"(://[^/?#:@]*:)[^/?#]*(?=@)")
MIN_SECRET_BYTES = 32
_PATH_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class SettingsError(Exception):
    """A setting has a wrong value; the text names the variable, the value and what is allowed."""


class _Files(PydanticBaseSettingsSource):
    """What stands in files: `CMEM_<FIELD>_FILE` names one, the way that images of databases take their passwords."""

    def __init__(self, settings_cls: type[BaseSettings], *sources: PydanticBaseSettingsSource) -> None:
        super().__init__(settings_cls)
        self._variables: dict[str, str] = {}
        for source in sources:
            if isinstance(source, EnvSettingsSource):
                self._variables |= {name: value for name, value in source.env_vars.items() if value}

    def __call__(self) -> dict[str, Any]:
        found = {name: self.get_field_value(field, name)[0] for name, field in self.settings_cls.model_fields.items()}
        return {name: text for name, text in found.items() if text is not None}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return the text of the field's file, None when no file is named."""
        variable = f"CMEM_{field_name.upper()}"
        path = self._variables.get(f"{variable}_FILE".lower())
        if path is None:
            return None, field_name, False
        if variable.lower() in self._variables:
            raise SettingsError(f"{variable}, {variable}_FILE: only one of them may be set")
        try:
            return Path(path).read_text(encoding="utf-8").strip(), field_name, False
        except (OSError, UnicodeDecodeError) as cause:
            reason = getattr(cause, "strerror", None) or "not a text in UTF-8"
            raise SettingsError(f"{variable}_FILE={path}: {reason}") from cause


class Settings(BaseSettings):
    """What the operator decides. Every field is `CMEM_<FIELD>` in the environment, or in the file of `…_FILE`."""

    model_config = SettingsConfigDict(env_prefix="CMEM_", env_file=".env", frozen=True, extra="ignore")

    data_dir: Path = Field(Path("cmem-data"), description="Folder of the database, the vectors and the signing secret.")
    database_url: str = Field(
        "", description="SQLite under the data folder when empty; else sqlite:///PATH or postgresql+psycopg://…"
    )
    database_admin_url: str = Field("", description="PostgreSQL: the role that owns the tables, for the commands.")
    database_connections: int = Field(12, ge=4, le=200, description="PostgreSQL connections of one process.")
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(37877, ge=0, le=65535, description="Port to listen on.")
    workers: int = Field(1, ge=1, le=64, description="Processes that answer requests; more than one use more cores.")
    metrics_port: int = Field(0, ge=0, le=65535, description="Port that serves /metrics without a key; 0 is none.")
    vectors: Literal["embedded", "http", "off"] = Field("embedded", description="Where the vector index lives.")
    chroma_url: str = Field("", description="Address of a Chroma server; needed with CMEM_VECTORS=http.")
    chroma_tenant: str = Field("default_tenant", pattern=_PATH_NAME, description="The tenant on that server.")
    chroma_database: str = Field("default_database", pattern=_PATH_NAME, description="The tenant's database.")
    chroma_api_key: SecretStr = Field(SecretStr(""), description="What that server asks for; none when empty.")
    chroma_auth_header: str = Field("X-Chroma-Token", pattern=r"^[A-Za-z0-9-]+$", description="The header for it.")
    chroma_ca_file: FilePath | None = Field(None, description="Certificates that are trusted instead of the usual.")
    embedder: Literal["minilm", "multilingual", "openai", "off"] = Field("minilm", description="Text to vector.")
    embedder_url: str = Field("", description="An OpenAI-compatible endpoint; needed with CMEM_EMBEDDER=openai.")
    embedder_model: str = Field("", description="The model's name there.")
    embedder_api_key: SecretStr = Field(SecretStr(""), description="The key for that endpoint.")
    chunker: Literal["off", "openai"] = Field("off", description="Who cuts conversations; off: the built-in rules.")
    chunker_url: str = Field("", description="An OpenAI-compatible endpoint; needed with CMEM_CHUNKER=openai.")
    chunker_model: str = Field("", description="The chat model's name there.")
    chunker_api_key: SecretStr = Field(SecretStr(""), description="The key for that endpoint.")
    auth_mode: Literal["api-key", "local-dev"] = Field("api-key", description="local-dev can let loopback in keyless.")
    allow_local_dev_bypass: bool = Field(False, description="The second switch that local-dev needs.")
    jwt_secret: SecretStr = Field(SecretStr(""), description="Signs access tokens, 32 bytes or more; made when empty.")
    jwt_previous_secret: SecretStr = Field(SecretStr(""), description="Still accepted while secrets are rotated.")
    jwt_ttl_seconds: int = Field(3600, ge=60, le=86400, description="Life of a token that does not ask for one.")
    audit_reads: bool = Field(False, description="Also write reads into the audit log.")
    audit_retention_days: int = Field(0, ge=0, description="Days that the audit log is kept; 0 is for ever.")
    trusted_proxies: Annotated[list[str], NoDecode] = Field(
        default_factory=list, description="Addresses whose X-Forwarded-For is believed, comma separated."
    )
    recency_half_life_days: float = Field(90.0, gt=0, description="How fast recency, a tie-breaker, fades.")
    rate_limit_per_min: int = Field(0, ge=0, description="Requests a minute and key; 0 is no limit.")
    redis_url: str = Field("", description="Redis or Valkey that counts the requests of a minute for all replicas.")
    monthly_request_cap: int = Field(0, ge=0, description="Requests a month and key; 0 is no cap.")
    cors_origins: Annotated[list[str], NoDecode] = Field(
        default_factory=list, description="Origins that a browser may call from, comma separated; none by default."
    )
    public_url: str = Field("", description="The address that clients use, when a proxy stands before the server.")
    max_body_bytes: int = Field(5 * 1024 * 1024, ge=1024, description="Largest accepted body.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="Least severe line logged.")
    log_format: Literal["auto", "text", "json"] = Field("auto", description="auto: text on a terminal, JSON otherwise.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the files that the environment names, besides the environment itself."""
        files = _Files(settings_cls, dotenv_settings, env_settings)
        return init_settings, files, env_settings, dotenv_settings, file_secret_settings

    @field_validator("trusted_proxies", "cors_origins", mode="before")
    @classmethod
    def _split_commas(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("database_url", "database_admin_url")
    @classmethod
    def _known_database(cls, value: str) -> str:
        if value and not value.startswith(("sqlite:///", "postgresql+psycopg://")):
            raise ValueError("allowed is sqlite:///PATH or postgresql+psycopg://ROLE:PASSWORD@HOST/DATABASE")
        return value

    @field_validator("redis_url")
    @classmethod
    def _known_counter(cls, value: str) -> str:
        if value and not value.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("allowed is redis://HOST:PORT/NUMBER, rediss://… or unix://PATH")
        return value

    @field_validator("chroma_url", "embedder_url", "chunker_url", "public_url")
    @classmethod
    def _web_address(cls, value: str) -> str:
        if value and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname):
            raise ValueError("allowed is an http:// or https:// address")
        return value.rstrip("/")

    @field_validator("chroma_ca_file")
    @classmethod
    def _certificates(cls, value: Path | None) -> Path | None:
        if value is not None:
            try:
                ssl.create_default_context(cafile=value)
            except OSError as cause:
                raise ValueError("allowed is a file of certificates in PEM") from cause
        return value

    @field_validator("jwt_secret", "jwt_previous_secret")
    @classmethod
    def _strong_secret(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        if text and (len(text.strip().encode()) < MIN_SECRET_BYTES or _is_well_known(text)):
            raise ValueError(f"allowed is a random secret of {MIN_SECRET_BYTES} bytes or more")
        return value

    @model_validator(mode="after")
    def _complete(self) -> "Settings":
        if self.vectors == "http" and not self.chroma_url:
            raise ValueError("CMEM_CHROMA_URL: needed with CMEM_VECTORS=http")
        if self.embedder == "openai" and not (self.embedder_url and self.embedder_model):
            raise ValueError("CMEM_EMBEDDER_URL, CMEM_EMBEDDER_MODEL: needed with CMEM_EMBEDDER=openai")
        if self.chunker == "openai" and not (self.chunker_url and self.chunker_model):
            raise ValueError("CMEM_CHUNKER_URL, CMEM_CHUNKER_MODEL: needed with CMEM_CHUNKER=openai")
        return self

    @property
    def resolved_database_url(self) -> str:
        """The database address: the one that was set, or the SQLite file under the data folder."""
        return self.database_url or f"sqlite:///{self.data_dir.absolute() / 'cmem.db'}"

    @property
    def owner_database_url(self) -> str:
        """The database address of the role that owns the tables: that of the commands."""
        return self.database_admin_url or self.resolved_database_url


class Telemetry(BaseSettings):
    """Where spans go, under the names that every OpenTelemetry program knows; the rest of them its library reads."""

    model_config = SettingsConfigDict(env_prefix="OTEL_", env_file=".env", frozen=True, extra="ignore")

    exporter_otlp_endpoint: str = Field("", description="A collector that takes OTLP over HTTP.")
    exporter_otlp_traces_endpoint: str = Field("", description="The whole address for spans, when it is another.")
    traces_exporter: str = Field("otlp", description="none sends nothing.")
    sdk_disabled: str = Field("", description="true sends nothing.")
    service_name: str = Field("", description="How spans call this server.")

    @property
    def spans_url(self) -> str:
        """Where spans go; empty when nobody wants them."""
        is_off = self.sdk_disabled.lower() == "true" or self.traces_exporter == "none"
        base = self.exporter_otlp_endpoint
        address = self.exporter_otlp_traces_endpoint or (f"{base.rstrip('/')}/v1/traces" if base else "")
        return "" if is_off else address


def load(**overrides: Any) -> Settings:
    """Read the settings; raise SettingsError with one line that names the variable, the value and what is allowed."""
    try:
        return Settings(**overrides)
    except ValidationError as cause:
        raise SettingsError(_first_fault(cause)) from cause


def load_telemetry(**overrides: Any) -> Telemetry:
    """Read where spans go; any text is allowed."""
    return Telemetry(**overrides)


def _first_fault(cause: ValidationError) -> str:
    fault = cause.errors(include_url=False)[0]
    reason = fault["msg"].removeprefix("Value error, ")
    if not fault["loc"]:
        return reason
    name = str(fault["loc"][0])
    value = "(hidden)" if _is_secret(name) else _PASSWORD_IN_URL.sub(r"\1(hidden)", str(fault["input"]))
    return f"CMEM_{name.upper()}={value}: {reason}"


def _is_well_known(secret: str) -> bool:
    """Say whether a secret is a word from somebody's documentation, or one character over and over."""
    return any(word in secret.lower() for word in _EXAMPLE_WORDS) or len(set(secret.strip())) < 8


def _is_secret(name: str) -> bool:
    return name.endswith(("_secret", "_api_key"))
