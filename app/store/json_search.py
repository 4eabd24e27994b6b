"""Conditions on the contents of a JSON column, in every dialect. Damaged JSON counts as empty."""

from typing import Any

from sqlalchemy import Boolean
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class holds_pair(FunctionElement[bool]):  # noqa: N801 - used like func.length
    """Whether an object has this text under this key: `holds_pair(column, key, value)`."""

    type = Boolean()
    inherit_cache = True


class lists_any(FunctionElement[bool]):  # noqa: N801 - used like func.length
    """Whether a list has any of these texts: `lists_any(column, JSON list of texts)`."""

    type = Boolean()
    inherit_cache = True


@compiles(holds_pair, "sqlite")
def _pair_on_sqlite(element: holds_pair, compiler: SQLCompiler, **options: Any) -> str:
    column, key, value = (compiler.process(each, **options) for each in element.clauses)
    return f"EXISTS (SELECT 1 FROM {_each(column, '{}')} AS pair WHERE pair.key = {key} AND pair.value = {value})"


@compiles(lists_any, "sqlite")
def _list_on_sqlite(element: lists_any, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(each, **options) for each in element.clauses)
    expected = f"SELECT value FROM json_each({values})"
    return f"EXISTS (SELECT 1 FROM {_each(column, '[]')} AS item WHERE item.value IN ({expected}))"


def _each(column: str, empty: str) -> str:
    return f"json_each(CASE WHEN json_valid({column}) THEN {column} ELSE '{empty}' END)"


@compiles(holds_pair, "postgresql")
def _pair_on_postgresql(element: holds_pair, compiler: SQLCompiler, **options: Any) -> str:
    column, key, value = (compiler.process(each, **options) for each in element.clauses)
    return f"cmem_object({column}) @> jsonb_build_object({key}, {value})"


@compiles(lists_any, "postgresql")
def _list_on_postgresql(element: lists_any, compiler: SQLCompiler, **options: Any) -> str:
    column, values = (compiler.process(each, **options) for each in element.clauses)
    return f"cmem_list({column}) && cmem_list({values})"
