"""Settings: frozen, read once from CMEM_* (and OTEL_*) variables, a .env file, or the files that CMEM_*_FILE name.

Nothing else reads the environment; lower packages are given values.
"""

import json
import re
import ssl
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, FilePath, SecretStr, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

MIN_SECRET_BYTES: Final = 32
_EXAMPLE_WORDS: Final = (
    "change-me",
    "changeme",
    "your-secret",
    "your_secret",
    "super-secret",
    "super_secret",
    "example",
)
_PASSWORD_PARAMETER: Final = re.compile(r"(password=)[^&\s]*", re.IGNORECASE)
_PATH_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_PREFIX: Final = "CMEM_"


class SettingsError(Exception):
    """A setting has a wrong value. The text is one line: the variable, what it must be, and what it is."""


class _Files(PydanticBaseSettingsSource):
    """Settings read from files: `CMEM_<FIELD>_FILE` names one, as database images take their passwords."""

    def __init__(self, settings_cls: type[BaseSettings], *sources: PydanticBaseSettingsSource) -> None:
        super().__init__(settings_cls)
        self._variables: dict[str, str] = {}
        for source in sources:
            if isinstance(source, EnvSettingsSource):
                self._variables |= {name: value for name, value in source.env_vars.items() if value}

    def __call__(self) -> dict[str, Any]:
        texts = {name: self.get_field_value(field, name)[0] for name, field in self.settings_cls.model_fields.items()}
        return {name: text for name, text in texts.items() if text is not None}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return the text of the field's file, or None when no file is named."""
        variable = _variable(field_name)
        path = self._variables.get(f"{variable}_FILE".lower())
        if path is None:
            return None, field_name, False
        if variable.lower() in self._variables:
            raise SettingsError(f"{variable} and {variable}_FILE must not both be set")
        try:
            return Path(path).read_text(encoding="utf-8").strip(), field_name, False
        except (OSError, UnicodeDecodeError) as cause:
            reason = getattr(cause, "strerror", None) or "not UTF-8 text"
            raise SettingsError(
                f"{variable}_FILE must name a readable text file (got {_quoted(path)}: {reason})"
            ) from cause


