"""The OpenAPI document as values, for the page of the REST API."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pydantic import AliasPath, BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel)

    description: str = ""


class JsonSchema(_Part):
    ref: str = Field("", alias="$ref")
    type: str = ""
    any_of: tuple["JsonSchema", ...] = ()
    one_of: tuple["JsonSchema", ...] = ()
    all_of: tuple["JsonSchema", ...] = ()
    enum: tuple[object, ...] = ()
    items: "JsonSchema | None" = None
    additional_properties: "bool | JsonSchema" = True
    properties: Mapping[str, "JsonSchema"] | None = None
    required: frozenset[str] = frozenset()
    default: object = ""

    @property
    def name(self) -> str:
        """Name of the referenced schema; empty if this is not a reference."""
        return self.ref.rpartition("/")[2]

    @property
    def variants(self) -> tuple["JsonSchema", ...]:
        """The alternatives of a union, or the parts of an intersection."""
        return self.any_of or self.one_of or self.all_of


class Parameter(_Part):
    """A parameter in the path, the query or a header."""

    name: str
    place: str = Field(alias="in")
    required: bool = False
    shape: JsonSchema = Field(alias="schema")


class Content(_Part):
    shape: JsonSchema = Field(JsonSchema(), alias="schema")
    example: JsonValue = None


class Payload(_Part):
    """The body of a request or a response, by media type."""

    content: Mapping[str, Content] = {}


class Operation(_Part):
    """An HTTP method of a path."""

    operation_id: str
    tags: tuple[str, ...] = ()
    scopes: tuple[str, ...] = Field((), alias="x-scopes")
    parameters: tuple[Parameter, ...] = ()
    request_body: Payload = Payload()
    responses: Mapping[str, Payload]


class Route(NamedTuple):
    """An operation with its HTTP method and path."""

    method: str
    path: str
    operation: Operation


class ApiDescription(_Part):
    title: str = Field(validation_alias=AliasPath("info", "title"))
    version: str = Field(validation_alias=AliasPath("info", "version"))
    paths: Mapping[str, Mapping[str, Operation]]
    schemas: Mapping[str, JsonSchema] = Field(validation_alias=AliasPath("components", "schemas"))

    def routes(self) -> Iterator[Route]:
        """Yield all operations in the order of the document."""
        for path, methods in self.paths.items():
            for method, operation in methods.items():
                yield Route(method.upper(), path, operation)
