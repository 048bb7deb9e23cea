"""No secret survives in an address or a message, however it is written."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cluster.redaction import redact
from orchestrator.storage.errors import StoreError
from orchestrator.storage.store import Store
from orchestrator.tracking.views import flatten

SECRET = st.text(st.characters(codec="ascii", exclude_categories=("Cc", "Zs")), min_size=2).map(
    lambda text: f"s3same{text}s3same"
)
NAMES = st.sampled_from(
    ["password", "passwd", "token", "secret", "api_key", "apikey", "access_key", "secret_key"]
    + ["sig", "signature", "hf_token", "access_token", "sslpassword", "X-Amz-Signature"]
    + ["X-Amz-Security-Token", "X-Amz-Credential", "AWS_SECRET_ACCESS_KEY", "AWSAccessKeyId"]
    + ["MLFLOW_TRACKING_PASSWORD", "Password", "TOKEN"]
)
ADDRESSES = st.sampled_from(["postgresql://me:{}@host/db", "https://:{}@h", "me:{}@h:1/db"])
TEXTS = st.sampled_from(["{}", "cannot reach {}: refused", "'{}'", "uri={} (retry)", "[{}, 1]"])


@given(SECRET, ADDRESSES, TEXTS)
@example("s3same/with/slashes", "postgresql://me:{}@host/db", "{}")
@example("s3same@at", "postgresql://me:{}@host/db", "{}")
@example("s3same/with/slashes", "me:{}@h:1/db", "'{}'")
def test_passwords_of_addresses_are_masked(secret: str, address: str, text: str) -> None:
    assert "s3same" not in redact(text.format(address.format(secret)))


@given(NAMES, SECRET, st.sampled_from(["http://h/x?{}={}", "h/x?a=1&{}={}&b=2", "{}={}"]), TEXTS)
def test_secrets_of_query_strings_are_masked(
    name: str, secret: str, address: str, text: str
) -> None:
    value = secret.replace("&", "")  # a raw & ends a value
    redacted = redact(text.format(address.format(name, value)))
    assert "s3same" not in redacted
    assert name in redacted


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:5000/#/experiments/1/runs?viewStateShareKey=by-policy",
        "http://host/a@b and https://host",
        "sqlite:////home/me/runs/mlflow.db",
        "s3://bucket/runs?endpoint_override=minio.local:9000&scheme=https",
        "Qwen/Qwen3-4B@0123456789abcdef",
        "task 'package.module:Class' cannot be imported",
        "max_new_tokens=96, pad_token=</s>, tokens=3",
        "choose this or that: c@d.org",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert redact(text) == text


def test_the_address_stays_readable() -> None:
    assert redact("postgresql://me:p@ss@host/db?sslmode=require&password=x&a=1") == (
        "postgresql://***@host/db?sslmode=require&password=***&a=1"
    )
    assert redact("Authorization: Bearer abcdefgh.ijkl") == "Authorization: Bearer ***"


def test_settings_hide_secrets_in_values() -> None:
    assert flatten({"uri": "http://me:s3same@h", "hub_token": "x"}) == {
        "uri": "http://***@h",
        "hub_token": "***",
    }


@pytest.mark.parametrize("uri", ["s3://bucket/runs?secret_key=s3same", "nfs://me:s3same@host/x"])
def test_a_storage_address_with_a_secret_is_refused_without_printing_it(uri: str) -> None:
    with pytest.raises(StoreError) as caught:
        Store(uri)
    assert "s3same" not in str(caught.value)
