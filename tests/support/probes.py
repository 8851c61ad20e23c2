"""The models of a fake upstream, as a config names them: what follows the slash is the behaviour that it plays."""

PROBE = """
[[model]]
name = "probe/*"
provider = "upstream"
input_usd_per_mtok = 1.0
output_usd_per_mtok = 2.0
"""
EMBED = """
[[model]]
name = "embed/*"
provider = "upstream"
kind = "embedding"
input_usd_per_mtok = 1.0
"""
