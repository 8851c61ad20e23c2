"""The commands against a real state folder: what they print, what they leave, and how they fail."""

import asyncio
import json
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.output import console, decimals_for, money
from gateway.cli.reference import reference
from gateway.cli.root import cli
from gateway.config import load
from gateway.ids import new_id
from gateway.ledger.price import Price
from gateway.ledger.prices import PriceBook
from gateway.ledger.records import RequestRecord
from gateway.store.database import Database
from gateway.store.entries import insert_entries
from gateway.store.url import sqlite_url
from gateway.tenants.auth import Authenticator
from gateway.tenants.registry import get_tenant
from gateway.tenants.types import Limits, Tenant

ROOT = Path(__file__).parents[2]
CONFIG = """
[embedding]
model = "{embedder}"

[[provider]]
name = "up"
base_url = "http://127.0.0.1:9/v1"

[[model]]
name = "m"
provider = "up"

[tier.only]
models = ["m"]
tasks = ["code", "chat"]
"""


class Tollhouse:
    """`tollhouse` with a config and a state folder of its own."""

    def __init__(self, folder: Path, embedder: Path) -> None:
        self.home, self.config, self.columns = folder / "state", folder / "config.toml", 200
        self.config.write_text(CONFIG.format(embedder=embedder))

    def __call__(self, *arguments: str) -> Result:
        environment = {
            "TOLLHOUSE_HOME": str(self.home),
            "TOLLHOUSE_CONFIG": str(self.config),
            "COLUMNS": str(self.columns),
        }
        console.cache_clear()  # it remembers its width
        return CliRunner().invoke(cli, list(arguments), env=environment, prog_name="tollhouse")

    def fails(self, *arguments: str, code: int = 1) -> str:
        result = self(*arguments)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result.stderr

    def does(self, *arguments: str) -> str:
        result = self(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture
def tollhouse(tmp_path: Path, minilm_path: Path) -> Tollhouse:
    return Tollhouse(tmp_path, minilm_path)


def test_a_key_is_shown_once_and_opens_the_gate(tollhouse: Tollhouse) -> None:
    tollhouse.does("tenants", "add", "acme", "--requests-per-minute", "60")
    secret = tollhouse.does("keys", "create", "--tenant", "acme", "--name", "laptop").strip()
    assert secret.startswith("sk-th-")

    async def authenticate() -> tuple[str, int | None]:
        database = Database(sqlite_url(tollhouse.home))
        await database.open()
        authenticator = Authenticator(database)
        await authenticator.start()
        principal = authenticator.authenticate(f"Bearer {secret}")
        await authenticator.aclose()
        await database.aclose()
        return principal.tenant.name, principal.tenant.limits.requests_per_minute

    assert asyncio.run(authenticate()) == ("acme", 60)
    listed = tollhouse.does("keys", "list")
    assert "laptop" in listed
    assert secret not in listed
    assert secret.encode() not in (tollhouse.home / "tollhouse.db").read_bytes()


def test_a_key_is_revoked_by_what_the_list_shows(tollhouse: Tollhouse) -> None:
    tollhouse.does("tenants", "add", "acme")
    secret = tollhouse.does("keys", "create", "--tenant", "acme").strip()
    tollhouse.does("keys", "revoke", f"{secret[:10]}…")
    assert "revoked" in tollhouse.does("keys", "list", "--tenant", "acme")


def test_tenants_are_listed_with_their_state(tollhouse: Tollhouse) -> None:
    assert "no tenants yet" in tollhouse.does("tenants", "list")
    tollhouse.does("tenants", "add", "acme")
    tollhouse.does("tenants", "disable", "acme")
    assert "disabled" in tollhouse.does("tenants", "list")
    tollhouse.does("tenants", "enable", "acme")
    assert "active" in tollhouse.does("tenants", "list")


def test_a_tenant_is_changed_where_it_is_told_and_nowhere_else(tollhouse: Tollhouse) -> None:
    tollhouse.does("tenants", "add", "acme", "--requests-per-minute", "60", "--tokens-per-minute", "9000")
    tollhouse.does("tenants", "set", "acme", "--requests-per-minute", "unlimited", "--concurrent-requests", "4")
    said = tollhouse.does("tenants", "set", "acme", "--baseline-model", "m", "--default-max-tokens", "77")
    assert "baseline_model, default_max_tokens" in said

    async def tenant() -> Tenant:
        database = Database(sqlite_url(tollhouse.home))
        await database.open()
        found = await get_tenant(database, "acme")
        await database.aclose()
        return found

    changed = asyncio.run(tenant())
    assert changed.limits == Limits(requests_per_minute=0, tokens_per_minute=9000, concurrent_requests=4)
    assert (changed.baseline_model, changed.default_max_tokens, changed.capture) == ("m", 77, "signals")
    assert "unlimited" in tollhouse.does("tenants", "list")
    tollhouse.does("tenants", "set", "acme", "--tokens-per-minute", "none", "--baseline-model", "none")
    tollhouse.does("tenants", "set", "acme", "--default-max-tokens", "none", "--capture", "off")
    changed = asyncio.run(tenant())
    assert changed.limits == Limits(requests_per_minute=0, concurrent_requests=4)
    assert (changed.baseline_model, changed.default_max_tokens, changed.capture) == (None, None, "off")


def test_words_of_limits_are_names_elsewhere(tollhouse: Tollhouse) -> None:
    tollhouse("tenants", "add", "acme", "--tokens-per-minute", "unlimited")
    assert "unlimited" in tollhouse("tenants", "list").output
    tollhouse("keys", "create", "--tenant", "acme", "--name", "ci")
    assert tollhouse("keys", "set", "ci", "--models", "unlimited", "--name", "none").exit_code == 0
    shown = tollhouse("keys", "show", "none").output
    assert "models                unlimited" in shown
    assert tollhouse("keys", "set", "none", "--models", "none").exit_code == 0
    assert "models                all" in tollhouse("keys", "show", "none").output
    assert tollhouse("tenants", "set", "acme", "--name", "unlimited", "--tokens-per-minute", "none").exit_code == 0
    assert "unlimited" in tollhouse("tenants", "list").output


@pytest.mark.parametrize("amount", ["nan", "inf", "-1", "1e999999", "1e-999999", "0.0000000001", "a", ""])
def test_what_is_no_amount_is_said_to_be_none(tollhouse: Tollhouse, amount: str) -> None:
    tollhouse("tenants", "add", "acme")
    said = tollhouse.fails("budgets", "set", "--per", "day", "--", "acme", amount, code=2)
    assert "is not an amount in dollars" in said


def test_an_operators_price_rules_over_the_configs(tollhouse: Tollhouse) -> None:
    assert "no prices yet" in tollhouse.does("prices", "list")
    assert "$0.15 in, $0.60 out, $0.075 cached per million" in tollhouse.does(
        "prices", "set", "m", "--input", "0.15", "--output", "0.6", "--cached-input", "0.075"
    )

    async def price() -> Price:
        database = Database(sqlite_url(tollhouse.home))
        await database.open()
        book = PriceBook(database)
        await book.start(load(tollhouse.config).model)  # as the gateway does at its start
        found = book.price("m")
        await book.aclose()
        await database.aclose()
        return found

    assert asyncio.run(price()) == Price(input=150_000_000, output=600_000_000, cached_input=75_000_000)
    (line,) = (line for line in tollhouse.does("prices", "list").splitlines() if line.startswith("m "))
    assert line.split()[1:4] == ["$0.15", "$0.60", "$0.075"]
    assert "operator" in line
    assert "in force" in line
    assert "past" in tollhouse.does("prices", "list", "--history")  # the config's


def test_a_price_may_begin_later_or_come_too_late(tollhouse: Tollhouse) -> None:
    amounts = ("--input", "1", "--output", "2")
    tollhouse.does("prices", "set", "m", *amounts, "--valid-from", "2999-01-01T01:00+01:00")
    assert "2999-01-01 00:00" in tollhouse.does("prices", "list")
    assert "to come" in tollhouse.does("prices", "list")
    result = tollhouse("prices", "set", "m", *amounts, "--valid-from", "2001-01-01")
    assert result.exit_code == 0
    assert "a later price rules since" in result.stderr
    assert "already" in tollhouse.fails("prices", "set", "m", *amounts, "--valid-from", "2001-01-01")


IMPORTED = """
[[provider]]
name = "openai"
base_url = "https://api.openai.com/v1"
[[model]]
name = "gpt-4o-mini"
provider = "openai"
input_usd_per_mtok = 9.0
[[model]]
name = "gpt-4.1*"
provider = "openai"
"""


def test_prices_are_imported_once_they_were_looked_at(tollhouse: Tollhouse) -> None:
    tollhouse.config.write_text(tollhouse.config.read_text().replace("[[model]]", IMPORTED + "[[model]]", 1))
    tollhouse.does("prices", "set", "gpt-4o-mini", "--input", "9", "--output", "9")
    shown = tollhouse.does("prices", "import")
    assert "$9.00 -> $0.15" in shown
    assert "unknown to genai-prices, left as they are: m" in shown
    assert "1 prices would change: --apply takes them over" in shown
    assert "import" not in tollhouse.does("prices", "list", "--history")  # nothing has happened
    assert "1 prices taken over" in tollhouse.does("prices", "import", "--apply")
    lines = tollhouse.does("prices", "list", "--history").splitlines()
    past, now = [line.split() for line in lines if line.startswith("gpt-4o-mini")][-2:]
    assert (past[1], past[-1], now[1:4]) == ("$9.00", "past", ["$0.15", "$0.60", "$0.075"])
    assert "nothing to change" in tollhouse.does("prices", "import", "--apply")
    assert "$2.00" in tollhouse.does("prices", "import", "gpt-4.1")
    assert "no model named 'gpt-5'" in tollhouse.fails("prices", "import", "gpt-5")


def test_a_mere_proxy_pulls_no_embedder(tollhouse: Tollhouse) -> None:
    proxy = CONFIG.partition("[tier.only]")[0].format(embedder="pypi:there-is-no-such-wheel==1.0")
    tollhouse.config.write_text(f"[cache]\nsemantic = false\n{proxy}")
    assert tollhouse.does("models", "pull") == ""
    assert "embedding" not in tollhouse.does("models", "list")
    one, other = ('[tier.t]\nmodels = ["m"]', '[tier.u]\nmodels = ["m"]')
    model = '[[model]]\nname = "e"\nengine = "embedder"\nkind = "embedding"'
    for needs, embeds in ((model, True), (one, False), (f"{one}\n{other}", True)):
        tollhouse.config.write_text(f"[cache]\nsemantic = false\n{proxy}\n{needs}\n")
        assert ("embedding" in tollhouse.does("models", "list")) == embeds
    tollhouse.config.write_text(proxy)
    assert "embedding" in tollhouse.does("models", "list")


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (("keys", "create", "--tenant", "nobody"), "no tenant named 'nobody'", 1),
        (("keys", "revoke", "sk-th-zzzz"), "no such key", 1),
        (("tenants", "disable", "nobody"), "no tenant named 'nobody'", 1),
        (("tenants", "add", "two words"), "letters, digits", 1),
        (("tenants", "add", "x", "--baseline-model", "nothing"), "no model named 'nothing'", 2),
        (("tenants", "add", "x", "--requests-per-minute", "0"), "'0' is neither a number from 1 on", 2),
        (("costs", "--tenant", "nobody"), "no tenant named 'nobody'", 1),
        (("tenants", "set", "nobody", "--requests-per-minute", "1"), "no tenant named 'nobody'", 1),
        (("tenants", "set", "x"), "nothing to change", 2),
        (("tenants", "set", "x", "--tokens-per-minute", "-1"), "neither a number from 1 on nor unlimited nor none", 2),
        (("tenants", "set", "x", "--baseline-model", "nothing"), "no model named 'nothing'", 2),
        (("prices", "set", "nothing", "--input", "1", "--output", "2"), "no model named 'nothing'", 2),
        (("prices", "set", "m", "--input", "nan", "--output", "2"), "not from 0 to 1,000,000", 2),
        (("prices", "set", "m", "--input", "-1", "--output", "2"), "not from 0 to 1,000,000", 2),
        (("prices", "set", "m", "--input", "1", "--output", "free"), "not an amount in dollars", 2),
        (("prices", "set", "m", "--input", "1", "--output", "2", "--valid-from", "soon"), "not a time such as", 2),
        (("costs", "--since", "yesterday"), "neither a day", 2),
        (("costs", "--since", "99999999999d"), "before the first day", 2),
        (("costs", "--since", "9999999d"), "before the first day", 2),
        (("models", "pull", "pypi:name"), "exact version", 1),
        (("models", "pull", "./missing.gguf"), "no such file", 1),
        (("serve", "--config", "/missing/config.toml"), "No such file", 1),
    ],
)
def test_what_goes_wrong_is_one_line_and_an_exit_code(
    tollhouse: Tollhouse, arguments: tuple[str, ...], says: str, code: int
) -> None:
    assert says in tollhouse.fails(*arguments, code=code)


