"""Masks the secrets in addresses and messages before they are printed, logged or stored."""

import re

_NAMES = (
    r"[\w.-]*(?:password|passwd|passphrase|pwd|secret|credentials?|signature|"
    r"api[_-]?key|access[_-]?key|secret[_-]?key|account[_-]?key|AccessKeyId)[\w.-]*"
    r"|(?:[\w.-]*[_.-])?(?:(?:hub|hf|access|auth|api|refresh|id|session|security)[_-]?)token"
    r"|token|sig"
)
_SECRET = re.compile(_NAMES, re.I)
_PATTERNS = (
    # name=value in a query string, a connection string or an environment.
    (re.compile(rf"(?<![\w.-])({_NAMES})=[^\s&]*", re.I), r"\1=***"),
    # scheme://user:password@host. The password may contain any character but white space, so the
    # last @ counts; `http://host/a@b` has neither user nor password.
    (re.compile(r"(?<=://)(?:[^\s:]*:\S*|[^\s/@]*@\S*|[^\s/@]+)@"), "***@"),
    # user:password@host, without a scheme.
    (re.compile(r"(?<![^\s'\"(=,])[^\s:/@'\"(=,]+:(?!//)\S+@"), "***@"),
    (re.compile(r"\b(Bearer|Basic) [\w+/=.~-]{8,}", re.I), r"\1 ***"),
)


def redact(text: str) -> str:
    """The text with passwords, tokens and keys replaced by `***`.

    It masks too much rather than too little. Percent-encoded secrets are also masked.
    """
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def names_secret(name: str) -> bool:
    """Whether the value of a setting with this name, dotted or not, is a secret."""
    return bool(_SECRET.fullmatch(name) or _SECRET.fullmatch(name.rpartition(".")[2]))
