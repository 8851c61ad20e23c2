"""Azure OpenAI's classic URLs: the deployment in the path, the version in the query, the key in a header of its own.

Source: https://learn.microsoft.com/azure/ai-foundry/openai/reference. Everything behind the URL is OpenAI's API. (The
newer shape, a base URL that ends in /openai/v1, needs nothing of this.)
"""

import urllib.parse

import httpx

from gateway.config import ProviderConfig
from gateway.errors import NotFoundError
from gateway.upstream.headers import request_head
from gateway.upstream.http_backend import PATHS, HttpBackend

MAX_ADDRESSES = 1_000  # a glob's deployments are the clients' to name


class AzureBackend(HttpBackend):
    """Implements `gateway.upstream.types.Backend`; the upstream's name of a model is its deployment."""

    def __init__(self, provider: ProviderConfig, transport: httpx.AsyncBaseTransport | None = None) -> None:
        super().__init__(provider, transport)
        self._models_url = self._join("models")
        self._known: dict[tuple[str, str], tuple[httpx.URL, bytes]] = {}

    def _address(self, endpoint: str, model: str) -> tuple[httpx.URL, bytes]:
        known = self._known.get((endpoint, model))
        if known is None:
            if model in (".", ".."):  # which a URL reads as steps, however they are written
                raise NotFoundError(f"The deployment {model!r} does not exist", param="model", code="model_not_found")
            if len(self._known) >= MAX_ADDRESSES:
                self._known.clear()
            url = self._join(f"deployments/{urllib.parse.quote(model, safe='')}/{PATHS[endpoint]}")
            known = self._known[endpoint, model] = url, request_head(url, self._headers_of(endpoint))
        return known

    def _join(self, path: str) -> httpx.URL:
        base = self._provider.base_url.rstrip("/")
        return httpx.URL(f"{base}/openai/{path}", params={"api-version": self._provider.api_version})

    @staticmethod
    def _credentials(key: str) -> dict[str, str]:
        return {"api-key": key}