def test_a_second_tenant_of_a_name_is_refused(tollhouse: Tollhouse) -> None:
    tollhouse.does("tenants", "add", "acme")
    assert "acme" in tollhouse.fails("tenants", "add", "acme")


def test_init_makes_a_demo_key_that_only_its_owner_reads_and_makes_it_once(tollhouse: Tollhouse) -> None:
    said = tollhouse.does("init")
    path = tollhouse.home / "demo-key"
    assert path.read_text().strip() in said
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = path.read_text()
    assert tollhouse.does("init") == ""
    assert path.read_text() == key
    assert "demo" in tollhouse.does("tenants", "list")


def test_config_check_names_every_fault(tollhouse: Tollhouse) -> None:
    assert "fine" in tollhouse.does("config", "check")
    broken = tollhouse.config.with_name("broken.toml")
    broken.write_text("[cache]\nsimilarity_treshold = 0.9\n[serverr]\nport = 1\n")
    said = tollhouse.fails("config", "check", str(broken))
    assert "2 faults" in said
    assert "cache.similarity_treshold: unknown key; did you mean 'similarity_threshold'?" in said
    assert "serverr: unknown key; did you mean 'server'?" in said


def test_config_check_knows_the_routers_tasks(tollhouse: Tollhouse) -> None:
    tollhouse.config.write_text(tollhouse.config.read_text().replace('"code"', '"cod"'))
    assert "cod" in tollhouse.fails("config", "check")


