"""octets(column): how many bytes a text takes, on every dialect."""

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class octets(FunctionElement[int]):  # noqa: N801 - used like func.length
    """The bytes of a text in UTF-8."""

    type = BigInteger()
    inherit_cache = True


@compiles(octets)
def _standard(element: octets, compiler: SQLCompiler, **options: Any) -> str:
    return f"octet_length({compiler.process(element.clauses, **options)})"


@compiles(octets, "sqlite")
def _sqlite(element: octets, compiler: SQLCompiler, **options: Any) -> str:
    # octet_length() came to SQLite with 3.43
    return f"length(CAST({compiler.process(element.clauses, **options)} AS BLOB))"
