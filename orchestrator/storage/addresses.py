"""The addresses of storages: local folders, and remote ones by their scheme."""

import re

SCHEMES = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")  # those of pyarrow
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):[/\\]")


def scheme_of(address: str) -> str:
    """The scheme of an address in lower case; "" for a path. `s3:/x` and `C:/x` also have one."""
    match = _SCHEME.match(address)
    return match[1].lower() if match else ""


def why_no_storage(address: str) -> str:
    """The problem with the form of an address, and what to write instead; "" if there is none."""
    scheme = scheme_of(address)
    usual = "write a folder, s3://… or gs://…"
    if not scheme or (scheme in SCHEMES and address.lower().startswith(f"{scheme}://")):
        return ""
    if len(scheme) == 1:
        return f"a Windows path, but this is not Windows: {usual}"
    if scheme == "file":
        return f"write the path alone, or file://{address.partition(':')[2]}"
    if scheme in SCHEMES:
        rest = address.partition(":")[2].lstrip("/\\")
        return (
            f"two slashes follow a scheme, and Python's Path removes one: write {scheme}://{rest} "
            "as text"
        )
    return f"the scheme {scheme} is not supported ({', '.join(SCHEMES)} are): {usual}"
