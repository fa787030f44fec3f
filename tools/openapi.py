"""Write `src/determined/server/openapi.json`, from which the types of the page are made; `--check` only compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fastapi import FastAPI

from determined.server.routes import ROUTERS

PLACE = Path(__file__).parents[1] / "src" / "determined" / "server" / "openapi.json"


def document() -> str:
    """Return the description of all routes, the same for the same source."""
    app = FastAPI(title="Resolute", version="1")
    for router in ROUTERS:
        app.include_router(router, prefix="/api/v1")
    return json.dumps(app.openapi(), indent=1, sort_keys=True) + "\n"


def main() -> int:
    """Write or compare."""
    if "--check" not in sys.argv[1:]:
        PLACE.write_text(document(), encoding="utf-8")
        return 0
    if PLACE.read_text(encoding="utf-8") == document():
        return 0
    print("openapi.json is not what the routes say. Write it anew with: make ui", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
