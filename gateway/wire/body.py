"""A request body from bytes to typed fields, with every fault told in OpenAI's way. Knows no endpoint."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_args

import msgspec
from msgspec import Meta

from gateway.errors import InvalidRequestError
from gateway.telemetry.masking import looks_like_a_key
from gateway.wire.inference import Role
from gateway.wire.members import decode_members, repeated_key

# Decoding holds everybody else's requests up, in a thread, too: for 0.1 s at most. Long texts cost next to nothing.
MAX_CONTAINERS = 500_000  # about: braces in texts count
MAX_STRINGS = 250_000  # keys and texts
MAX_COMMAS = 2_000_000  # so many numbers; in a text, more tokens than any model reads
MAX_DEPTH_MESSAGE = "The JSON body of your request is nested too deeply."

Probability = Annotated[float, Meta(ge=0, le=1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
NumTokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
NumChoices = Annotated[int, Meta(ge=1, le=128)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
TopK = Annotated[int, Meta(ge=-1, le=2**31 - 1)]  # 0 and -1: off


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class CommonFields(msgspec.Struct):
    """What chat and text completions share. A null is as good as an absent field, as at OpenAI."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Temperature | None = None
    top_p: Probability | None = None
    top_k: TopK | None = None
    seed: Int64 | None = None
    n: NumChoices | None = None
    stop: str | list[str] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    ignore_eos: bool | None = None
    # Beyond OpenAI's API, by the names that vLLM gave them.
    min_p: Probability | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None
    stop_token_ids: list[TokenId] | None = None
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    structured_outputs: dict[str, Any] | None = None
    service_tier: str | None = None
    user: str | None = None


Fields = TypeVar("Fields")


def decode_body(raw: bytes, decoder: msgspec.json.Decoder[Fields]) -> tuple[dict[str, msgspec.Raw], Fields]:
    """The raw members and the typed view of a body. Raises InvalidRequestError for whatever is wrong with it."""
    _check_work(raw)
    try:
        raw.decode()
        fields = decode_members(raw)
        typed = decoder.decode(raw)
        msgspec.json.decode(raw)  # what nobody typed must be sound too: it is hashed, and it is sent on
    except msgspec.ValidationError as error:
        raise explain(error) from error
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"The body of your request is not valid UTF-8 (byte {error.start}).") from error
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"We could not parse the JSON body of your request: {error}.") from error
    except RecursionError as error:
        raise InvalidRequestError(MAX_DEPTH_MESSAGE) from error
    repeated = repeated_key(raw, fields)
    if repeated is not None:
        raise InvalidRequestError(f"The parameter {repeated!r} is given more than once.", param=repeated)
    if (misread := _misread_key(fields, decoder)) is not None:
        raise InvalidRequestError(f"The parameter {misread!r} has to be written in lower case.", param=misread)
    return fields, typed


def _misread_key(fields: Mapping[str, msgspec.Raw], decoder: msgspec.json.Decoder[Any]) -> str | None:
    """A key that is a known one but for its case. Servers in Go read it so (encoding/json, by Unicode's folding), and
    would take a "Model" for the model that was judged and priced here.
    """
    names = "".join(fields)
    if names.isascii() and names.islower():
        return None
    known = decoder.type.__struct_encode_fields__
    return next((name for name in fields if name not in known and name.casefold() in known), None)


def _check_work(raw: bytes) -> None:
    """Raises InvalidRequestError for a body of too many values."""
    if len(raw) <= 2 * MAX_STRINGS:
        return
    if raw.count(b"{") + raw.count(b"[") > MAX_CONTAINERS:
        raise InvalidRequestError(f"The body of your request holds more than {MAX_CONTAINERS} objects and lists.")
    if raw.count(b'"') - raw.count(b'\\"') > 2 * MAX_STRINGS:  # quotes within a text are escaped
        raise InvalidRequestError(f"The body of your request holds more than {MAX_STRINGS} keys and texts.")
    if raw.count(b",") > MAX_COMMAS:
        raise InvalidRequestError(f"The body of your request holds more than {MAX_COMMAS} values.")


def check_model(model: str) -> None:
    # The name goes into headers, logs and metrics: nothing that could break a line may be in it.
    if not model:
        raise InvalidRequestError("you must provide a model parameter", param="model")
    if len(model) > 256 or not model.isprintable():
        raise InvalidRequestError("Invalid value for 'model': not a model's name.", param="model")
    if looks_like_a_key(model):  # a slip that happens, and the name goes into the books
        raise InvalidRequestError("Invalid value for 'model': this looks like an API key.", param="model")


def check_stop(stop: str | list[str] | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    sequences = (stop,) if isinstance(stop, str) else tuple(stop)
    if not 1 <= len(sequences) <= 4:
        raise invalid("stop", f"expected 1 to 4 sequences, got {len(sequences)}")
    if "" in sequences:
        raise invalid("stop", "a stop sequence can't be empty")
    return sequences


def check_logit_bias(logit_bias: dict[str, float] | None) -> None:
    for token in logit_bias or ():
        if not (token.isascii() and token.isdecimal() and len(token) <= 10):
            raise invalid("logit_bias", f"{token[:32]!r} is no token id")


def check_stream_options(stream: bool | None, options: StreamOptions | None) -> bool:
    """Whether usage was asked for."""
    if options is None:
        return False
    if not stream:
        raise invalid("stream_options", "only allowed when 'stream' is true")
    return bool(options.include_usage)


def invalid(param: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(f"Invalid value for '{param}': {what}.", param=param)


def missing(param: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter"
    )


def member(value: dict[str, Any], name: str, expected: type, where: str) -> Any:
    """value[name], which must be there and of the expected type. Raises InvalidRequestError."""
    if name not in value:
        raise missing(f"{where}.{name}")
    found = value[name]
    if not isinstance(found, expected):
        wanted = "a string" if expected is str else "an object"
        raise InvalidRequestError(f"Invalid type for '{where}.{name}': expected {wanted}.", param=f"{where}.{name}")
    return found


def token_ids(value: Any) -> bool:
    """Whether a value is a non-empty array of plain integers that could be tokens."""
    return isinstance(value, list) and bool(value) and all(type(item) is int and 0 <= item < 2**31 for item in value)


def is_null(fields: Mapping[str, msgspec.Raw], name: str) -> bool:
    """Whether a field is absent or null."""
    value = fields.get(name)
    return value is None or bytes(value) == b"null"


def explain(error: msgspec.ValidationError, where: str = "") -> InvalidRequestError:
    """msgspec's "Expected `int`, got `str` - at `$.max_tokens`" in OpenAI's words, with `param` filled.

    `where`: the path of what was converted, if it was not the whole body.
    """
    what, _, path = str(error).partition(" - at `$")
    path = (where + path.rstrip("`")).lstrip(".")
    what = what.replace("`", "")
    if what.startswith("Object missing required field "):
        name = what.rpartition(" ")[2]
        return missing(f"{path}.{name}" if path else name)
    if not path:
        return InvalidRequestError(f"We could not use the JSON body of your request: {what.lower()}.")
    if what.startswith("Invalid enum value") and path.endswith(".role"):
        what = f"{what.removeprefix('Invalid enum value ')} is not one of {', '.join(get_args(Role))}"
    elif what.startswith("Expected"):
        what = "e" + what[1:]
    return invalid(path, what)
