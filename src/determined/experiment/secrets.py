"""What is not shown: the user's secrets and the keys of cloud storage. Trials get them; people and logs see stars."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from determined.experiment.storage_config import SECRET_KEYS

MASK = "********"
USER_INFO = re.compile(r"(?<=://)[^/?#@]*@")
QUERY = re.compile(r"\?.*", re.DOTALL)


def masked(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a configuration that can be shown.

    Example::

        masked({"data": {"secrets": {"token": "abc"}}})  # {"data": {"secrets": {"token": "********"}}}
    """
    found = copy.deepcopy(dict(config))
    if isinstance(data := found.get("data"), dict) and data.get("secrets") is not None:
        data["secrets"] = _stars(data["secrets"])
    if isinstance(storage := found.get("checkpoint_storage"), dict):
        for key, value in storage.items():
            if key in SECRET_KEYS and value is not None:
                storage[key] = MASK
            elif key.endswith("_url") and isinstance(value, str):  # a URL may carry a password, or a signed query
                storage[key] = QUERY.sub(f"?{MASK}", USER_INFO.sub(f"{MASK}@", value))
    return found


def _stars(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stars(inner) for key, inner in value.items()}
    return [_stars(inner) for inner in value] if isinstance(value, list) else MASK
