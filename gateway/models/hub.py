"""Takes a model from the Hugging Face Hub: only the formats that are run here, at the revision that was asked for."""

from pathlib import Path

from gateway.models.errors import ModelSourceError
from gateway.models.store import Progress

# Never pickled weights, nor the same weights once more in another runtime's format.
_WANTED = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.md", "LICENSE*", "*.gguf"]
_UNWANTED = ["onnx/*", "openvino/*", "coreml/*"]


def fetch_repository(name: str, revision: str, path: str, folder: Path, progress: Progress | None = None) -> None:
    """Puts the repository's model, or the file or folder `path` of it, into `folder`."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    label = f"hf:{name}" + (f"@{revision}" if revision else "")
    try:
        info = HfApi().model_info(name, revision=revision or None, files_metadata=False)
        names = [sibling.rfilename for sibling in info.siblings or []]
        patterns = _patterns(names, path, label)
        if progress:
            progress(label, 0, None)
        snapshot_download(
            name,
            revision=info.sha,  # the files that were listed, even if the branch moves meanwhile
            local_dir=folder,
            allow_patterns=patterns,
            ignore_patterns=None if path else _UNWANTED,
        )
    except (HfHubHTTPError, OfflineModeIsEnabled, OSError) as error:
        raise ModelSourceError(f"{label}: the Hugging Face Hub did not give it: {_first_line(error)}") from error
    except Exception as error:
        # Which HTTP library the Hub's client uses, and so what its connection errors are, changes with its version.
        if type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "requests"):
            raise ModelSourceError(f"{label}: the Hugging Face Hub is out of reach: {_first_line(error)}") from error
        raise


def _patterns(names: list[str], path: str, label: str) -> list[str]:
    if path:
        wanted = path.strip("/")
        if not any(name == wanted or name.startswith(f"{wanted}/") for name in names):
            raise ModelSourceError(f"{label} holds no {path!r}")
        return [wanted, f"{wanted}/*"]
    ggufs = [name for name in names if name.endswith(".gguf")]
    has_safetensors = any(name.endswith(".safetensors") for name in names)
    if len(ggufs) > 1 and not has_safetensors:
        choices = ", ".join(f"{label}#{name}" for name in ggufs)
        raise ModelSourceError(f"{label} holds more than one model; choose one: {choices}")
    if not ggufs and not has_safetensors:
        raise ModelSourceError(f"{label} holds neither safetensors nor GGUF weights")
    return [pattern for pattern in _WANTED if pattern != "*.gguf" or not has_safetensors]


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
