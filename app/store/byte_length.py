"""byte_length(column): the size of a text in bytes, in every dialect."""

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class byte_length(FunctionElement[int]):  # noqa: N801 - used like func.length
    """The number of bytes of a text in UTF-8."""

    type = BigInteger()
    inherit_cache = True


@compiles(byte_length)
def _standard(element: byte_length, compiler: SQLCompiler, **options: Any) -> str:
    return f"octet_length({compiler.process(element.clauses, **options)})"


@compiles(byte_length, "sqlite")
def _sqlite(element: byte_length, compiler: SQLCompiler, **options: Any) -> str:
    # SQLite has octet_length() only since 3.43
    return f"length(CAST({compiler.process(element.clauses, **options)} AS BLOB))"
