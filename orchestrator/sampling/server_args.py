"""The engine arguments of `engine: server`: names of the openai library where it has one."""

import re
from typing import Any
from urllib.parse import urlsplit

SERVER_ARGUMENTS = {
    "base_url": "str",
    "model": "str",
    "api": "str",
    "api_key_env": "str",
    "max_concurrency": "int",
    "timeout": "float",
    "max_retries": "int",
}
SERVER_LIMITS: dict[str, tuple[float, float]] = {
    "max_concurrency": (1, 1_000),
    "timeout": (1, 86_400),
    "max_retries": (0, 1_000),
}
_KEY_REMEDY = "write api_key_env: NAME, an environment variable; secrets are never stored"
_MOVE = "set it beside engine"
SERVER_RESERVED = {
    **dict.fromkeys(("api_key", "key", "token", "authorization", "headers"), _KEY_REMEDY),
    **dict.fromkeys(("temperature", "top_p", "top_k", "seed", "stop"), _MOVE),
    "max_tokens": "set max_completion_length beside engine",
    "n": "every sample is a request of its own",
    "chat_template_kwargs": "set it on the model",
}
# Not `model`, the name of other weights, nor `api`, which decides who renders the prompt.
SERVER_HARMLESS = {
    "base_url": "says where the same model is served",
    "api_key_env": "says who pays",
    "max_concurrency": "groups the same requests",
    "timeout": "affects waiting only",
    "max_retries": "affects waiting only",
}
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,79}")


def check_server_arg(name: str, value: Any) -> str | None:
    """What is wrong with a value of the right type; never shows one that may be a secret."""
    if value is None:
        return f"{name} is null: write a value, or leave it out"
    if name == "api" and value not in ("completions", "chat"):
        return f"api is {value!r:.40}: write completions or chat"
    if name == "model" and not value:
        return "model is empty: write the name under which the server serves it"
    if name == "api_key_env" and not _VARIABLE.fullmatch(value):
        return (
            "api_key_env is not the name of an environment variable (capitals, digits, _): write "
            "the name, such as SERVER_KEY, and never the key itself"
        )
    return _check_url(value) if name == "base_url" else None


def _check_url(value: str) -> str | None:
    try:
        url = urlsplit(value)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        valid = False
    if not valid or not value.isascii() or not value.isprintable() or " " in value:
        return "base_url is not an address: write http://HOST:PORT/v1"
    if "@" in url.netloc or url.query or url.fragment:
        return "base_url holds more than an address: write http://HOST:PORT/v1, and a key as " + (
            "api_key_env: NAME"
        )
    return None
