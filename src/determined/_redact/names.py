"""Names whose values are secrets."""

from __future__ import annotations

import enum
import functools
import logging
import os
import re
from typing import NamedTuple

# All of these see names as words with "_" between them.
_SERVICES = (
    "anthropic|aws|azure|clearml|cohere|comet|datadog|gcp|gcs|github|gitlab|hf|hub|huggingface|kaggle|langchain|langsmith"
    "|mlflow|neptune|ngc|npm|openai|pinecone|pypi|replicate|s3|sendgrid|sentry|slack|stripe|twilio|wandb"
)
_KINDS = (
    "access|account|admin|aes|api|app|auth|bearer|ci|cipher|client|consumer|csrf|deploy|encryption|fernet|hmac|jwt|license"
    "|master|oauth|oauth2|personal|private|refresh|registry|rsa|sas|secret|security|service|session|shared|signing|ssh"
    "|storage|subscription|symmetric"
)
_STRONG = (
    rf"(?:^|_)(?:\w*passw(?:or)?ds?|\w*passphrases?|passcode|pwd|pw|psk|secrets?|credentials?|creds|bearer|authorization"
    rf"|auth_headers?|mnemonic|seed_phrase|(?:{_SERVICES})(?:_\w+)?_?(?:keys?|tokens?)|(?:{_KINDS})_?(?:keys?|tokens?)"
    rf"|(?:{_SERVICES}|{_KINDS})_(?:pat|pass)|conn(?:ection)?_?str(?:ing)?|sas_url|(?:pre)?signed_url"
    r"|(?:db|database|ftp|http|login|mail|mongo|mysql|pg|postgres|proxy|redis|root|smtp|user)_?(?:pass|pw)|^pass)(?:$|_)"
)
# Where a secret is, or what is known about it: `password_file`, `api_key_env`, `secret_name`.
_POINTER = (
    r"_(?:file|filename|path|dir|directory|env|var|variable|name|type|kind|uri|endpoint|length|len|size|dim|count|format"
    r"|encoding|policy|version|required|enabled|expiry|ttl|hint)$"
)
_WEAK = r"(?:^|_)(?:token|auth|authentication|cookies?|jwt|otp|pin)$"
_OF_LANGUAGE = (  # `pad_token` and its like are text that a model reads
    r"(?:^|_)(?:additional|assistant|audio|bad|begin|beginning|blank|boi|bos|char|class|cls|control|decoder|dist|encoder"
    r"|end|eoi|eos|eot|fim|first|forced|image|lang|language|last|latent|mask|max|middle|min|n|new|newline|next|num|oov"
    r"|pad|padding|patch|per|placeholder|prefix|prev|query|register|sep|separator|single|sot|space|speaker|special|start"
    r"|stop|sub|subword|suffix|summary|system|task|text|think|thinking|tool|unk|unknown|video|vocab|word)_token$"
)


_LONGEST = 200  # of a name; text has words of any length


class Added(NamedTuple):
    """What `DET_REDACT` adds."""

    names: re.Pattern[str] | None
    shapes: tuple[re.Pattern[str], ...]


class Hides(enum.Enum):
    """What is hidden in a part of a structure."""

    NOTHING = 0
    IF_TELLING = 1  # text, unless it is harmless; what is below is judged by its own names
    TEXT = 2  # all but numbers, here and below
    VARIABLES = 3  # everything but the names in NAME=value, here and below
    ALL = 4


KEEPS_NUMBERS = (Hides.NOTHING, Hides.IF_TELLING, Hides.TEXT)


def is_secret(name: str) -> bool:
    """Return whether text of this name is redacted. `pad_token`, `tokenizer` and `keyboard` are none.

    Example::

        assert is_secret("wandb_api_key") and is_secret("dbPassword") and not is_secret("eos_token")
    """
    return hidden_by(name) is not Hides.NOTHING or is_added(name)


def hidden_by(name: str, parent: str = "") -> Hides:
    """Return what this name hides, below that one."""
    name = name[-_LONGEST:]
    found = _by_name(name)
    if found is Hides.NOTHING and name in ("key", "keys", "pass", "pat", "string"):  # {"wandb": {"key": ...}}
        found = _by_name(f"{parent[-_LONGEST:]}.{name}")
    return found


@functools.lru_cache(maxsize=4096)
def _by_name(name: str) -> Hides:
    parts = words(name)
    if re.search(_OF_LANGUAGE, parts) or re.search(_POINTER, parts):
        return Hides.NOTHING
    if re.search(_STRONG, parts):
        return Hides.TEXT
    return Hides.IF_TELLING if re.search(_WEAK, parts) else Hides.NOTHING


@functools.lru_cache(maxsize=4096)
def words(name: str) -> str:
    """Return `apiKey`, `API-Key` and `api.key` as `api_key`."""
    parted = re.sub(
        r"([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])", lambda m: f"{m[1]}_{m[2]}" if m[1] else f"{m[3]}_", name
    )
    return re.sub(r"[^A-Za-z0-9]+", "_", parted).strip("_").lower()


def is_added(name: str) -> bool:
    """Return whether `DET_REDACT` adds this name."""
    names = added().names
    return names is not None and names.search(words(name[-_LONGEST:])) is not None


def added() -> Added:
    """Return what `DET_REDACT` adds now."""
    return _parsed(os.environ.get("DET_REDACT", ""))


@functools.lru_cache(maxsize=8)
def _parsed(told: str) -> Added:
    names, shapes = [], []
    for entry in filter(None, (entry.strip() for entry in told.split(","))):
        if len(entry) > 2 and entry[0] == entry[-1] == "/":
            shapes.append(_pattern(entry[1:-1]))
        else:
            names.append("".join(r"\w*" if part == "*" else words(part) for part in re.split(r"(\*)", entry)))
    return Added(re.compile(rf"(?:^|_)(?:{'|'.join(names)})(?:$|_)") if any(names) else None, tuple(shapes))


def _pattern(written: str) -> re.Pattern[str]:
    try:
        return re.compile(written)
    except re.error as broken:
        logging.getLogger("determined").warning(
            "DET_REDACT: /%s/ is no regular expression (%s), and is taken literally.", written, broken
        )
        return re.compile(re.escape(written))
