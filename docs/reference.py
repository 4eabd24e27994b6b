"""python -m docs.reference: writes the reference pages of settings, commands and errors from the code."""

import functools
import json
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import click
from litestar.exceptions import HTTPException
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from structlog.testing import capture_logs

from app import errors
from app.api.http import error_responses
from app.api.http.schemas import Problem
from app.cli import main
from app.settings import Settings, Telemetry

FOLDER: Final = Path(__file__).parent / "reference"
CONTRACT: Final = Path(__file__).parents[1] / "openapi" / "openapi.json"
PROGRAM: Final = "cmem-server"
_REQUEST: Final = SimpleNamespace(scope={"path": "/v1/memories"})
_TYPES: Final = {
    bool: "true or false",
    float: "number",
    int: "integer",
    list: "comma-separated list",
    Path: "path",
    SecretStr: "secret",
}
_SIGNS: Final = {"ge": "≥", "gt": ">", "le": "≤"}


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    return {"settings.md": settings_page(), "commands.md": commands_page(), "errors.md": errors_page()}


def settings_page() -> str:
    """Return the page of all settings."""
    lines = [
        "# Settings",
        "",
        "Every setting is an environment variable, a line in `.env`, or a file named by the variable with `_FILE`; see"
        " [how to set them](../run/settings.md). A wrong value stops the start with a message.",
        "",
        "| setting | value | default | meaning |",
        "|---|---|---|---|",
        *(_setting_row(f"CMEM_{name.upper()}", field) for name, field in Settings.model_fields.items()),
        "",
        "## Traces",
        "",
        "These variables are OpenTelemetry's own; its library reads the other standard ones, too.",
        "",
        "| variable | default | meaning |",
        "|---|---|---|",
        *(_telemetry_row(f"OTEL_{name.upper()}", field) for name, field in Telemetry.model_fields.items()),
    ]
    return _page(lines)


def _setting_row(variable: str, field: FieldInfo) -> str:
    return f"| `{variable}` | {_allowed(field)} | {_default(field)} | {_cell(field.description)} |"


def _telemetry_row(variable: str, field: FieldInfo) -> str:
    return f"| `{variable}` | {_default(field)} | {_cell(field.description)} |"


def _allowed(field: FieldInfo) -> str:
    """Return the type of a setting with its range, or its choices."""
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(field.annotation))
    return f"{_type_name(field.annotation)} {_range(field)}".strip()


def _type_name(kind: Any) -> str:
    if get_origin(kind) in (Union, UnionType):  # only of a type and None
        return _type_name(next(each for each in get_args(kind) if each is not type(None)))
    if get_origin(kind) is Annotated:
        return _type_name(get_args(kind)[0])
    return _TYPES.get(get_origin(kind) or kind, "text")


