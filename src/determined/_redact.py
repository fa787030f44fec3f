"""Redact secrets: passwords, tokens and keys, known by the name beside them or by their shape.

Training works with the real values; whatever is recorded, saved, logged or shown has passed through here. What
counts as a secret, and what does not, is in docs/decisions/secrets.md. `DET_REDACT` adds to it: names, separated by
commas, with `*` for any letters, and patterns between slashes for text anywhere: `"pin, *_salt, /CORP-[0-9]+/"`.

Patterns are text here and compiled on first use, so that importing this costs nothing.
"""

from __future__ import annotations

import enum
import functools
import logging
import numbers
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

ROOMS = ("artifacts", "client", "core", "experiment", "pytorch", "store", "tensorboard")

T = TypeVar("T")
_NUMBERS = (float, int, bool)
_SPACES = ("const", "int", "double", "log", "categorical")  # a hyperparameter's space says so in its "type"

# Names whose values are secrets.
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

# Secrets in text, known by their shape or by the name beside them.
MASK = "********"
_RANDOM_NAME = r"(?:^|_)(?:keys?|tokens?|sig|signature|k|t)$"
_RANDOM = r"[0-9a-fA-F]{32,}|(?=.*[a-z])(?=.*[A-Z])(?=.*\d)\w{24,}"
_HARMLESS = r"(?i)[<\[({|].*[>\])}|]|v?\d{1,4}(?:\.\w+)+|\d{1,3}|true|false|yes|no|on|off|none|null|auto|"
_PARAMETER = r"(?:^|_)(?:sig|signature|key|auth|code|awsaccesskeyid|googleaccessid)$"

_PEM = r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY[^-]*-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY[^-]*-----|\Z)"
_PASSWORD_URL = (
    r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{0,40}://)([^\s/:@?#]{0,200}):(?!\d{1,5}(?:[/?#,;\"')\]]|\s|$))"
    r"[^\s@]{0,500}@(?:[^\s/?#@\"']{0,200}@)*"
)
_LOGIN_URL = r"(?i)(https?://)[^\s/?#@\"'<>]{1,500}@(?:[^\s/?#@\"']{0,200}@)*"
_QUERY = r"([?&;])([\w.%~-]+)=([^\s&;#\"'<>]+)"
_WEBHOOK = r"(hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/)[^\s\"'<>]+"
_SCHEMES = ("bearer", "basic", "token", "digest", "")
_HEADER = r"(?i)(\bauthorization[\"']?\s*[:=]\s*[\"']?)(?:(bearer|basic|token|digest)\s+)?[^\s\"',;]+"
_BEARER = r"(?i)(\bbearer\s+)(?=\S*\d)[A-Za-z0-9._~+/-]{8,}=*"
_AZURE = r"(?i)((?:AccountKey|SharedAccessKey|SharedAccessSignature)=)[^;\s\"']+"
_TOKEN = (
    r"(?<![A-Za-z0-9_-])(?:A(?:KIA|SIA)[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|hf_[A-Za-z0-9]{20,}|sk-(?=[\w-]*\d)[\w-]{16,}|[srp]k_(?:live|test)_[A-Za-z0-9]{16,}|xox[a-z]-[A-Za-z0-9-]{8,}"
    r"|xapp-[A-Za-z0-9-]{8,}|eyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*|AIza[\w-]{35}|ya29\.[\w-]{20,}|npm_[A-Za-z0-9]{30,}"
    r"|pypi-[\w-]{30,}|dop_v1_[0-9a-f]{32,}|SG\.[\w-]{16,}\.[\w-]{16,}|r8_[A-Za-z0-9]{30,})(?![A-Za-z0-9_-])"
)
_HINTS = (  # a line without any of these has no such shape; nearly all lines
    "://", "PRIVATE KEY", "KIA", "SIA", "gh", "github_pat", "glpat-", "hf_", "sk-", "k_", "xox", "xapp-", "eyJ", "AIza",
    "ya29", "npm_", "pypi-", "dop_v1_", "SG.", "r8_", "earer", "EARER", "uthorization", "UTHORIZATION", "ccountKey",
    "ccessKey", "ccessSig", "accountkey", "accesskey", "hooks.", "discord",
)  # fmt: skip
_ASSIGNED = r"(?<![\w.-])([A-Za-z_][\w.-]*)([\"']?)(\s*[=:]\s*)(\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&\"'(){}\[\]]+)"
_FLAG = r"(?<![\w-])(?<!mkdir )(--?[A-Za-z][\w.-]*)(\s+)(\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'-][^\s\"']*)"
_KEY_LINE = r"[A-Za-z0-9+/=]*|[A-Za-z-]+: .*"


