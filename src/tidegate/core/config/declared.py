"""How a dataclass declares settings: one field each, with its type, its default, and what it does as a docstring below it.

Pydantic reads files by these dataclasses (`parse`) and makes the JSON Schema of them, for editors; `docs.generate` makes the
page of the docs. In code they are dataclasses as any other: what is constructed or replaced there is not validated.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import reprlib
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, Field, dataclass, fields
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NoReturn, Self, TypeVar, cast

import pydantic
from pydantic import (
    ConfigDict,
    Discriminator,
    GetCoreSchemaHandler,
    SkipValidation,
    Tag,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema
from pydantic_core.core_schema import no_info_wrap_validator_function

S = TypeVar("S")
T = TypeVar("T")

LONGEST_SHOWN = 80
"""Characters of a value that a message shows."""
SETTINGS = "a mapping of settings"
EXPECTED, FAULT = "expected", "fault"
"""The types of pydantic's errors whose text is the words of a kind, or a whole sentence."""


class Expected:
    """What a kind of value is, in words, and what is checked beside its type, which a value has as it is.

    Args:
        words: for messages and docs.
        matches: what a text matches as a whole.
        accepts: whether a value of the type is accepted.
        reads: makes of the file's value the one that is checked; a ValueError refuses it.
        kind: the type that is checked, where it is not the field's.
        schema: what the JSON Schema says in addition.
        bounds: pydantic's own, such as `ge` and `max_length`.
    """

    def __init__(
        self,
        words: str,
        *,
        matches: re.Pattern[str] | None = None,
        accepts: Callable[[Any], object] = lambda _: True,
        reads: Callable[[Any], Any] = lambda value: value,
        kind: Any = None,
        schema: Mapping[str, Any] | None = None,
        **bounds: Any,
    ) -> None:
        self.words = words
        self._fits: Callable[[Any], object] = matches.fullmatch if matches else lambda _: True
        self._accepts, self._reads, self._kind, self._bounds = accepts, reads, kind, bounds
        self._schema = {**({} if matches is None else {"pattern": f"^{matches.pattern}$"}), **(schema or {})}

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """As pydantic asks for it."""
        inner: Any = {**handler(self._kind or kind), "strict": True, **self._bounds}
        return no_info_wrap_validator_function(self._read, inner)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: pydantic.GetJsonSchemaHandler) -> dict[str, Any]:
        """As pydantic asks for it."""
        return {**handler(schema), **self._schema}

    def _read(self, value: Any, check: Callable[[Any], Any]) -> Any:
        try:
            read = check(self._reads(value))
            if self._fits(read) and self._accepts(read):
                return read
        except ValidationError as error:
            if any(line["loc"] for line in error.errors(include_url=False, include_context=False, include_input=False)):
                raise  # an entry is at fault
        except ValueError:
            pass
        raise PydanticCustomError(EXPECTED, self.words)


def listed(words: str, *, least: int = 0, different: bool = True) -> Expected:
    """A list, which becomes a tuple: of at least so many entries, and each but once where they are to be different."""

    def entries(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) < least:
            raise ValueError
        return tuple(value)

    def accepts(value: Sequence[Any]) -> bool:
        first: dict[Any, int] = {}
        again = [index for index, entry in enumerate(value) if different and first.setdefault(entry, index) != index]
        if again:
            refuse(((index,), f"{shown(value[index])} is in the list already; remove one of the two") for index in again)
        return True

    schema = {**({"minItems": least} if least else {}), **({"uniqueItems": True} if different else {})}
    return Expected(words, reads=entries, accepts=accepts, schema=schema)


