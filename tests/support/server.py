"""A real gateway in its own process, as a user starts it: `tollhouse serve` over a config and a state folder."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

START_S = 90.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Gateway:
    """`with Gateway(...) as gateway:` serves until the block ends. `env` adds to the environment."""

    config: Path
    home: Path
    env: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def over(cls, config_text: str, folder: Path, **env: str) -> Self:
        """Its config and its state lie in this folder."""
        config = folder / "config.toml"
        config.write_text(config_text)
        return cls(config, folder / "home", env)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def log(self) -> str:
        return (self.home / "gateway.log").read_text(errors="replace")

    def environment(self) -> dict[str, str]:
        return os.environ | {"TOLLHOUSE_HOME": str(self.home)} | self.env

    def tollhouse(self, *arguments: str, check: bool = True) -> str:
        """One command of the CLI against this gateway's state; returns what it printed."""
        command = [sys.executable, "-m", "gateway.cli", *arguments]
        environment = self.environment() | {"TOLLHOUSE_CONFIG": str(self.config), "COLUMNS": "200"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        if check:
            assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout + done.stderr

    def key(self, tenant: str, *, create: bool = True) -> str:
        if create:
            self.tollhouse("tenants", "add", tenant)
        printed = self.tollhouse("keys", "create", "--tenant", tenant)
        return next(word for word in printed.split() if word.startswith("sk-th-"))

    def start(self) -> None:
        command = [sys.executable, "-m", "gateway.cli", "serve", "--config", str(self.config), "--port", str(self.port)]
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "gateway.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=self.environment(), stdout=log, stderr=log)
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_S
        assert self.process is not None
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"the gateway stopped at once:\n{self.log}")
            try:
                with urllib.request.urlopen(f"{self.url}/health/ready", timeout=1):
                    return
            except OSError:
                time.sleep(0.05)
        self.stop()
        raise AssertionError(f"the gateway was not ready after {START_S} s:\n{self.log}")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def kill(self) -> None:
        """As a power cut would: no chance to clean up. Takes the server's worker processes along."""
        import psutil

        assert self.process is not None
        family = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
        for member in family:
            member.kill()
        self.process.wait()

    def __enter__(self) -> "Gateway":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def put(self, path: str, body: Any, key: str) -> tuple[int, dict[str, str], bytes]:
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        raw = json.dumps(body).encode()
        return _fetch(urllib.request.Request(f"{self.url}{path}", data=raw, headers=headers, method="PUT"))

    def post(self, path: str, body: Any, key: str | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """One plain request by the standard library: status, lower-case headers, body."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        if key:
            names["authorization"] = f"Bearer {key}"
        names["content-type"] = "application/json"
        return _fetch(urllib.request.Request(f"{self.url}{path}", data=raw, headers=names))

    def get(self, path: str, key: str | None = None) -> tuple[int, dict[str, str], bytes]:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return _fetch(urllib.request.Request(f"{self.url}{path}", headers=headers))


@contextlib.contextmanager
def two_gateways(config_text: str, folder: Path, **env: str) -> Iterator[tuple[Gateway, Gateway]]:
    """Two replicas of one config, each with a state of its own."""
    config = folder / "config.toml"
    config.write_text(config_text)
    with Gateway(config, folder / "a", env) as first, Gateway(config, folder / "b", env) as second:
        yield first, second


def _fetch(request: urllib.request.Request) -> tuple[int, dict[str, str], bytes]:
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, {k.lower(): v for k, v in response.headers.items()}, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, {k.lower(): v for k, v in error.headers.items()}, error.read()
