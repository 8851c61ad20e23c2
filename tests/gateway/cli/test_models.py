"""Which models lie where, which are pulled, and which one the router would take."""

from pathlib import Path

from tests.gateway.cli.conftest import CONFIG, Tollhouse


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


def test_route_explain_gives_a_reason(tollhouse: Tollhouse) -> None:
    said = tollhouse.does("route", "explain", "Write a Python function that reverses a list.")
    assert "only" in said
    assert "task=code" in said


def test_models_list_says_where_each_lies(tollhouse: Tollhouse, minilm_path: Path) -> None:
    said = tollhouse.does("models", "list")
    assert str(minilm_path) in said
    assert "92 MB" in said
