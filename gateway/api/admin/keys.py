"""/admin/keys: a secret is in the answer to its creation or rotation, and in no other."""

from typing import Annotated

from litestar import Controller, delete, get, patch, post
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import Meta

from gateway.api.admin.access import Books, By
from gateway.api.admin.views import (
    Body,
    KeyChanges,
    KeyView,
    KeyWithSecret,
    NewKeyBody,
    key_view,
    key_with_secret,
)
from gateway.tenants import registry
from gateway.tenants.registry.keys import MAX_OVERLAP_S
from gateway.tenants.types import Limits, Scope


class Rotation(Body):
    overlap_s: Annotated[float, Meta(ge=0, le=MAX_OVERLAP_S)] = 3600.0  # how long the old secret works on


class Keys(Controller):
    path = "/keys"
    tags = ("keys",)

    @get(summary="Keys, without their secrets")
    async def list_keys(
        self, books: Books, tenant: FromQuery[str | None] = None, team: FromQuery[str | None] = None
    ) -> list[KeyView]:
        rows = await registry.list_keys(books, tenant)
        return [key_view(row) for row in rows if team in (None, row.team_name)]

    @post(summary="Create a key; the answer alone holds its secret")
    async def create_key(self, data: JSONBody[NewKeyBody], books: Books, by: By) -> KeyWithSecret:
        fields = data.given()
        scope = Scope(**{name: fields.pop(name, None) for name in Scope.__struct_fields__})
        limits = Limits(**{name: fields.pop(name, None) for name in Limits.__struct_fields__})
        tenant = fields.pop("tenant")
        made = await registry.create_key(books, tenant, **fields, scope=scope, limits=limits, by=by)
        return key_with_secret(await registry.get_key(books, made.key.id, tenant), made)

    @get("/{key:str}", summary="One key, by id, prefix or name")
    async def get_key(self, key: FromPath[str], books: Books, tenant: FromQuery[str | None] = None) -> KeyView:
        return key_view(await registry.get_key(books, key, tenant))

    @patch("/{key:str}", summary="Change what is named of a key: scope, expiry, team, limits, name")
    async def change_key(
        self, key: FromPath[str], data: JSONBody[KeyChanges], books: Books, by: By, tenant: FromQuery[str | None] = None
    ) -> KeyView:
        changed = await registry.change_key(books, key, tenant, by=by, **data.given())
        return key_view(await registry.get_key(books, changed.id))

    @post("/{key:str}/rotate", summary="A new secret for the same key; the old one works on for a while")
    async def rotate_key(
        self, key: FromPath[str], data: JSONBody[Rotation], books: Books, by: By, tenant: FromQuery[str | None] = None
    ) -> KeyWithSecret:
        made = await registry.rotate_key(books, key, tenant, overlap_s=data.overlap_s, by=by)
        return key_with_secret(await registry.get_key(books, made.key.id), made)

    @delete("/{key:str}", status_code=200, summary="Revoke a key: refused from now on; `disabled: false` restores it")
    async def revoke_key(
        self, key: FromPath[str], books: Books, by: By, tenant: FromQuery[str | None] = None
    ) -> KeyView:
        revoked = await registry.disable_key(books, key, tenant, by=by)
        return key_view(await registry.get_key(books, revoked.id))