class Added(NamedTuple):
    """What `DET_REDACT` adds."""

    names: re.Pattern[str] | None
    shapes: tuple[re.Pattern[str], ...]


class Hides(enum.IntEnum):
    """What is hidden in a part of a structure. Up to `TEXT`, numbers stay."""

    NOTHING = 0
    IF_TELLING = 1  # text, unless it is harmless; what is below is judged by its own names
    TEXT = 2  # all but numbers, here and below
    VARIABLES = 3  # everything but the names in NAME=value, here and below
    ALL = 4


# Structures.


def redacted(value: T, name: str = "") -> T:
    """Return the value as it may be written down: the same structure, with `********` for secrets. Idempotent.

    Numbers and booleans stay, whatever they are called, except below `secrets` and under names that `DET_REDACT` adds.

    Args:
        value: Plain values, dicts and lists. Other objects stay, unless their name says that they are a secret.
        name: What it is called.

    Example::

        redacted({"lr": 0.1, "db": {"password": "hunter2"}})  # {"lr": 0.1, "db": {"password": "********"}}
    """
    found: T = _walk(value, name, "", Hides.NOTHING, _added())
    return found


def _walk(value: Any, name: str, parent: str, above: Hides, added: Added) -> Any:
    if value is None or (added.names is None and above <= Hides.TEXT and type(value) in _NUMBERS):
        return value
    hides = _hides(name, parent, above, added)
    if isinstance(value, Mapping):
        inner = Hides.NOTHING if hides is Hides.IF_TELLING else hides
        keeps_numbers = added.names is None and inner <= Hides.TEXT
        is_space = hides is Hides.TEXT and value.get("type") in _SPACES
        shown: dict[Any, Any] = {}
        for key, item in value.items():
            place = _key(key, added) if isinstance(key, str) else key
            while place in shown:  # two keys that differ in their secrets only
                place = f"{place}+"
            is_plain = (keeps_numbers and type(item) in _NUMBERS) or (is_space and key == "type")
            shown[place] = item if is_plain else _walk(item, str(key), name, inner, added)
        return shown
    if isinstance(value, (list, tuple)):
        if hides is Hides.NOTHING and _is_command(value):
            found = redacted_arguments(value)
        else:
            found = [_walk(item, name, parent, hides, added) for item in value]
        return found if isinstance(value, list) else tuple(found)
    if isinstance(value, (set, frozenset)):
        return type(value)(_walk(item, name, parent, hides, added) for item in value)
    return _redacted_leaf(value, name, hides, added)


def _redacted_leaf(value: Any, name: str, hides: Hides, added: Added) -> Any:
    """Return one value of a structure as it may be written down."""
    if hides <= Hides.TEXT and isinstance(value, numbers.Number):
        return value
    if not isinstance(value, str):
        return value if hides is Hides.NOTHING else MASK
    if not value:
        return value
    if hides is Hides.VARIABLES:
        variable, equals, _ = value.partition("=")
        return f"{variable}={MASK}" if equals and re.fullmatch(r"\w+", variable) else MASK
    is_harmless = hides is Hides.IF_TELLING and re.fullmatch(_HARMLESS, value)
    if hides is not Hides.NOTHING and not is_harmless:
        return MASK
    if re.search(_RANDOM_NAME, _words(name)) and re.fullmatch(_RANDOM, value):
        return MASK
    return _redacted(value, added, by_name=True)


