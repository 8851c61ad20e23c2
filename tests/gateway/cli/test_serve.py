"""What `tollhouse serve` says once it listens."""

import pytest

from gateway.cli.serve import model_to_try
from gateway.config import parse

PROVIDER = '[[provider]]\nname = "up"\nbase_url = "http://127.0.0.1:9/v1"\n'
GLOB, EMBEDDER, CHAT = (
    f'[[model]]\nname = "{name}"\nprovider = "up"\n{more}'
    for name, more in (("gpt-*", ""), ("embed", 'kind = "embedding"\n'), ("gpt-4o", ""))
)
TIER = '[tier.default]\nmodels = ["gpt-4o"]\n'


@pytest.mark.parametrize(
    ("models", "to_try"),
    [(GLOB + EMBEDDER + CHAT + TIER, "auto"), (GLOB + EMBEDDER + CHAT, "gpt-4o"), (EMBEDDER + GLOB, "gpt-*")],
)
def test_the_model_to_try_is_one_that_is_there(models: str, to_try: str) -> None:
    assert model_to_try(parse((PROVIDER + models).encode())) == to_try
