"""The books as charts: one page that asks for JSON with a key. Knows no SQL and mounts no routes."""

from gateway.dashboard.access import tenant_in_sight
from gateway.dashboard.data import data
from gateway.dashboard.page import headers, page

__all__ = ["data", "headers", "page", "tenant_in_sight"]
