"""A local S3 (moto's server on loopback) for tests, and what a test may do to what lies in it."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import pytest
from botocore.config import Config
from moto.server import ThreadedMotoServer

KEYS = {
    "AWS_ACCESS_KEY_ID": "for-tests",
    "AWS_SECRET_ACCESS_KEY": "for-tests",
    "AWS_DEFAULT_REGION": "us-east-1",
}


class Bucket:
    """A fresh bucket; `environment` is what a process needs to reach it."""

    def __init__(self, endpoint: str) -> None:
        self.environment = KEYS | {"AWS_ENDPOINT_URL": endpoint}
        self.name = f"concord-{secrets.token_hex(4)}"
        self.url = f"s3://{self.name}/artifacts"
        self.client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id="for-tests",
            aws_secret_access_key="for-tests",
            region_name="us-east-1",
            config=Config(retries={"max_attempts": 2}),
        )
        self.client.create_bucket(Bucket=self.name)

    def names(self) -> list[str]:
        """Below the store's root."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", ())]
        return sorted(key.removeprefix("artifacts/") for key in keys)

    def read(self, name: str) -> bytes:
        return self.client.get_object(Bucket=self.name, Key=f"artifacts/{name}")["Body"].read()

    def write(self, name: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=f"artifacts/{name}", Body=data)

    def delete(self, name: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=f"artifacts/{name}")


@contextmanager
def s3_server() -> Iterator[str]:
    """Its address."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = Bucket(s3)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made
