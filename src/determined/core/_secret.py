"""What proves that a message comes from this job: a secret, and a signature checked before anything is unpickled.

`DET_JOB_SECRET` is the secret if the launcher set it. Otherwise the ranks of one machine share a key file of this
user's. Several machines without `DET_JOB_SECRET` have no secret: their messages are checked for damage only, so set it
wherever others can reach the network between them.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import secrets
import stat
from pathlib import Path

from determined import _home
from determined.errors import CollectiveError

logger = logging.getLogger("determined.core")

KEY_FILE = "collective.key"
SIGNATURE_BYTES = hashlib.sha256().digest_size


def job_secret(*, one_machine: bool) -> bytes:
    """The secret of this job; empty if there is none."""
    if told := os.environ.get("DET_JOB_SECRET"):
        return told.encode()
    if not one_machine:
        return b""
    try:
        return user_key(_home.make_data_directory() / KEY_FILE)
    except OSError as error:
        logger.debug("No key file for messages between ranks (%s); they go unsigned.", error)
        return b""


def user_key(path: Path) -> bytes:
    """This user's key in `path`, made now if it was not there. Ranks that make it at once agree on one."""
    if not path.exists():
        draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(32))
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)  # unlike a rename, leaves alone what another rank put there first
        finally:
            draft.unlink()
    if os.name == "posix":
        found = path.stat()
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            logger.warning("%s can be read by others, so it is not used. Delete it and a new one is made.", path)
            return b""
    return path.read_bytes()


def derive(secret: bytes, *context: bytes) -> bytes:
    """A key for one purpose, so that a message signed for one meeting means nothing in another."""
    return hmac.digest(secret, b"\0".join(context), "sha256")


def seal(key: bytes, where: str, body: bytes) -> bytes:
    """`body` with a signature that holds at `where` only."""
    return hmac.digest(key, where.encode() + b"\0" + body, "sha256") + body


def unseal(key: bytes, where: str, record: bytes, sender: str) -> bytes:
    """The body of `record`, if it was sealed with `key` for `where`."""
    signature, body = record[:SIGNATURE_BYTES], record[SIGNATURE_BYTES:]
    if not hmac.compare_digest(signature, hmac.digest(key, where.encode() + b"\0" + body, "sha256")):
        raise CollectiveError(
            f"A message from {sender} is not signed with the secret of this job, so it was refused unread. "
            "Set the same DET_JOB_SECRET for every rank, and check that no other job uses this address and port."
        )
    return body
