"""The secret of a job, and signatures made with it, which are checked before anything is unpickled.

The secret is `DET_JOB_SECRET` if that is set, else a key file of this user's, which only one machine can share. There
is no job without one: objects are sent pickled, so whoever could write one could run any code.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import tempfile
from pathlib import Path

from determined import _home
from determined.errors import CollectiveError

KEY_FILE = "collective.key"
KEY_BYTES = 32
SIGNATURE_BYTES = hashlib.sha256().digest_size
SET_ONE = "DET_JOB_SECRET to one value for all ranks, for example `export DET_JOB_SECRET=$(openssl rand -hex 32)`"


def job_secret(*, one_machine: bool) -> bytes:
    """Return the secret of this job.

    Raises:
        CollectiveError: There is none, or others can read it.
    """
    if told := os.environ.get("DET_JOB_SECRET"):
        return told.encode()
    if not one_machine:
        raise CollectiveError(
            "DET_JOB_SECRET is not set, and ranks on several machines sign what they send each other with it. Make one "
            "text with `openssl rand -hex 32`, and on every machine `export DET_JOB_SECRET=` that same text."
        )
    problems = []
    for place in (_home.make_data_directory, _temporary_directory):
        try:
            return user_key(place() / KEY_FILE)
        except OSError as error:
            problems.append(str(error))
    raise CollectiveError(
        f"The key with which ranks sign what they send each other cannot be kept: {'; '.join(problems)}. Set DET_HOME "
        f"to a directory in which you can write, or {SET_ONE}."
    )


def _temporary_directory() -> Path:
    """Return a directory that only this user can read; the same for all ranks on this machine."""
    path = Path(tempfile.gettempdir()) / f"determined-{os.getuid() if os.name == 'posix' else os.getlogin()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or _is_open(found):
        raise PermissionError(f"{path} is not a directory of this user's alone")
    return path


def user_key(path: Path) -> bytes:
    """Return the key in the file `path`, made now if it is not there. Ranks that make it at once agree on one."""
    if not path.exists():
        draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)  # unlike a rename, leaves alone what another rank put there first
        finally:
            draft.unlink()
    is_open = _is_open(path.stat())
    key = b"" if is_open else path.read_bytes()
    if len(key) != KEY_BYTES:
        found = f"has {len(key)} bytes instead of {KEY_BYTES}"
        raise CollectiveError(
            f"{path}, the key with which ranks sign what they send each other, "
            f"{'belongs to somebody else or can be read by others' if is_open else found}. Delete it with `rm {path}`, "
            f"and a new one is made, or set {SET_ONE}."
        )
    return key


def _is_open(found: os.stat_result) -> bool:
    """Whether anybody but this user could read it."""
    return os.name == "posix" and (found.st_uid != os.getuid() or bool(stat.S_IMODE(found.st_mode) & 0o077))


def derive(secret: bytes, *context: bytes) -> bytes:
    """Return a key for one purpose, so that a message signed in one session is refused in another."""
    return hmac.digest(secret, b"\0".join(context), "sha256")


def sign(key: bytes, path: str, body: bytes) -> bytes:
    """Return `body` after a signature that is valid for `path` only."""
    return hmac.digest(key, path.encode() + b"\0" + body, "sha256") + body


def verify(key: bytes, path: str, record: bytes, sender: str) -> bytes:
    """Return the body of `record`, which must be signed with `key` for `path`."""
    body = record[SIGNATURE_BYTES:]
    if not hmac.compare_digest(record, sign(key, path, body)):
        raise CollectiveError(
            f"A message from {sender} is not signed with the secret of this job, so it was refused unread. "
            "Set the same DET_JOB_SECRET for every rank, and check that no other job uses this address and port."
        )
    return body
