"""What a request to a route may do. Each route names one; the app refuses to start with a route that names none."""

from __future__ import annotations

from typing import Any

RULE = "x-rule"

OPEN: dict[str, Any] = {"openapi_extra": {RULE: "open"}}
"""Anybody who reaches the server may ask: what is needed before a token is known."""
READS: dict[str, Any] = {"openapi_extra": {RULE: "reads"}}
"""Whoever has the token may ask."""
CHANGES: dict[str, Any] = {"openapi_extra": {RULE: "changes"}}
"""Whoever has the token may, from the page itself, unless the server was started with --read-only."""
