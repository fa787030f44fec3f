"""Text without its secrets: by their shape, by the name beside them, as arguments, line by line, in a log."""

from __future__ import annotations

import logging
import numbers
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from determined._redact.names import KEEPS_NUMBERS, Hides, added, hidden_by, is_added, is_secret, words

MASK = "********"
_RANDOM_NAME = r"(?:^|_)(?:keys?|tokens?|sig|signature|k|t)$"
_RANDOM = r"[0-9a-fA-F]{32,}|(?=.*[a-z])(?=.*[A-Z])(?=.*\d)\w{24,}"
_HARMLESS = r"(?i)[<\[({|].*[>\])}|]|v?\d{1,4}(?:\.\w+)+|\d{1,3}|true|false|yes|no|on|off|none|null|auto|"
_PARAMETER = r"(?:^|_)(?:sig|signature|key|auth|code|awsaccesskeyid|googleaccessid)$"
_VARIABLE = r"\w+"

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


def by_shape(text: str) -> str:
    """Return free text without secrets known by their shape: keys, known tokens, passwords in URLs."""
    return _settled(text, _by_shape_once) if _may_hold_secret(text) else text


def holds_key(text: str) -> bool:
    """Return whether code holds a private key, a known token or a password in a URL; `{password}` is none."""
    if any(map(text.__contains__, _HINTS)):
        urls = (found[0] for found in re.finditer(_PASSWORD_URL, text))
        if re.search(_PEM, text) or re.search(_TOKEN, text) or any(not re.search(r"[{}$%<>*]", url) for url in urls):
            return True
    return any(shape.search(text) for shape in added().shapes)


def redacted_text(text: str) -> str:
    """Like `by_shape`, and without what follows the name of a secret: `password=x`, `--api-key x`, `"token": "x"`."""
    if "=" in text or ":" in text or "-" in text or _may_hold_secret(text):
        return _settled(text, _text_once)
    return text


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
    hides = Hides.ALL if is_added(bare) else hidden_by(bare)
    if bare in ("env", "environment") and re.match(r"\w+=", value):
        hides = Hides.VARIABLES
    return str(redacted_leaf(value, bare, hides))


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


def _may_hold_secret(text: str) -> bool:
    return any(map(text.__contains__, _HINTS)) or ("DET_REDACT" in os.environ and bool(added().shapes))


def _settled(text: str, once: Callable[[str], str]) -> str:
    """Repeat `once` until nothing changes: what is left out may bring other things together."""
    for _ in range(4):
        before, text = text, once(text)
        if text == before:
            break
    return text


def _by_shape_once(text: str) -> str:
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
    for shape in added().shapes:
        text = shape.sub(MASK, text)
    return text


def _text_once(text: str) -> str:
    text = _by_shape_once(text)
    if "=" in text or ":" in text:
        text = re.sub(_ASSIGNED, _assignment, text)
    if "-" in text:
        text = re.sub(
            _FLAG, lambda m: f"{m[1]}{m[2]}{_requoted(m[3], _argument(m[1], m[3].strip(chr(34) + chr(39))))}", text
        )
    return text


def _parameter(found: re.Match[str]) -> str:
    mark, name, _ = found.groups()
    return f"{mark}{name}={MASK}" if is_secret(name) or re.search(_PARAMETER, words(name)) else found[0]


def _assignment(found: re.Match[str]) -> str:
    name, quote, sign, value = found.groups()
    hides = Hides.ALL if is_added(name) else hidden_by(name)
    inner = value.strip("\"'")
    is_weak = hides is Hides.IF_TELLING
    is_prose = is_weak and ((":" in sign and not quote) or re.fullmatch(_HARMLESS, inner))  # "the next token: a word"
    if hides is Hides.NOTHING or is_prose or inner.lower() in _SCHEMES:
        return found[0]
    return f"{name}{quote}{sign}{_requoted(value, MASK)}"


def _requoted(before: str, after: str) -> str:
    mark = before[0] if before[:1] in ('"', "'") else ""
    return f"{mark}{after}{mark}"


def redacted_leaf(value: Any, name: str, hides: Hides) -> Any:
    """Return one value of a structure as it may be written down."""
    if hides in KEEPS_NUMBERS and isinstance(value, numbers.Number):
        return value
    if not isinstance(value, str):
        return value if hides is Hides.NOTHING else MASK
    if not value:
        return value
    if hides is Hides.VARIABLES:
        variable, equals, _ = value.partition("=")
        return f"{variable}={MASK}" if equals and re.fullmatch(_VARIABLE, variable) else MASK
    is_harmless = hides is Hides.IF_TELLING and re.fullmatch(_HARMLESS, value)
    if hides is not Hides.NOTHING and not is_harmless:
        return MASK
    return MASK if re.search(_RANDOM_NAME, words(name)) and re.fullmatch(_RANDOM, value) else redacted_text(value)