def test_config_check_says_which_providers_have_no_key(tollhouse: Tollhouse) -> None:
    text = tollhouse.config.read_text().replace('name = "up"', 'name = "up"\napi_key_env = "NO_SUCH_VARIABLE_HERE"')
    tollhouse.config.write_text(text)
    assert "NO_SUCH_VARIABLE_HERE is not set" in tollhouse.does("config", "check")


def with_engine(tollhouse: Tollhouse, model: object, options: str = "") -> None:
    tollhouse.config.write_text(f'{CONFIG}[[engine]]\nname = "local"\nmodel = "{model}"\n{options}')


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("max_model_len = 1", "max_model_len: Expected `int` >= 2"),
        ("max_wait_ms = inf", "max_wait_ms: Expected `float` <= 1000000000.0"),
    ],
)
def test_config_check_refuses_an_engine_that_would_not_start(
    tollhouse: Tollhouse, smollm2_path: Path, options: str, why: str
) -> None:
    with_engine(tollhouse, smollm2_path, options)
    assert f"engine[0].{why}" in tollhouse.fails("config", "check")


def test_config_check_refuses_a_model_that_can_not_be_read(tollhouse: Tollhouse) -> None:
    model = tollhouse.config.with_name("model.gguf")
    model.write_bytes(b"GGUF")
    with_engine(tollhouse, model)
    assert "engine[0] (local): " in tollhouse.fails("config", "check")