class Settings(BaseSettings):
    """What the operator decides. Each field is `CMEM_<FIELD>` in the environment, or in the file named by `…_FILE`."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_file=".env", frozen=True, extra="ignore")

    data_dir: Path = Field(
        Path("cmem-data"),
        description="Folder of the SQLite database, the embedded vector index and the generated signing secret.",
    )
    database_url: str = Field(
        "",
        description="Database of the server: sqlite:///PATH or postgresql+psycopg://ROLE:PASSWORD@HOST/DATABASE."
        " Empty: cmem.db in CMEM_DATA_DIR.",
    )
    database_admin_url: str = Field(
        "",
        description="PostgreSQL: the same database with the role that owns the tables; only the commands use it."
        " Empty: CMEM_DATABASE_URL.",
    )
    database_connections: int = Field(
        12, ge=4, le=200, description="PostgreSQL: the largest number of connections of one process."
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(37877, ge=0, le=65535, description="TCP port to listen on; 0 picks a free one.")
    workers: int = Field(
        1, ge=1, le=64, description="Processes that answer requests; more of them use more cores and more memory."
    )
    metrics_port: int = Field(
        0, ge=0, le=65535, description="TCP port on CMEM_HOST that serves /metrics without authentication; 0: none."
    )
    vectors: Literal["embedded", "http", "off"] = Field(
        "embedded",
        description="Where the vector index runs: embedded (started by the server), http (the server at"
        " CMEM_CHROMA_URL) or off.",
    )
    chroma_url: str = Field("", description="URL of a Chroma server; required with CMEM_VECTORS=http.")
    chroma_tenant: str = Field(
        "default_tenant", pattern=_PATH_NAME, description="Tenant on the Chroma server; it must exist."
    )
    chroma_database: str = Field(
        "default_database", pattern=_PATH_NAME, description="Database of the Chroma tenant; it must exist."
    )
    chroma_api_key: SecretStr = Field(
        SecretStr(""), description="API key for the Chroma server, or for a proxy in front of it. Empty: none is sent."
    )
    chroma_auth_header: str = Field(
        "X-Chroma-Token",
        pattern=r"^[A-Za-z0-9-]+$",
        description="Header that carries the Chroma API key; Authorization sends it as a bearer token.",
    )
    chroma_ca_file: FilePath | None = Field(
        None, description="PEM file of the certificates to trust for an https:// Chroma URL. Empty: the system's."
    )
    embedder: Literal["minilm", "multilingual", "openai", "off"] = Field(
        "minilm",
        description="Embedding model: minilm (built in), multilingual (built in, needs the extra of that name), openai"
        " (an OpenAI-compatible endpoint) or off.",
    )
    embedder_url: str = Field(
        "", description="Base URL of an OpenAI-compatible embeddings endpoint; required with CMEM_EMBEDDER=openai."
    )
    embedder_model: str = Field("", description="Model name at that endpoint; required with CMEM_EMBEDDER=openai.")
    embedder_api_key: SecretStr = Field(SecretStr(""), description="API key for the embeddings endpoint.")
    chunker: Literal["off", "openai"] = Field(
        "off",
        description="What splits conversations into memories: off (built-in rules) or openai (a chat model at an"
        " OpenAI-compatible endpoint).",
    )
    chunker_url: str = Field(
        "", description="Base URL of an OpenAI-compatible chat endpoint; required with CMEM_CHUNKER=openai."
    )
    chunker_model: str = Field("", description="Chat model at that endpoint; required with CMEM_CHUNKER=openai.")
    chunker_api_key: SecretStr = Field(SecretStr(""), description="API key for the chat endpoint.")
    auth_mode: Literal["api-key", "local-dev"] = Field(
        "api-key",
        description="api-key, or local-dev, which with CMEM_ALLOW_LOCAL_DEV_BYPASS=true accepts loopback requests"
        " without a key.",
    )
    allow_local_dev_bypass: bool = Field(
        False, description="Second switch that CMEM_AUTH_MODE=local-dev needs before it accepts requests without a key."
    )
    jwt_secret: SecretStr = Field(
        SecretStr(""),
        description="Secret that signs access tokens: at least 32 random bytes. Empty: generated in CMEM_DATA_DIR.",
    )
    jwt_previous_secret: SecretStr = Field(
        SecretStr(""), description="Previous signing secret, still accepted while secrets are rotated."
    )
    jwt_ttl_seconds: int = Field(
        3600,
        ge=60,
        le=86400,
        description="Lifetime of an access token in seconds, unless the request asks for another.",
    )
    audit_reads: bool = Field(False, description="Also write read requests to the audit log.")
    audit_retention_days: int = Field(
        0, ge=0, description="Days that daily maintenance keeps entries of the audit log; 0: forever."
    )
    trusted_proxies: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="Addresses or networks of proxies whose X-Forwarded-For header is trusted, comma-separated.",
    )
    recency_half_life_days: float = Field(
        90.0, gt=0, description="Age in days at which a memory's recency score has halved; recency only breaks ties."
    )
    rate_limit_per_min: int = Field(0, ge=0, description="Requests per minute of one API key; 0: no limit.")
    redis_url: str = Field(
        "",
        description="Redis or Valkey that counts requests per minute for all replicas: redis://HOST:PORT/NUMBER,"
        " rediss://… or unix://PATH. Empty: the database counts them.",
    )
    monthly_request_cap: int = Field(0, ge=0, description="Requests per calendar month of one API key; 0: no cap.")
    cors_origins: Annotated[list[str], NoDecode] = Field(
        default_factory=list, description="Origins that browsers may call the API from, comma-separated. Empty: none."
    )
    public_url: str = Field("", description="URL that clients use, when a proxy is in front of the server.")
    max_body_bytes: int = Field(5 * 1024 * 1024, ge=1024, description="Largest accepted request body, in bytes.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="Lowest severity logged.")
    log_format: Literal["auto", "text", "json"] = Field(
        "auto", description="text, json, or auto: text on a terminal, JSON otherwise."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Also read the files that the environment names."""
        files = _Files(settings_cls, dotenv_settings, env_settings)
        return init_settings, files, env_settings, dotenv_settings, file_secret_settings

    @field_validator("trusted_proxies", "cors_origins", mode="before")
    @classmethod
    def _split_commas(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("database_url", "database_admin_url")
    @classmethod
    def _require_database_url(cls, value: str) -> str:
        if value and not value.startswith(("sqlite:///", "postgresql+psycopg://")):
            raise ValueError("must be sqlite:///PATH or postgresql+psycopg://ROLE:PASSWORD@HOST/DATABASE")
        return value

    @field_validator("redis_url")
    @classmethod
    def _require_redis_url(cls, value: str) -> str:
        if value and not value.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must be redis://HOST:PORT/NUMBER, rediss://… or unix://PATH")
        return value

    @field_validator("chroma_url", "embedder_url", "chunker_url", "public_url")
    @classmethod
    def _require_http_url(cls, value: str) -> str:
        if value and not _is_http_url(value):
            raise ValueError("must be an http:// or https:// URL")
        return value.rstrip("/")

    @field_validator("chroma_ca_file")
    @classmethod
    def _require_certificates(cls, value: Path | None) -> Path | None:
        if value is not None:
            try:
                ssl.create_default_context(cafile=value)
            except OSError as cause:
                raise ValueError("must be a PEM file of certificates") from cause
        return value

    @field_validator("jwt_secret", "jwt_previous_secret")
    @classmethod
    def _require_strong_secret(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        if text and (len(text.strip().encode()) < MIN_SECRET_BYTES or _is_guessable(text)):
            raise ValueError(f"must be a random secret of at least {MIN_SECRET_BYTES} bytes")
        return value

    @model_validator(mode="after")
    def _require_companions(self) -> "Settings":
        if self.vectors == "http" and not self.chroma_url:
            raise ValueError("CMEM_CHROMA_URL must be set when CMEM_VECTORS=http")
        if self.embedder == "openai" and not (self.embedder_url and self.embedder_model):
            raise ValueError("CMEM_EMBEDDER_URL and CMEM_EMBEDDER_MODEL must be set when CMEM_EMBEDDER=openai")
        if self.chunker == "openai" and not (self.chunker_url and self.chunker_model):
            raise ValueError("CMEM_CHUNKER_URL and CMEM_CHUNKER_MODEL must be set when CMEM_CHUNKER=openai")
        return self

    @property
    def resolved_database_url(self) -> str:
        """The database URL of the server: the one that was set, or the SQLite file in the data folder."""
        return self.database_url or f"sqlite:///{self.data_dir.absolute() / 'cmem.db'}"

    @property
    def owner_database_url(self) -> str:
        """The database URL of the commands, as the role that owns the tables."""
        return self.database_admin_url or self.resolved_database_url


class Telemetry(BaseSettings):
    """Where spans are sent, by OpenTelemetry's standard variables; its library reads the rest of them."""

    model_config = SettingsConfigDict(env_prefix="OTEL_", env_file=".env", frozen=True, extra="ignore")

    exporter_otlp_endpoint: str = Field("", description="URL of a collector that accepts OTLP over HTTP.")
    exporter_otlp_traces_endpoint: str = Field("", description="Full URL for spans, where it differs from that.")
    traces_exporter: str = Field("otlp", description="none: no spans are sent.")
    sdk_disabled: str = Field("", description="true: no spans are sent.")
    service_name: str = Field("", description="Name of this server in its spans.")

    @property
    def spans_url(self) -> str:
        """The URL that spans are sent to; empty when tracing is off."""
        is_off = self.sdk_disabled.lower() == "true" or self.traces_exporter == "none"
        base = self.exporter_otlp_endpoint
        url = self.exporter_otlp_traces_endpoint or (f"{base.rstrip('/')}/v1/traces" if base else "")
        return "" if is_off else url


def load(**overrides: Any) -> Settings:
    """Read the settings. Raises SettingsError for the first one that is wrong."""
    try:
        return Settings(**overrides)
    except ValidationError as cause:
        raise SettingsError(_describe(cause.errors(include_url=False)[0])) from cause


def load_telemetry(**overrides: Any) -> Telemetry:
    """Read where spans are sent; every text is accepted."""
    return Telemetry(**overrides)


def _describe(error: ErrorDetails) -> str:
    """Return one line: the variable, what it must be, and what it is, without its secrets."""
    if not error["loc"]:
        return error["msg"].removeprefix("Value error, ")
    name = str(error["loc"][0])
    got = "" if _is_secret(name) else f" (got {_quoted(_redacted(str(error['input'])))})"
    return f"{_variable(name)} {_requirement(error)}{got}"


def _requirement(error: ErrorDetails) -> str:
    """Return what a value must be, in the words of all settings."""
    context = error.get("ctx", {})
    match error["type"]:
        case "int_parsing" | "int_from_float" | "int_parsing_size":
            return "must be an integer"
        case "float_parsing" | "finite_number":
            return "must be a number"
        case "bool_parsing":
            return "must be true or false"
        case "literal_error":
            return f"must be {context['expected'].replace(chr(39), '')}"
        case "greater_than_equal":
            return f"must be at least {context['ge']}"
        case "greater_than":
            return f"must be greater than {context['gt']:g}"
        case "less_than_equal":
            return f"must be at most {context['le']}"
        case "string_pattern_mismatch":
            return f"must match {context['pattern']}"
        case "path_not_file":
            return "must be the path of a file"
        case "value_error":
            return error["msg"].removeprefix("Value error, ")
    return f"is invalid: {error['msg']}"


def _variable(field_name: str) -> str:
    return f"{_PREFIX}{field_name.upper()}"


def _quoted(text: str) -> str:
    """Return a text in double quotes, on one line whatever it contains."""
    return json.dumps(text, ensure_ascii=False)


def _redacted(value: str) -> str:
    """Return a value without the passwords of a URL; the rest is needed to see the mistake."""
    credentials, at, rest = value.rpartition("@")
    if at:
        scheme, separator, userinfo = credentials.partition("://") if "://" in credentials else ("", "", credentials)
        user, colon, _ = userinfo.partition(":")
        value = f"{scheme}{separator}{user}{':(hidden)' if colon else ''}@{rest}"
    return _PASSWORD_PARAMETER.sub(r"\1(hidden)", value)


def _is_http_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:  # such as "http://[::1", an IPv6 address without its bracket
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _is_guessable(secret: str) -> bool:
    """Say whether a secret contains a word of example configurations, or repeats a few characters."""
    return any(word in secret.lower() for word in _EXAMPLE_WORDS) or len(set(secret.strip())) < 8


def _is_secret(name: str) -> bool:
    return name.endswith(("_secret", "_api_key"))
