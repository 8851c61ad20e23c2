"""Messages to one prompt by the model's own Jinja template, in a sandbox. Knows no tokens.

A template comes with the model file and is not trusted: it can read what it is given and nothing else. Nothing bounds
its time and memory: one that loops for ever, or doubles a text in a loop, takes the thread with it.
"""

import datetime
import json
from collections.abc import Iterable
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import ModelLoadError, TemplateError
from engine.tokenizer import GUARD
from engine.tools.format import format_for

# What an expression can raise, in the constant folding of the compiler too: 1/0, range(10**9), ((((...))))
_FAILURES = (
    *(TypeError, ValueError, KeyError, AttributeError, IndexError),
    *(ArithmeticError, MemoryError, RecursionError),
)


class ChatTemplate:
    """`bos` and `eos` are the tokens' texts ("" when the model has none). `tool_source`: a template that takes
    the place of `source` where there are tools, or calls in the conversation.

    `special_tokens`, wherever they occur in a message, are guarded so that the tokenizer takes them for plain text.
    Raises ModelLoadError when the template is no Jinja.
    """

    def __init__(
        self,
        source: str,
        bos: str,
        eos: str,
        special_tokens: Iterable[str] = (),
        tool_source: str | None = None,
    ) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
            self._tool_template = environment.from_string(tool_source) if tool_source else None
        except (jinja2.TemplateError, SyntaxError, *_FAILURES) as error:
            raise ModelLoadError(f"the model's chat template is not valid Jinja: {error}") from error
        self.tool_format = format_for(tool_source or source)
        self._bos, self._eos = bos, eos
        self._guarded = {token: token[0] + GUARD + token[1:] for token in special_tokens if len(token) > 1}

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt for `messages` and `tools` in OpenAI's shape. Raises TemplateError when the template refuses them.

        A template that knows nothing of tools gets them described in a message.
        """
        try:
            prepared, prepared_tools = self.tool_format.prepare(messages, tools)
            template = self._template
            if self._tool_template and (tools or any(message.get("tool_calls") for message in messages)):
                template, prepared_tools = self._tool_template, prepared_tools or []
            return template.render(
                messages=self._guard(prepared),
                tools=self._guard(prepared_tools),
                add_generation_prompt=add_generation_prompt,
                bos_token=self._bos,
                eos_token=self._eos,
            )
        except jinja2.TemplateError as error:
            raise TemplateError(f"the model's chat template refuses these messages: {error}") from error
        except _FAILURES as error:
            raise TemplateError(f"the model's chat template can't take these messages: {error}") from error

    def _guard(self, value: Any) -> Any:
        if isinstance(value, str):
            value = value.replace(GUARD, "")
            for token, guarded in self._guarded.items():
                if token in value:
                    value = value.replace(token, guarded)
            return value
        if isinstance(value, dict):
            return {self._guard(key): self._guard(item) for key, item in value.items()}
        return [self._guard(item) for item in value] if isinstance(value, list | tuple) else value


class _GenerationTag(Extension):
    """{% generation %} marks for training what the assistant says, and is nothing here.

    https://huggingface.co/docs/transformers/chat_templating_writing
    """

    tags = {"generation"}  # noqa: RUF012 (as the base class has it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: Any, indent: int | None = None, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(
        value, indent=indent, ensure_ascii=ensure_ascii, **options
    )  # unlike Jinja's, without HTML escapes


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.datetime.now(datetime.UTC).strftime(form)
