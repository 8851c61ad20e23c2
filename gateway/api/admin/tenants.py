"""/admin/tenants and the teams below them."""

from litestar import Controller, delete, get, patch, post
from litestar.params import FromPath, JSONBody

from gateway.api.admin.access import Books, By
from gateway.api.admin.views import (
    NewTeam,
    NewTenant,
    TeamChanges,
    TeamView,
    TenantChanges,
    TenantView,
    team_view,
    tenant_view,
)
from gateway.store.database import Database
from gateway.tenants import registry
from gateway.tenants.erase import Erased, erase_tenant
from gateway.tenants.registry.teams import TeamRow
from gateway.tenants.types import Limits


class Tenants(Controller):
    path = "/tenants"
    tags = ("tenants",)

    @get(summary="All tenants, by name")
    async def list_tenants(self, books: Books) -> list[TenantView]:
        return [tenant_view(tenant) for tenant in await registry.list_tenants(books)]

    @post(summary="Create a tenant")
    async def create_tenant(self, data: JSONBody[NewTenant], books: Books, by: By) -> TenantView:
        fields = data.given()
        limits = Limits(**{name: fields.pop(name, None) for name in Limits.__struct_fields__})
        made = await registry.create_tenant(books, **fields, limits=limits, by=by)
        return tenant_view(made)

    @get("/{tenant:str}", summary="One tenant")
    async def get_tenant(self, tenant: FromPath[str], books: Books) -> TenantView:
        return tenant_view(await registry.get_tenant(books, tenant))

    @patch("/{tenant:str}", summary="Change what is named of a tenant; `disabled` refuses all of its keys")
    async def change_tenant(
        self, tenant: FromPath[str], data: JSONBody[TenantChanges], books: Books, by: By
    ) -> TenantView:
        return tenant_view(await registry.change_tenant(books, tenant, by=by, **data.given()))

    @post(
        "/{tenant:str}/erase", summary="Forget a tenant's texts, embeddings, responses and files; keep what they cost"
    )
    async def erase_tenant(self, tenant: FromPath[str], books: Books, by: By) -> Erased:
        return await erase_tenant(books, tenant, by=by)

    @delete("/{tenant:str}", summary="Delete a disabled tenant with its teams and keys; its books stay")
    async def delete_tenant(self, tenant: FromPath[str], books: Books, by: By) -> None:
        await registry.delete_tenant(books, tenant, by=by)


class Teams(Controller):
    path = "/tenants/{tenant:str}/teams"
    tags = ("teams",)

    @get(summary="A tenant's teams")
    async def list_teams(self, tenant: FromPath[str], books: Books) -> list[TeamView]:
        return [team_view(row) for row in await registry.list_teams(books, tenant)]

    @post(summary="Create a team")
    async def create_team(self, tenant: FromPath[str], data: JSONBody[NewTeam], books: Books, by: By) -> TeamView:
        fields = data.given()
        name = fields.pop("name")
        await registry.create_team(books, tenant, name, limits=Limits(**fields), by=by)
        return await _team(books, tenant, name)

    @get("/{team:str}", summary="One team")
    async def get_team(self, tenant: FromPath[str], team: FromPath[str], books: Books) -> TeamView:
        return await _team(books, tenant, team)

    @patch("/{team:str}", summary="Change what is named of a team; `disabled` refuses all of its keys")
    async def change_team(
        self, tenant: FromPath[str], team: FromPath[str], data: JSONBody[TeamChanges], books: Books, by: By
    ) -> TeamView:
        changed = await registry.change_team(books, tenant, team, by=by, **data.given())
        return await _team(books, tenant, changed.name)


async def _team(books: Database, tenant: str, name: str) -> TeamView:
    """With its number of keys. Raises UnknownName."""
    team = await registry.get_team(books, tenant, name)
    rows = await registry.list_teams(books, tenant)
    count = next((row.num_keys for row in rows if row.team.id == team.id), 0)
    return team_view(TeamRow(team, tenant, count))
