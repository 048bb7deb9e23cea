"""An S3-compatible server on loopback, and buckets in it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pyarrow.fs as pafs
from moto.server import ThreadedMotoServer

# Keys of nothing: the server takes any.
KEYS = {
    "AWS_ACCESS_KEY_ID": "for-tests",
    "AWS_SECRET_ACCESS_KEY": "for-tests",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def s3_server() -> Iterator[str]:
    """A server as `127.0.0.1:PORT`, with its keys in the environment."""
    before = {name: os.environ.get(name) for name in KEYS}
    os.environ.update(KEYS)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"{host}:{port}"
    finally:
        server.stop()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def bucket(server: str, name: str) -> str:
    """A new bucket; the address of a storage in it."""
    filesystem = pafs.S3FileSystem(
        endpoint_override=server, scheme="http", region="us-east-1", allow_bucket_creation=True
    )
    filesystem.create_dir(name)
    return f"s3://{name}/runs?endpoint_override={quote(server)}&scheme=http&region=us-east-1"