def hidden_in(value: Any, name: str = "") -> list[str]:
    """Return the dotted names of what was redacted in a value."""
    if isinstance(value, Mapping):
        inner = [hidden_in(item, f"{name}.{key}" if name else str(key)) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        inner = [hidden_in(item, f"{name}[{i}]") for i, item in enumerate(value)]
    else:
        return [name] if isinstance(value, str) and MASK in value else []
    return [found for part in inner for found in part]


@functools.lru_cache(maxsize=4096)
def _key(key: str, added: Added) -> str:
    return _redacted(key, added, by_name=False)


def _is_command(value: Sequence[Any]) -> bool:
    return all(isinstance(item, str) for item in value) and any(item.startswith("-") for item in value)


# Names.


def is_secret(name: str) -> bool:
    """Return whether text of this name is redacted. `pad_token`, `tokenizer` and `keyboard` are none.

    Example::

        assert is_secret("wandb_api_key") and is_secret("dbPassword") and not is_secret("eos_token")
    """
    return _hidden_by(name, "", _added()) is not Hides.NOTHING


@functools.lru_cache(maxsize=4096)
def _hides(name: str, parent: str, above: Hides, added: Added) -> Hides:
    """Return what is hidden in a structure under this name, below that one."""
    if above >= Hides.VARIABLES:
        return above
    found = Hides.ALL if name == "secrets" else _hidden_by(name, parent, added)
    if name == "environment_variables" and found is not Hides.ALL:
        return Hides.VARIABLES
    return max(found, above) if above is Hides.TEXT else found


def _hidden_by(name: str, parent: str, added: Added) -> Hides:
    """Return what this name hides, below that one."""
    name = name[-_LONGEST:]
    if added.names is not None and added.names.search(_words(name)):
        return Hides.ALL
    found = _by_name(name)
    if found is Hides.NOTHING and name in ("key", "keys", "pass", "pat", "string"):  # {"wandb": {"key": ...}}
        found = _by_name(f"{parent[-_LONGEST:]}.{name}")
    return found


@functools.lru_cache(maxsize=4096)
def _by_name(name: str) -> Hides:
    parts = _words(name)
    if re.search(_OF_LANGUAGE, parts) or re.search(_POINTER, parts):
        return Hides.NOTHING
    if re.search(_STRONG, parts):
        return Hides.TEXT
    return Hides.IF_TELLING if re.search(_WEAK, parts) else Hides.NOTHING


@functools.lru_cache(maxsize=4096)
def _words(name: str) -> str:
    """Return `apiKey`, `API-Key` and `api.key` as `api_key`."""
    parted = re.sub(
        r"([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])", lambda m: f"{m[1]}_{m[2]}" if m[1] else f"{m[3]}_", name
    )
    return re.sub(r"[^A-Za-z0-9]+", "_", parted).strip("_").lower()


def _added() -> Added:
    return _parsed(os.environ.get("DET_REDACT", ""))


@functools.lru_cache(maxsize=8)
def _parsed(told: str) -> Added:
    names, shapes = [], []
    for entry in filter(None, (entry.strip() for entry in told.split(","))):
        if len(entry) > 2 and entry[0] == entry[-1] == "/":
            try:
                shapes.append(re.compile(entry[1:-1]))
            except re.error as broken:
                logging.getLogger("determined").warning(
                    "DET_REDACT: %s is no regular expression (%s), and is taken literally.", entry, broken
                )
                shapes.append(re.compile(re.escape(entry[1:-1])))
        else:
            names.append("".join(r"\w*" if part == "*" else _words(part) for part in re.split(r"(\*)", entry)))
    return Added(re.compile(rf"(?:^|_)(?:{'|'.join(names)})(?:$|_)") if any(names) else None, tuple(shapes))


# Text.


def by_shape(text: str) -> str:
    """Return free text without secrets known by their shape: keys, known tokens, passwords in URLs."""
    return _redacted(text, _added(), by_name=False)


def redacted_text(text: str) -> str:
    """Like `by_shape`, and without what follows the name of a secret: `password=x`, `--api-key x`, `"token": "x"`."""
    return _redacted(text, _added(), by_name=True)


def _redacted(text: str, added: Added, *, by_name: bool) -> str:
    for _ in range(4):  # until nothing changes: what is left out may bring other things together
        before = text
        if any(map(text.__contains__, _HINTS)):
            text = re.sub(_PEM, MASK, text)
            text = re.sub(_LOGIN_URL, rf"\1{MASK}@", text)
            text = re.sub(_PASSWORD_URL, rf"\1\2:{MASK}@", text)
            text = re.sub(_QUERY, _parameter, text)
            text = re.sub(_WEBHOOK, rf"\1{MASK}", text)
            text = re.sub(_HEADER, lambda m: f"{m[1]}{m[2] + ' ' if m[2] else ''}{MASK}", text)
            text = re.sub(_BEARER, rf"\1{MASK}", text)
            text = re.sub(_AZURE, rf"\1{MASK}", text)
            text = re.sub(_TOKEN, MASK, text)
        for shape in added.shapes:
            text = shape.sub(MASK, text)
        if by_name and ("=" in text or ":" in text):
            text = re.sub(_ASSIGNED, _assignment, text)
        if by_name and "-" in text:
            text = re.sub(_FLAG, _flag, text)
        if text == before:
            break
    return text


def holds_key(text: str) -> bool:
    """Return whether code holds a private key, a known token or a password in a URL; `{password}` is none."""
    if any(map(text.__contains__, _HINTS)):
        urls = (found[0] for found in re.finditer(_PASSWORD_URL, text))
        if re.search(_PEM, text) or re.search(_TOKEN, text) or any(not re.search(r"[{}$%<>*]", url) for url in urls):
            return True
    return any(shape.search(text) for shape in _added().shapes)


def _parameter(found: re.Match[str]) -> str:
    mark, name, _ = found.groups()
    return f"{mark}{name}={MASK}" if is_secret(name) or re.search(_PARAMETER, _words(name)) else found[0]


def _assignment(found: re.Match[str]) -> str:
    name, quote, sign, value = found.groups()
    hides = _hidden_by(name, "", _added())
    inner = value.strip("\"'")
    is_weak = hides is Hides.IF_TELLING
    is_prose = is_weak and ((":" in sign and not quote) or re.fullmatch(_HARMLESS, inner))  # "the next token: a word"
    if hides is Hides.NOTHING or is_prose or inner.lower() in _SCHEMES:
        return found[0]
    return f"{name}{quote}{sign}{_requoted(value, MASK)}"


def _requoted(before: str, after: str) -> str:
    mark = before[0] if before[:1] in ('"', "'") else ""
    return f"{mark}{after}{mark}"


def _flag(found: re.Match[str]) -> str:
    flag, space, value = found.groups()
    return f"{flag}{space}{_requoted(value, _argument(flag, value.strip(chr(34) + chr(39))))}"


# Command lines.


def redacted_arguments(arguments: Sequence[str]) -> list[str]:
    """Return command line arguments, without the values of `--password x`, `--token=x`, `-p x` and `TOKEN=x`."""
    shown: list[str] = []
    flag = ""
    for argument in arguments:
        if argument.startswith("-") or not flag:
            name, equals, value = argument.partition("=")
            flag = name.lstrip("-") if name.startswith("-") and not equals else ""
            shown.append(f"{name}={_argument(name, value)}" if equals and value else redacted_text(argument))
        else:
            shown.append(_argument(f"-{flag}", argument))
            flag = flag if flag.endswith("s") and is_secret(flag) else ""  # --api-keys x y
    return shown


def _argument(name: str, value: str) -> str:
    bare = name.lstrip("-").strip("+~")
    if name in ("-p", "--p"):
        return value if re.fullmatch(r"[\d.]+", value) else MASK
    if name in ("-u", "-user", "--user", "--u") and re.fullmatch(r"[^\s:/]+:[^/].*", value):
        return f"{value.partition(':')[0]}:{MASK}"
    added = _added()
    hides = _hidden_by(bare, "", added)
    if bare in ("env", "environment") and re.match(r"\w+=", value):
        hides = Hides.VARIABLES
    return str(_redacted_leaf(value, bare, hides, added))


# Lines.


class KeyBlocks:
    """Hides private keys in lines that come one by one."""

    def __init__(self) -> None:
        self._is_inside = False

    def line(self, text: str) -> str:
        """Return the line, or stars if it is part of a private key."""
        if "PRIVATE KEY" in text and "-----" in text:
            self._is_inside = "-----BEGIN" in text and "-----END" not in text
            return MASK
        if self._is_inside:
            self._is_inside = re.fullmatch(_KEY_LINE, text.strip()) is not None
        return MASK if self._is_inside else text


class LogFilter(logging.Filter):
    """Removes secrets from a logger's own lines."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            said = record.getMessage()
        except (TypeError, ValueError):  # the handler says so
            return True
        if (shown := redacted_text(said)) != said:
            record.msg, record.args = shown, ()
        return True


for _room in ROOMS:  # a filter of a logger sees its own lines only, not those of the loggers below it
    logging.getLogger(f"determined.{_room}").addFilter(LogFilter())
