"""Run a language model on this machine. Knows no HTTP, tenants or money: only opaque salts and fairness keys."""

import os

# A step has hundreds of short parallel regions. By default OpenMP's threads spin while they wait for each other, and
# on a machine whose cores are also busy elsewhere (the event loop, the embedder) that makes a step up to ten times
# slower. libgomp reads this when torch is first imported, so it has to be said before.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