def test_config_check_says_what_an_engine_will_make_less_of(tollhouse: Tollhouse, smollm2_path: Path) -> None:
    with_engine(tollhouse, smollm2_path, "max_model_len = 100000\nkv_cache_mb = 64")
    said = tollhouse.does("config", "check")
    assert "note: engine[0] (local): max_model_len = 100000 is cut to the model's own context, 8192 tokens" in said
    assert "note: engine[0] (local): kv_cache_mb = 64 holds" in said
    with_engine(tollhouse, smollm2_path, "max_model_len = 1000\nkv_cache_mb = 64")
    assert "note" not in tollhouse.does("config", "check")
    with_engine(tollhouse, "pypi:no-such-model==1.0")
    assert "pypi:no-such-model==1.0 is not here yet" in tollhouse.does("config", "check")


def test_the_shipped_config_is_fine() -> None:
    result = CliRunner().invoke(cli, ["config", "check", str(ROOT / "config.toml")])
    assert result.exit_code == 0, result.output


def fill_books(tollhouse: Tollhouse) -> None:
    async def fill() -> None:
        database = Database(sqlite_url(tollhouse.home))
        await database.open()
        tenant = await get_tenant(database, "acme")
        day = datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()
        fields = {"tenant_id": tenant.id, "key_id": "k", "endpoint": "chat.completions", "requested_model": "auto"}
        miss = {"cost_nanousd": 1_160, "saved_by_routing_nanousd": 448_840, "cache": "miss"}
        hit = {"saved_by_cache_nanousd": 1_160, "saved_by_routing_nanousd": 448_840, "cache": "hit-exact"}
        rows = [{"tier": "small", **miss}, {"tier": "small", **hit}, {"tier": "large", "cost_nanousd": 20_000_000}]
        records = [RequestRecord(id=new_id(), started_at=day, model="m", **fields, **row) for row in rows]
        await insert_entries(database, records)
        await database.aclose()

    asyncio.run(fill())


