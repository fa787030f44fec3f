"""What is taken out before anything is written down, and what is left alone."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined._redact import (
    MASK,
    KeyBlocks,
    by_shape,
    hidden_in,
    is_secret,
    redacted,
    redacted_arguments,
    redacted_text,
)

SECRET = "hunter2"
TOKENS = [
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2" * 9,
    "glpat-" + "a1B2" * 5,
    "hf_" + "a1B2" * 9,
    "sk-proj-" + "a1B2" * 6,
    "sk_live_" + "a1B2" * 6,
    "xoxb-1234-5678-" + "a1B2" * 5,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "AIza" + "a1B2c3D" * 5,
    "npm_" + "a1B2" * 9,
    "pypi-" + "a1B2" * 9,
]


@pytest.mark.parametrize(
    "name",
    [
        *("password", "db_password", "dbPassword", "PGPASSWORD", "passwd", "passphrase", "smtp_pass"),
        *("apiKey", "api-key", "APIKey", "apikey", "wandb-key", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY"),
        *("AWS_ACCESS_KEY_ID", "private_key", "accountKey", "auth.bearer", "authorization", "client_secret", "secrets"),
        *("token", "hf_token", "access_token", "my_token", "accessToken", "credentials", "connection_string", "auth"),
        *("kaggle_key", "wandb.login.key", "consumer_key", "db.pw", "user_pass", "auth_header", "otp", "my-pin"),
    ],
)
def test_secret_names(name: str) -> None:
    """Issues 6 and 11: text under such names is not written down."""
    assert is_secret(name)
    assert redacted({name: SECRET}) == {name: MASK}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("pad_token", "<pad>"), ("eos_token", "</s>"), ("mask_token", "M"), ("hf_pad_token", "<p>")),
        *(("tokenizer", "bert"), ("tokenizer_name", "gpt2"), ("token_type", "word"), ("stop_tokens", ["a", "b"])),
        *(("keyboard", "qwerty"), ("monkey", "patch"), ("key", "loss"), ("keys", ["a"]), ("primary_key", "id")),
        *(
            ("image_key", "img"),
            ("sort_key", "steps"),
            ("secretary", "Ann"),
            ("passes", "two"),
            ("forward_pass", "x"),
            ("author", "Ann"),
        ),
        *(
            ("api_key_env", "WANDB_API_KEY"),
            ("password_file", "/run/pw"),
            ("secret_name", "db"),
            ("bypass", "on"),
            ("topw", "x"),
        ),
        *(("max_tokens", 512), ("num_tokens", 7), ("key_dim", 64), ("token", 3), ("password", 5), ("use_auth", True)),
        *(("google-auth", "2.40.1"), ("user_token", "<|user|>"), ("prompt", "Answer with one token: yes or no")),
        *(("path", "/data/set:1"), ("url", "https://example.com:8080/a@b?page=2"), ("ssh", "ssh://git@host/x.git")),
        *(("module", "model_def:Trial"), ("lr", 0.1), ("none", None), ("api_key", None), ("api_key", "")),
        *(("spec", "sk-learn-like-name"), ("size", "batch=8, lr=0.1"), ("flags", ["--lr", "0.1", "-p", "8080"])),
    ],
)
def test_ordinary_values_stay(name: str, value: Any) -> None:
    """Issue 11, point 4: hyperparameters of language models, and all that only looks like a secret, stay."""
    assert redacted({name: value}) == {name: value}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"postgresql://me:{SECRET}@host/db", f"postgresql://me:{MASK}@host/db"),
        (f"postgresql://me:{SECRET}/'x@host/db", f"postgresql://me:{MASK}@host/db"),
        (f"redis://:{SECRET}@host:6379/0", f"redis://:{MASK}@host:6379/0"),
        (f"https://{SECRET}@host/repo.git", f"https://{MASK}@host/repo.git"),
        (f"git+https://oauth2:{SECRET}@host/r", f"git+https://{MASK}@host/r"),
        (f"https://h/x?X-Amz-Signature={SECRET}&part=1", f"https://h/x?X-Amz-Signature={MASK}&part=1"),
        (f"https://h/x?sv=1&sig={SECRET}", f"https://h/x?sv=1&sig={MASK}"),
        (f"https://hooks.slack.com/services/{SECRET}", f"https://hooks.slack.com/services/{MASK}"),
        (f"AccountName=a;AccountKey={SECRET}==;X=1", f"AccountName=a;AccountKey={MASK};X=1"),
        (f"Authorization: Basic {SECRET}", f"Authorization: Basic {MASK}"),
        (f"curl -H 'X: Bearer {SECRET}abcd'", f"curl -H 'X: Bearer {MASK}'"),
        (f"a -----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY----- b", f"a {MASK} b"),
        (f"-----BEGIN PRIVATE KEY-----\\n{SECRET}", MASK),
        *((f"see {token}.", f"see {MASK}.") for token in TOKENS),
    ],
)
def test_shapes(text: str, shown: str) -> None:
    """Issue 11, point 4: what is a secret by its shape is taken out of any text, whatever it is called."""
    assert by_shape(text) == redacted_text(text) == shown
    assert redacted([{"note": text}]) == [{"note": shown}]
    assert redacted({text: 1}) == {shown: 1}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"host=h password={SECRET} user=me", f"host=h password={MASK} user=me"),
        (f'{{"api_key": "{SECRET} {SECRET}", "lr": 1}}', f'{{"api_key": "{MASK}", "lr": 1}}'),
        (f"Config(token='{SECRET}', n=3)", f"Config(token='{MASK}', n=3)"),
        (
            f"python t.py --wandb-key {SECRET} --lr 1 -p '{SECRET}'",
            f"python t.py --wandb-key {MASK} --lr 1 -p '{MASK}'",
        ),
        ("mkdir -p out", "mkdir -p out"),
        ("the next token: a word", "the next token: a word"),
    ],
)
def test_names_in_text(text: str, shown: str) -> None:
    """Issue 11, point 4: values that follow a telling name; free text of users keeps them (`by_shape`)."""
    assert redacted_text(text) == shown
    assert by_shape(text) == text


def test_everything_below_secrets_is_hidden() -> None:
    """P-09: values under data.secrets are not written down, whatever they are called and whatever they are."""
    shown = redacted({"data": {"secrets": {"t": SECRET, "pin": 1234, "more": {"x": [SECRET, "A=b"], "none": None}}}})
    assert shown == {"data": {"secrets": {"t": MASK, "pin": MASK, "more": {"x": [MASK, MASK], "none": None}}}}


def test_structures() -> None:
    """Issue 11, point 4: structure stays; what is below a telling name is hidden, but not what a space is."""
    given = {
        "auth": {"bearer": SECRET, "type": "oauth"},
        "wandb": {"key": SECRET, "project": "p"},
        "api_key": {"type": "categorical", "vals": [SECRET, SECRET]},
        "cache_key": "0f" * 20,
        "tuple": (1, f"https://{SECRET}@h"),
        "entrypoint": ["python", "t.py", "--api-key", SECRET],
        "environment": {"environment_variables": {"cpu": [f"A={SECRET}"]}, "image": "i"},
    }
    assert redacted(given) == {
        "auth": {"bearer": MASK, "type": "oauth"},
        "wandb": {"key": MASK, "project": "p"},
        "api_key": {"type": "categorical", "vals": [MASK, MASK]},
        "cache_key": MASK,
        "tuple": (1, f"https://{MASK}@h"),
        "entrypoint": ["python", "t.py", "--api-key", MASK],
        "environment": {"environment_variables": {"cpu": [f"A={MASK}"]}, "image": "i"},
    }
    assert hidden_in(redacted(given))[:3] == ["auth.bearer", "wandb.key", "api_key.vals[0]"]


def test_keys_that_become_equal_stay_two() -> None:
    """Two names that differ only in their secrets are still two."""
    shown = redacted({"ftp://a:x@h": 1, "ftp://a:y@h": 2})
    assert shown == {f"ftp://a:{MASK}@h": 1, f"ftp://a:{MASK}@h+": 2}


def test_arguments() -> None:
    """Issue 11, point 4: `--password x`, `--token=x`, `-p x`, `TOKEN=x` and logins are hidden, the rest is as typed."""
    given = [
        *("--lr", "0.1", "--password", SECRET, f"--token={SECRET}", "--verbose", f"s3://u:{SECRET}@b", "--api-key"),
        *("--flag", f"api_key={SECRET}", "-p", SECRET, "-p", "8080", "-u", f"me:{SECRET}", f"--env=TOKEN={SECRET}"),
        *("--env", f"HOME={SECRET}", "--env", "CartPole-v1"),
        *("-e", f"TOKEN={SECRET}", f"+data.secrets.x={SECRET}", "--api-keys", SECRET, SECRET, "--tokens", "3", "data/"),
    ]
    assert redacted_arguments(given) == [
        *("--lr", "0.1", "--password", MASK, f"--token={MASK}", "--verbose", f"s3://u:{MASK}@b", "--api-key"),
        *("--flag", f"api_key={MASK}", "-p", MASK, "-p", "8080", "-u", f"me:{MASK}", f"--env=TOKEN={MASK}"),
        *("--env", f"HOME={MASK}", "--env", "CartPole-v1"),
        *("-e", f"TOKEN={MASK}", f"+data.secrets.x={MASK}", "--api-keys", MASK, MASK, "--tokens", "3", "data/"),
    ]


def test_more_can_be_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """DET_REDACT: more names, with `*`, whose numbers are hidden too, and patterns between slashes for any text."""
    monkeypatch.setenv("DET_REDACT", "badge, *salt ,/CORP-[0-9]{4}/, /(/")
    given = {"badge": 7, "user-badge": {"deep": "x"}, "mysalt": "y", "badger": "z", "text": "CORP-1234 (CORP-x)"}
    assert redacted(given) == {
        "badge": MASK, "user-badge": {"deep": MASK}, "mysalt": MASK, "badger": "z", "text": f"{MASK} {MASK}CORP-x)",
    }  # fmt: skip
    assert redacted_text("badge=7 --badge 7") == f"badge={MASK} --badge {MASK}"
    assert "no regular expression" in caplog.text
    monkeypatch.delenv("DET_REDACT")
    assert redacted(given) == given


def test_a_private_key_that_is_printed() -> None:
    """Issue 11, point 4: of a key that comes line by line nothing is kept, and all around it is."""
    blocks = KeyBlocks()
    lines = ["before", "-----BEGIN EC PRIVATE KEY-----", "Proc-Type: 4", "", "aGVsbG8=", "-----END EC PRIVATE KEY-----"]
    assert [blocks.line(line) for line in lines] == ["before", MASK, MASK, MASK, MASK, MASK]
    assert blocks.line("after") == "after"
    assert [blocks.line(line) for line in ("-----BEGIN PRIVATE KEY-----", "YQ==", "never ended")] == [
        MASK, MASK, "never ended",
    ]  # fmt: skip


def test_our_own_lines_have_none(caplog: pytest.LogCaptureFixture) -> None:
    """Issue 11, point 4: whatever one of our loggers is given; a line that cannot be made is left to its handler."""
    logging.getLogger("determined.core").warning("asking %s with %s", f"ftp://me:{SECRET}@h", {"token": SECRET})
    assert caplog.messages == [f"asking ftp://me:{MASK}@h with {{'token': '{MASK}'}}"]


# For any value.

PIECES = [
    *("password", "token", "key", "api_key", "pad_token", "secrets", "auth", "lr", "=", ":", " ", '"', "'", "@", "/"),
    *(
        "://",
        "http",
        "ftp",
        "--",
        "-p ",
        "?",
        "&",
        "sig",
        ";",
        ",",
        "{",
        "}",
        "\n",
        MASK,
        "*",
        "Bearer ",
        "x",
        "1",
        "é",
    ),
    *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "authorization", "AccountKey", *TOKENS[:4], "mkdir"),
]
TEXT = st.one_of(st.text(max_size=20), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
NUMBERS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False))
VALUES = st.recursive(
    st.one_of(NUMBERS, TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.tuples(inner, inner), st.dictionaries(TEXT, inner, max_size=4)
    ),
    max_leaves=12,
)


def outline(value: Any) -> Any:
    """The value with all its leaves equal, and without names."""
    if isinstance(value, dict):
        return [outline(item) for item in value.values()]
    return [type(value), *map(outline, value)] if isinstance(value, (list, tuple)) else "leaf"


@given(VALUES)
def test_twice_is_once(value: Any) -> None:
    """Redacting what is redacted changes nothing, and the structure is as it was."""
    once = redacted(value)
    assert redacted(once) == once
    assert outline(once) == outline(value)


@given(TEXT)
def test_twice_is_once_for_text(text: str) -> None:
    """So it is for text, as users and as we write it."""
    assert by_shape(by_shape(text)) == by_shape(text)
    assert redacted_text(redacted_text(text)) == redacted_text(text)


@given(st.dictionaries(TEXT.filter(lambda name: name not in ("secrets", "environment_variables")), NUMBERS, max_size=5))
def test_numbers_stay(values: dict[str, Any]) -> None:
    """A number is never a secret, whatever its name."""
    assert list(redacted(values).values()) == list(values.values())


@given(
    st.lists(st.sampled_from(["a", "net", "data", "x-y", "service"]), max_size=3),
    st.sampled_from(["password", "api_key", "secretKey", "access-token", "secrets", "bearer", "hf_token"]),
    st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=12, max_size=30),
)
def test_a_secret_is_found_at_any_depth(path: list[str], name: str, secret: str) -> None:
    """Whatever it is made of, and however deep it is."""
    value: Any = [{name: secret}, {name: [secret]}, {name: {"a": secret}}]
    for part in path:
        value = {part: value}
    assert secret not in str(redacted(value)) or secret in "[{'password': }]" + MASK * 4


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="@"), min_size=1))
def test_a_password_in_a_url_is_found(password: str) -> None:
    """Whatever the password is made of, so long as the URL ends where it seems to."""
    if not password[0].isdigit():
        assert by_shape(f"see ftp://me:{password}@host/x now") == f"see ftp://me:{MASK}@host/x now"
