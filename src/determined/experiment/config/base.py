"""What all sections of an experiment file share: strict types, no unknown keys, and how retired fields are marked."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    WrapValidator,
    model_serializer,
)

LARGEST = 2**53 - 1  # what JSON readers hold exactly


def _kept_whole(value: Any, check: Any) -> Any:
    """A number is checked as a float, and 4 stays 4."""
    checked = check(value)
    return value if isinstance(value, int) else checked


Number = Annotated[float, WrapValidator(_kept_whole), PlainSerializer(lambda value: value)]


def kept(default: Any = None, description: str = "", **rules: Any) -> Any:
    """A legacy field that still has an effect; it is shown only where it was given."""
    return Field(default, description=f"Older configurations: {description}", json_schema_extra=_RETIRED, **rules)


def ignored(description: str = "has no effect here.") -> Any:
    """A field that is accepted and left out of the effective configuration."""
    return Field(None, exclude=True, description=f"Ignored: {description}", json_schema_extra=_RETIRED)


_RETIRED: dict[str, Any] = {"deprecated": True}


class Section(BaseModel):
    """A mapping of the experiment file. Required keys may be absent here: completeness is checked after merging."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, populate_by_name=True)
    REQUIRED: ClassVar[tuple[str, ...]] = ()
    SHOWS_NULL: ClassVar[bool] = True  # keys without a value are shown, so that people see what there is

    @model_serializer(mode="wrap")
    def _shown(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        shown: dict[str, Any] = handler(self)
        retired = {key for key, field in type(self).model_fields.items() if is_retired(field)}
        return {k: v for k, v in shown.items() if v is not None or (self.SHOWS_NULL and k not in retired)}


def is_retired(field: Any) -> bool:
    """Whether this field is there for older configurations only."""
    return bool(field.json_schema_extra == _RETIRED)