def _range(field: FieldInfo) -> str:
    bounds = {key: getattr(rule, key) for rule in field.metadata for key in _SIGNS if hasattr(rule, key)}
    if {"ge", "le"} <= bounds.keys():
        return f"from {bounds['ge']} to {bounds['le']}"
    return " ".join(f"{sign} {bounds[key]}" for key, sign in _SIGNS.items() if key in bounds)


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value in ("", None, [], PydanticUndefined):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else f'{value:g}' if isinstance(value, float) else value}`"


def commands_page() -> str:
    """Return the page of all commands."""
    lines = [
        "# Commands",
        "",
        f"`{PROGRAM}`, in a checkout `.venv/bin/{PROGRAM}` or `.venv/bin/python -m app`. Commands read the same"
        " [settings](settings.md) as the server. They exit with 0, or print one line and exit with another code.",
        "",
        "`--team` and `--project` take an id or a slug. `--json` prints for scripts.",
        "",
        "| command | does |",
        "|---|---|",
    ]
    commands = list(all_commands())
    lines += [f"| [`{path}`](#{path.replace(' ', '-')}) | {_cell(_summary(context))} |" for path, context in commands]
    for path, context in commands:
        lines += ["", *_command_section(path, context)]
    return _page(lines)


def all_commands(
    command: click.Command = main, path: str = "", parent: click.Context | None = None
) -> Iterator[tuple[str, click.Context]]:
    """Yield every command below a group, by its path, in the order of the help."""
    context = click.Context(command, info_name=path.rsplit(" ", 1)[-1] or PROGRAM, parent=parent)
    if not isinstance(command, click.Group):
        yield path, context
        return
    for name in command.list_commands(context):
        each = command.get_command(context, name)
        if each is not None and not each.hidden:
            yield from all_commands(each, f"{path} {name}".strip(), context)


def _summary(context: click.Context) -> str:
    return (context.command.help or "").split("\n\n")[0].replace("\n", " ")


def _command_section(path: str, context: click.Context) -> Iterator[str]:
    usage = " ".join([PROGRAM, path, *context.command.collect_usage_pieces(context)])
    yield from (f"## {path}", "", "```", usage, "```", "")
    paragraphs = (context.command.help or "").replace("\f", "").split("\n\n")
    yield "\n\n".join(_cell(paragraph) for paragraph in paragraphs)
    records = [record for each in context.command.params if (record := each.get_help_record(context))]
    records = [record for record in records if record[1]]
    if records:
        yield from ("", "| option | meaning |", "|---|---|")
        yield from (f"| `{_cell(names)}` | {_cell(meaning)} |" for names, meaning in records)


def errors_page() -> str:
    """Return the page of all errors of the API."""
    lines = [
        "# Errors",
        "",
        "An error is `application/problem+json` (RFC 9457). `error` is a stable code for programs; `message` is for"
        " people and may change. `issues` names each field at fault, and `requestId` is also in the log.",
        "",
        "```json",
        json.dumps(_contract()["components"]["schemas"]["Problem"]["examples"][0], indent=2, ensure_ascii=False),
        "```",
        "",
        "| status | `error` | meaning | headers |",
        "|---|---|---|---|",
        *(
            f"| {status} | `{code}` | {_cell(meaning)} | {_headers(status)} |"
            for status, code, meaning in error_codes()
        ),
        "",
        "No SQL, file path or stack trace is ever in an error.",
    ]
    return _page(lines)


def error_codes() -> list[tuple[int, str, str]]:
    """Return the status, the code and the meaning of every error, as the server itself answers with them."""
    causes: list[Exception] = [_sample(kind) for kind in _below(errors.AppError)]
    causes += [HTTPException(status_code=status) for status in (*_error_responses(), 405) if status < 500]
    found: dict[str, tuple[int, str, str]] = {}
    with capture_logs():  # answering an error also logs it
        for cause in (*causes, RuntimeError()):
            reply = error_responses.handle_exception(_REQUEST, cause).content
            found.setdefault(reply.error, (reply.status, reply.error, _meaning(cause, reply)))
    return sorted(found.values())


def _meaning(cause: Exception, reply: Problem) -> str:
    """Return what the contract says of an error, or else its class, or else the reply."""
    described = _contract()["components"]["responses"].get(reply.error, {}).get("description")
    own = type(cause).__doc__ if isinstance(cause, errors.AppError) else None
    return described or own or reply.message


def _below(kind: type[errors.AppError]) -> Iterator[type[errors.AppError]]:
    """Yield the errors below one, those that are derived from another last."""
    kinds = [each for each in kind.__subclasses__() if each.__module__ == errors.__name__]
    yield from kinds
    for each in kinds:
        yield from _below(each)


def _sample(kind: type[errors.AppError]) -> errors.AppError:
    """Return an error of a kind."""
    takes_time = "retry_after_seconds" in signature(kind.__init__).parameters
    return kind("", retry_after_seconds=1) if takes_time else kind("")  # type: ignore[call-arg]


def _headers(status: int) -> str:
    names = _error_responses().get(status, {}).get("headers", {})
    return ", ".join(f"`{name}`" for name in names if name != "X-Request-Id")


@functools.cache
def _error_responses() -> dict[int, Any]:
    """Return what the contract says of each error status."""
    contract = _contract()
    responses = {
        int(status): response
        for path in contract["paths"].values()
        for operation in path.values()
        for status, response in operation["responses"].items()
        if int(status) >= 400
    }
    components = contract["components"]["responses"]
    return {status: components.get(each.get("$ref", "").rsplit("/")[-1], each) for status, each in responses.items()}


@functools.cache
def _contract() -> Any:
    return json.loads(CONTRACT.read_text(encoding="utf-8"))


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _page(lines: list[str]) -> str:
    note = "<!-- Generated by `make docs`. Do not edit. -->"
    return "\n".join([lines[0], "", note, *lines[1:]]) + "\n"


def write() -> None:
    """Write every page."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
