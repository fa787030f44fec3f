"""Types and constants that all rooms share."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"
"""How log lines look. The library only logs; commands and launchers decide where lines go."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A value that JSON can hold. Floats may be NaN or infinite: how they are spelled is up to who writes them."""


@runtime_checkable
class Stateful(Protocol):
    """Something that must survive a restart."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...
