"""Turn errors of a database into sentences a person can act on."""

from __future__ import annotations

import sqlalchemy as sa

from determined import errors

# What SQLite says -> what it means and what to do. The first that is found in the message counts.
_PASSING_SQLITE = {
    "is locked": "another process has been writing to it for too long; it is tried again",
    "disk is full": "there is no space left on its disk; free some",
    "readonly database": "it may only be read; check the permissions of the file and of its directory",
    "disk i/o error": "its disk could not be read or written; check the disk and the space left",
    "unable to open": "it cannot be opened; check that its directory exists and may be written to",
    "interrupted": "the work was interrupted; it is tried again",
    "no such table": "its tables are not there; was the file replaced while in use?",
}
_DAMAGED_SQLITE = {
    "not a database": "it is not an SQLite database, or its beginning is damaged",
    "malformed": "the file is damaged",
    "malformed database schema": "the file is damaged",
}
_PASSING_CODES = {
    "40001": "two writers met; it is tried again",
    "40P01": "two writers met; it is tried again",
    "55P03": "another process has held a row for too long; it is tried again",
    "57P01": "the server is shutting down",
    "57P02": "the server has crashed",
    "57P03": "the server is starting up",
    "25006": "it may only be read",
    "53100": "there is no space left on its disk; free some",
    "53200": "the server is out of memory",
    "53300": "the server accepts no more connections; raise its max_connections",
    "57014": "the server has taken too long",
}
# What is said before a connection has a code -> what to check. Waiting does not help against these.
_REFUSED_SIGNS = {
    "authentication failed": "user and password in the address, PGPASSWORD or ~/.pgpass",
    "no password supplied": "user and password in the address, PGPASSWORD or ~/.pgpass",
    "no pg_hba.conf entry": "who may connect from where in the server's pg_hba.conf, and sslmode in the address",
    "certificate": "sslmode and sslrootcert in the address",
    "does not support SSL": "sslmode in the address",
    "invalid sslmode": "sslmode in the address",
    "definition of service": "the name of the service in ~/.pg_service.conf or PGSERVICEFILE",
}
_FULL_SIGNS = ("too many clients", "too many connections", "connection slots")

TOO_LARGE = "A number is larger than a store can hold, or than any id in it. The largest is 9223372036854775807."


def explain(place: str, failed: sa.exc.SQLAlchemyError) -> errors.DeterminedError:
    """Return the error to raise instead: `StoreUnavailable` for what may pass, `StoreError` for what will not."""
    if isinstance(failed, sa.exc.TimeoutError):
        return errors.StoreUnavailable(f"The store {place} is busy: all of this process's connections are in use.")
    origin = failed.orig if isinstance(failed, sa.exc.DBAPIError) else None
    if origin is None:
        return errors.StoreError(f"The store {place} cannot do this: {failed}")
    if type(origin).__module__.startswith("sqlite3"):
        return _explain_sqlite(place, origin)
    assert isinstance(failed, sa.exc.DBAPIError)
    return _explain_postgresql(place, failed, origin)


def _explain_sqlite(place: str, origin: BaseException) -> errors.DeterminedError:
    said = str(origin).lower()
    for sign, meaning in _DAMAGED_SQLITE.items():
        if sign in said:
            advice = "Nothing was changed. Look closer with: det store check"
            return errors.StoreDamaged(f"The store {place} cannot be used ({origin}): {meaning}. {advice}")
    for sign, meaning in _PASSING_SQLITE.items():
        if sign in said:
            return errors.StoreUnavailable(f"The store {place} cannot be used now ({origin}): {meaning}.")
    return errors.StoreError(f"The store {place} refused: {origin}.")


def _explain_postgresql(place: str, failed: sa.exc.DBAPIError, origin: BaseException) -> errors.DeterminedError:
    said = str(origin).strip().split("\n")[0]
    code: str | None = getattr(origin, "sqlstate", None)
    if meaning := _PASSING_CODES.get(code or ""):
        return errors.StoreUnavailable(f"The store {place} cannot be used now ({said}): {meaning}.")
    if code == "22003":
        return errors.InvalidValue(TOO_LARGE)
    for sign, what in _REFUSED_SIGNS.items():
        if sign in said:
            return errors.StoreError(f"The store {place} does not let us in ({said}). Check {what}.")
    if code == "3D000" or ("database" in said and "does not exist" in said):
        return errors.StoreError(f"The store {place} is not there ({said}). Make it with: createdb <name>")
    if code is None and isinstance(failed, sa.exc.OperationalError):  # the server has not answered at all
        is_full = any(sign in said for sign in _FULL_SIGNS)
        advice = _PASSING_CODES["53300"] if is_full else "check that the server runs and can be reached"
        return errors.StoreUnavailable(f"The store {place} cannot be reached ({said}): {advice}.")
    if failed.connection_invalidated or (code or "").startswith("08"):
        return errors.StoreUnavailable(f"The connection to the store {place} is lost ({said}); it is tried again.")
    return errors.StoreError(f"The store {place} refused: {said}.")