def test_costs_shows_each_line_and_a_total(tollhouse: Tollhouse) -> None:
    tollhouse.does("tenants", "add", "acme")
    assert "nothing in the books yet" in tollhouse.does("costs")
    fill_books(tollhouse)
    lines = {line.split()[1]: line for line in tollhouse.does("costs", "--by", "tier").splitlines() if "acme" in line}
    assert "50%" in lines["small"]
    assert "$0.0000012" in lines["small"]
    assert "$0.0200000" in lines["large"]
    total = next(line for line in tollhouse.does("costs", "--by", "tier").splitlines() if line.startswith("total"))
    assert "$0.0200012" in total
    assert "$0.0008977" in total
    assert "nothing in the books since" in tollhouse.does("costs", "--since", "2026-11-30")


def test_a_narrow_screen_loses_no_name_and_no_digit(tollhouse: Tollhouse) -> None:
    tollhouse.does("tenants", "add", "acme")
    fill_books(tollhouse)
    tollhouse.does(
        "prices", "set", "m", "--input", "0.123456789", "--output", "123456.123456789", "--cached-input", "9"
    )
    tollhouse.columns = 80
    for command in (("costs", "--by", "tier"), ("prices", "list")):
        shown = tollhouse.does(*command)
        assert "…" not in shown
        assert max(map(len, shown.splitlines())) <= 80
    costs = tollhouse.does("costs", "--by", "tier")
    assert "acme  small" in costs
    assert "cost: $0.0000012" in costs
    assert "$123,456.123456789" in tollhouse.does("prices", "list")
    assert tollhouse.does("tenants", "list").count("acme") == 1  # what fits stays a table
    assert "requests/min" in tollhouse.does("tenants", "list")


def test_costs_as_json_has_exact_nano_dollars(tollhouse: Tollhouse) -> None:
    tollhouse.does("tenants", "add", "acme")
    fill_books(tollhouse)
    report = json.loads(tollhouse.does("costs", "--by", "model", "--json"))
    assert report["total"]["cost_nanousd"] == 20_001_160
    assert [row["group"] for row in report["rows"]] == ["m"]


def test_route_explain_gives_a_reason(tollhouse: Tollhouse) -> None:
    said = tollhouse.does("route", "explain", "Write a Python function that reverses a list.")
    assert "only" in said
    assert "task=code" in said


def test_models_list_says_where_each_lies(tollhouse: Tollhouse, minilm_path: Path) -> None:
    said = tollhouse.does("models", "list")
    assert str(minilm_path) in said
    assert "92 MB" in said


@pytest.mark.parametrize(
    ("nanousd", "decimals", "text"),
    [
        (1_500_000_000, 2, "$1.50"),
        (1_234_567_890_123, 2, "$1,234.57"),
        (1_160, 7, "$0.0000012"),
        (-5, 9, "-$0.000000005"),
        (999_999_999, 2, "$1.00"),
        (0, 2, "$0.00"),
    ],
)
def test_money_is_rounded_and_never_in_scientific_notation(nanousd: int, decimals: int, text: str) -> None:
    assert money(nanousd, decimals) == text


def test_the_smallest_amount_shows_two_digits() -> None:
    assert [decimals_for([amount]) for amount in (0, 5_000_000_000, 120_000_000, 12_000_000, 1_160, 3)] == [
        2,
        2,
        2,
        3,
        7,
        9,
    ]


def test_help_imports_nothing_heavy() -> None:
    """So that it is instant; measured as 0.15 s."""
    script = (
        "import sys; from gateway.cli.root import cli\n"
        "try: cli(['--help'], prog_name='tollhouse')\n"
        "except SystemExit: pass\n"
        "heavy = {'rich', 'sqlalchemy', 'litestar', 'numpy', 'torch', 'granian', 'msgspec'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "Show what was spent and saved." in done.stdout


def test_the_reference_page_is_what_the_commands_say() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == reference(), "run: python -m gateway.cli.reference > docs/cli.md"
