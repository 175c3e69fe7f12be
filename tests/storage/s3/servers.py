"""Real S3 servers as child processes on free ports of this machine, each started at most once a test process."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from relay.torch.launch import reserved_port

KEY, SECRET = "test", "test-secret-of-nobody"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
"""What clients of these servers need, and nothing of the person who runs the tests."""
UNWANTED = (
    *("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"),
    *("AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE"),
)
BUCKET = "relay-tests"
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Server:
    """A running server with one empty bucket."""

    name: str
    endpoint_url: str
    process: subprocess.Popen[bytes]

    def address(self, prefix: str, endpoint_url: str | None = None) -> str:
        """Of a store in the bucket; through another endpoint if one is given."""
        return f"s3://{BUCKET}/{prefix}?endpoint_url={quote(endpoint_url or self.endpoint_url, safe=':/')}"

    def sdk(self, endpoint_url: str | None = None) -> Any:
        """The SDK's own client, to look at what the store left."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=endpoint_url or self.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            config=Config(s3={"addressing_style": "path"}, request_checksum_calculation="when_required"),
        )


_ports = ExitStack()
atexit.register(_ports.close)


def own_port() -> int:
    """A port at which nothing answers until a server of this process opens it."""
    return _ports.enter_context(reserved_port())


def ministack(port: int, _: Path) -> tuple[list[str], dict[str, str]]:
    return [_program("ministack")], {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port)}


def seaweedfs(port: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Every port is chosen; it reports home unless told not to."""
    access = {"credentials": [{"accessKey": KEY, "secretKey": SECRET}], "name": "tests"}
    rights = ["Admin", "Read", "List", "Tagging", "Write"]
    (folder / "s3.json").write_text(json.dumps({"identities": [{**access, "actions": rights}]}))
    ports = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
    more = ("admin.port", "admin.port.grpc", "s3.port.grpc")
    command = [_program("weed"), "-logtostderr=true", "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    off = ["-master.telemetry=false", "-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    chosen = [f"-{name}={own_port()}" for name in (*ports, *more)]
    return [*command, *off, *chosen, f"-s3.port={port}", f"-s3.config={folder / 's3.json'}"], {}


def rclone(port: int, folder: Path) -> tuple[list[str], dict[str, str]]:
    """It ignores conditions."""
    command = [_program("rclone"), "serve", "s3", "--config", os.devnull, "--addr", f"127.0.0.1:{port}"]
    return [*command, "--auth-key", f"{KEY},{SECRET}", str(folder)], {}


def moto(port: int, _: Path) -> tuple[list[str], dict[str, str]]:
    """It accepts wrong checksums."""
    return [_program("moto_server"), "-H", "127.0.0.1", "-p", str(port)], {}


_COMMANDS: dict[str, Callable[[int, Path], tuple[list[str], dict[str, str]]]] = {
    "ministack": ministack,
    "seaweedfs": seaweedfs,
    "rclone": rclone,
    "moto": moto,
}


@functools.cache
def server(name: str) -> Server:
    """The running server of this name, with its bucket."""
    folder, port = Path(tempfile.mkdtemp(prefix=f"s3-{name}-")), own_port()
    command, environ = _COMMANDS[name](port, folder)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env={**_own_environment(), **environ}, stdout=log, stderr=subprocess.STDOUT
        )
    atexit.register(_stop, process, folder)
    running = Server(name, f"http://127.0.0.1:{port}", process)
    _wait_until_it_answers(running, folder / "log")
    running.sdk().create_bucket(Bucket=BUCKET)
    return running


def _wait_until_it_answers(running: Server, log: Path) -> None:
    patience = time.monotonic() + _PATIENCE_S
    while time.monotonic() < patience and running.process.poll() is None:
        try:
            with urllib.request.urlopen(running.endpoint_url, timeout=5):
                return
        except urllib.error.HTTPError as answered:
            answered.close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"{running.name} does not answer: {log.read_text(errors='replace')[-2000:]}")


def _stop(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)
    process.kill()
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _own_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RELAY_"))}


def _program(name: str) -> str:
    """Beside this interpreter, where a package's programs are, else on the path."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name) or name
