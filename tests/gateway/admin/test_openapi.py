"""The document says what the API does: requests made up from it find nothing that it does not say."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from jsonschema import Draft202012Validator
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway.api.admin.openapi import document
from tests.conftest import ROOT
from tests.faults.misbehaving import MisbehavingUpstream
from tests.gateway.admin.conftest import ADMIN_KEY, CONFIG, Admin
from tests.support.server import Gateway

QUIET = [HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
schema = schemathesis.openapi.from_dict(document())
CHECKS: Any = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


@pytest.fixture(scope="module")
def gateway(_running_upstream: MisbehavingUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A server of its own: what is made up may do harm."""
    config = CONFIG.format(database="", upstream=_running_upstream.base_url).partition("[tier.cheap]")[0]
    with Gateway.over(config, tmp_path_factory.mktemp("schemathesis"), TOLLHOUSE_ADMIN_KEY=ADMIN_KEY) as running:
        yield running


@pytest.mark.filterwarnings("ignore")
@schema.parametrize()
@settings(max_examples=10, deadline=None, suppress_health_check=QUIET, derandomize=True, database=None)
def test_whatever_comes(case: Case, gateway: Gateway) -> None:
    case.call_and_validate(base_url=gateway.url, headers={"authorization": f"Bearer {ADMIN_KEY}"}, checks=CHECKS)


@pytest.mark.anyio
async def test_the_document_is_served_and_names_no_other_endpoint(admin: Admin) -> None:
    served = await admin("GET", "/admin/openapi.json")
    assert served == json.loads(json.dumps(document()))
    assert all(path.startswith("/admin/") for path in served["paths"])
    for part in served["components"]["schemas"].values():
        Draft202012Validator.check_schema(part)


def test_the_page_names_every_operation() -> None:
    page = (Path(ROOT) / "docs" / "admin.md").read_text()
    for path, operations in document()["paths"].items():
        for method in operations:
            assert f"`{method.upper()} {path}`" in page
