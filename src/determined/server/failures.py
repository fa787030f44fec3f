"""What went wrong, as JSON: one sentence in `detail`, a fitting status, and `problems` where there are several."""

from __future__ import annotations

from typing import Any

import pydantic
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from determined import errors

STATUS: list[tuple[type[Exception], int]] = [  # the first that fits
    (errors.NotFound, 404),
    (errors.CheckpointNotFound, 404),
    (errors.Refused, 409),
    (errors.CheckpointStateException, 409),
    (errors.CheckpointDamaged, 409),
    (errors.MissingPackage, 409),
    (errors.NoDirectStorageAccess, 409),
    (errors.LinkUnavailable, 503),
    (errors.StoreError, 503),
    (errors.DeterminedError, 422),
    (ValueError, 422),
]
RETRY_SECONDS = 2


def answer(status: int, detail: str, **more: Any) -> JSONResponse:
    """Return the one shape that all errors have."""
    headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else None
    return JSONResponse({"detail": detail, **more}, status, headers=headers)


def install(app: FastAPI) -> None:
    """Let an app answer errors like this; what nobody expected is left to the guard."""
    app.add_exception_handler(errors.DeterminedError, _expected)
    app.add_exception_handler(ValueError, _expected)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)


def status_of(error: Exception) -> int:
    """Return the status that fits an expected error."""
    return next(status for kind, status in STATUS if isinstance(error, kind))


async def _expected(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001
    if isinstance(error, pydantic.ValidationError):  # an answer of ours that breaks its own rules, not a question
        raise error
    problems = getattr(error, "problems", ())
    more = {"problems": [{"where": where, "reason": reason} for where, reason in problems]} if problems else {}
    return answer(status_of(error), str(error) or type(error).__name__, **more)


async def _invalid(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001
    assert isinstance(error, RequestValidationError)
    problems = [
        {"where": ".".join(str(part) for part in found["loc"][1:]) or str(found["loc"][0]), "reason": found["msg"]}
        for found in error.errors()
    ]
    first = problems[0]
    more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
    return answer(422, f"{first['where']}: {first['reason']}{more}.", problems=problems)


async def _http(request: Request, error: Exception) -> JSONResponse:  # noqa: ARG001
    assert isinstance(error, HTTPException)
    return answer(error.status_code, str(error.detail))
