"""How freely JSON may be written under a grammar, as options of llguidance's `x-guidance` member."""

# Blanks wherever JSON has them, but not for ever: small models love to write them.
FREE = {"whitespace_flexible": True, "whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,20}"}
# As json.dumps writes it, and as models have seen the arguments of calls: small ones lose themselves in freer forms.
COMPACT = {"whitespace_flexible": False, "key_separator": ": ", "item_separator": ", "}