class _Given:
    """None means that the section is not in the file: a key without a value would silently be none."""

    def __get_pydantic_core_schema__(self, kind: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner: CoreSchema = cast("Any", handler(kind))["schema"]
        return inner


AS_TEXT, AS_MAPPING = "\0text", "\0mapping"
"""How pydantic's errors tell which of the two a value is, where a section may stand for a text."""
TextOrSection = Annotated[
    Annotated[T, Tag(AS_TEXT)] | Annotated[S, Tag(AS_MAPPING)],
    Discriminator(lambda value: AS_MAPPING if isinstance(value, Mapping) else AS_TEXT),
]
OptionalSection = Annotated[T | None, _Given()]
"""A section that may be left out."""
NAME = "\0name"
"""The key by which `parse` hands on the file's name."""
FileName = Annotated[str, pydantic.Field(validation_alias=NAME), SkipValidation]
"""What the file's name says, and no setting can."""


@dataclass(frozen=True)
class TakenBy:
    """Which settings of a group go with the value of another one, `by`, which is `usual` where it is left out.

    Of those that each of its values takes (`of`; "" is any other value), a value means nothing without those that it `needs`.
    """

    by: str
    of: Mapping[str, Collection[str]]
    needs: Collection[str] = ()
    _: KW_ONLY
    usual: str | None = None

    @property
    def _all(self) -> list[str]:
        return sorted(set().union(*self.of.values()))

    def faults(self, held: Settings) -> Iterator[tuple[str, str]]:
        """As `Settings.faults`: what the value does not take, and what it needs."""
        value = getattr(held, self.by, "")
        own = self.of.get(value, self.of.get("", ()))
        for name in self._all:
            if is_set(held, name) and name not in own:
                yield name, f"is no setting of {self.by} {value}; remove it"
            elif not is_set(held, name) and name in own and name in self.needs:
                yield name, f"required by {self.by} {value}, but missing"

    @property
    def schema(self) -> list[dict[str, Any]]:
        """The same as JSON Schema, all of which holds."""
        return [
            {
                "if": {
                    "properties": {self.by: {"const": value} if value else {"not": {"enum": list(filter(None, self.of))}}},
                    "required": [] if value == self.usual else [self.by],
                },
                "then": {
                    "properties": {other: {"type": "null"} for other in self._all if other not in own},
                    "required": [name for name in self.needs if name in own],
                },
            }
            for value, own in self.of.items()
        ]


@dataclass(frozen=True)
class Settings:
    """A group of settings."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    REQUIRES: ClassVar[Mapping[str, str]] = {}
    """Settings that have a meaning only together with another one of the group."""
    TAKEN: ClassVar[TakenBy] = TakenBy("", {})
    """Settings that go with the value of another one."""
    SCHEMA: ClassVar[Mapping[str, Any]] = {}
    """What the JSON Schema says of other relations between them, as far as one can."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Where settings, each valid by itself, contradict each other: a setting's name (none: the group), and a sentence."""
        yield from ()

    @model_validator(mode="after")
    def _related(self) -> Self:
        missing = [
            (name, f"requires {other}, which is not set; set it, or remove {name}")
            for name, other in self.REQUIRES.items()
            if is_set(self, name) and not is_set(self, other)
        ]
        found = [*missing, *self.TAKEN.faults(self), *self.faults()]
        if found:
            refuse((tuple(filter(None, name.split("."))), sentence) for name, sentence in found)
        return self


def is_set(group: Settings, name: str) -> bool:
    """Whether the file says something by this setting."""
    return getattr(group, name) not in (None, ())


def refuse(faults: Iterable[tuple[tuple[str | int, ...], str]]) -> NoReturn:
    """Refuse a value for these: the way to what is at fault, and a sentence."""
    raise ValidationError.from_exception_data(
        FAULT, [InitErrorDetails(type=PydanticCustomError(FAULT, sentence), loc=way, input=None) for way, sentence in faults]
    )


def shown(value: object) -> str:
    """The value in short, whatever YAML made of it: keys of any type, lists that hold themselves, aliases of aliases."""
    text = ""
    try:
        for piece in json.JSONEncoder(default=str, ensure_ascii=False).iterencode(value):
            text += piece
            if len(text) > LONGEST_SHOWN:
                break
    except (TypeError, ValueError, RecursionError):
        text = reprlib.repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."


class Member(NamedTuple):
    """One field of a group: what it accepts, in words, and the group that it may hold as a mapping."""

    group: Any
    field: Field[Any]
    words: str
    section: Any

    @property
    def doc(self) -> str:
        """What it does."""
        return docs(self.group)[self.field.name]


@cache
def members(group: Any, path: str = "") -> dict[str, Member]:
    """Each setting and section of the dataclass and of its sections, by its path, in order."""
    found: dict[str, Member] = {}
    hints = typing.get_type_hints(group, include_extras=True)
    for field in fields(group):
        if hints[field.name] != FileName:
            parts = list(_parts(hints[field.name]))
            section: Any = next((part for part in parts if isinstance(part, type) and issubclass(part, Settings)), None)
            words = next((words for words in map(_words, parts) if words), SETTINGS)
            found[f"{path}{field.name}"] = Member(group, field, words, section)
            found |= members(section, f"{path}{field.name}.") if section else {}
    return found


def _parts(kind: Any) -> Iterator[Any]:
    """A type, what is annotated to it, and the types that it is one of; not those of its entries, where it has words itself."""
    yield kind
    if metadata := getattr(kind, "__metadata__", ()):
        yield from metadata
        yield from _parts(kind.__origin__)
    elif typing.get_origin(kind) is not Literal:
        for part in typing.get_args(kind):
            yield from _parts(part)


def _words(part: Any) -> str | None:
    if typing.get_origin(part) is Literal:
        return " or ".join(f'"{word}"' for word in typing.get_args(part))
    return part.words if isinstance(part, Expected) else None


@cache
def docs(group: Any) -> dict[str, str]:
    """The docstring below each field of the dataclass, by the field's name."""
    statement: Any = ast.parse(inspect.getsource(group)).body[0]
    return {
        ast.unparse(field.target): " ".join(ast.literal_eval(doc.value).split())
        for field, doc in pairwise(statement.body)
        if isinstance(field, ast.AnnAssign) and isinstance(doc, ast.Expr)
    }


def summary(group: type[Settings]) -> str:
    """The first paragraph of what the dataclass says of itself."""
    return " ".join((group.__doc__ or "").split("\n\n")[0].split())


class _Schema(GenerateJsonSchema):
    """Pydantic's, with what the dataclasses say in addition, and without what an editor would show for nothing."""

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> dict[str, Any]:
        """Of a group of settings."""
        group: Any = schema["cls"]
        made = {**super().dataclass_schema(schema), "description": summary(group), **group.SCHEMA}
        made["properties"].pop(NAME, None)
        made["required"] = sorted(set(made.get("required", ())) - {NAME})
        for name, doc in docs(group).items():
            made["properties"][name]["description"] = doc
        other = {"allOf": group.TAKEN.schema, "dependentRequired": {name: [other] for name, other in group.REQUIRES.items()}}
        return made | {name: said for name, said in other.items() if said}

    def nullable_schema(self, schema: core_schema.NullableSchema) -> dict[str, Any]:
        """A list of types, where that is all."""
        made = super().nullable_schema(schema)
        given = made["anyOf"][0]
        kind, values = given.get("type"), [given.pop("const")] if "const" in given else given.get("enum")
        named = {} if values is None else {"enum": [*values, None]}
        return {**given, "type": [kind, "null"], **named} if isinstance(kind, str) else made

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
        """No default that says that the setting may be left out."""
        made = super().default_schema(schema)
        return {name: value for name, value in made.items() if (name, value) != ("default", None)}

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's
        """A setting has its name."""
        return False


def json_schema(kind: type[Settings]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a kind of files."""
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        **TypeAdapter(kind).json_schema(schema_generator=_Schema),
        "title": f"Tidegate {kind.__name__.lower()}",
    }
