"""Types of columns that PyIceberg does not know (VARIANT, and whatever comes): its schema holds them, nothing reads them.

What is read of a table are its snapshots and the origin columns. Without this, one column of such a type, at any depth, keeps
PyIceberg from reading the table's metadata at all, and then its data files.
"""

from __future__ import annotations

from functools import cache, wraps
from typing import Any

INNER = {"element", "key", "value"}
"""The parts of a list and a map that are types. Their models do not ask the function that fields ask."""


@cache
def let_unknown_types_be() -> None:
    """Make PyIceberg hold types that it does not know, and leave out columns of them when it reads a file."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    from pyiceberg import types  # noqa: PLC0415
    from pyiceberg.io import pyarrow as files  # noqa: PLC0415

    iceberg_type: Any = types.IcebergType
    known, to_schema = iceberg_type.handle_primitive_type, files.pyarrow_to_schema

    @cache
    def unread(name: str) -> Any:
        """A class has one instance."""
        made: Any = type(name, (types.UnknownType,), {})
        return made.model_construct(root=name)

    @wraps(known)
    def handle(value: Any, handler: Any) -> Any:
        try:
            return known(value, handler)
        except ValueError:
            if not isinstance(value, str):
                raise
            return unread(value)

    def made(init: Any) -> Any:
        @wraps(init)
        def of_parts(self: Any, *args: Any, **parts: Any) -> None:
            inner = {name: handle(part, None) for name, part in parts.items() if name in INNER and isinstance(part, str)}
            init(self, *args, **{**parts, **inner})

        return of_parts

    @wraps(to_schema)
    def readable(schema: Any, *args: Any, **kwargs: Any) -> Any:
        """The parts of a VARIANT have no ids of fields; a file in which nothing has is another case, and PyIceberg's own."""
        with_ids = [f for f in schema if files.visit_pyarrow(pa.schema([f]), files._HasIds())]  # noqa: SLF001
        return to_schema(pa.schema(with_ids) if with_ids else schema, *args, **kwargs)

    iceberg_type.handle_primitive_type = staticmethod(handle)
    kinds: tuple[Any, ...] = (types.ListType, types.MapType)
    for kind in kinds:
        kind.__init__ = made(kind.__init__)
    files.pyarrow_to_schema = readable
