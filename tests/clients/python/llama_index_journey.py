"""LlamaIndex's OpenAILike and OpenAILikeEmbedding."""

from typing import Any

from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from openai import APIStatusError
from pydantic import BaseModel, Field
from steps import HELLO, INVENT, TEXTS, WEATHER, report, told

WAY = told()
SERVER = {"api_base": WAY.base_url, "api_key": WAY.key, "max_retries": 0}


def model(name: str = WAY.model) -> OpenAILike:
    kind = {"is_chat_model": True, "is_function_calling_model": True, "should_use_structured_outputs": True}
    return OpenAILike(model=name, temperature=0, max_tokens=100, **kind, **SERVER)


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


def weather(city: str) -> str:
    """The weather of a city."""
    return "sunny"


def chat() -> Any:
    return {"text": model().chat([ChatMessage(HELLO)]).message.content}


def stream() -> Any:
    return {"pieces": [piece.delta for piece in model().stream_chat([ChatMessage(HELLO)]) if piece.delta]}


def tools() -> Any:
    llm, tool, question = model(), FunctionTool.from_defaults(weather), ChatMessage(WEATHER)
    wanted = {"tools": [tool], "tool_required": True, "allow_parallel_tool_calls": WAY.parallel}
    whole = llm.chat_with_tools(chat_history=[question], **wanted)
    calls = llm.get_tool_calls_from_response(whole)
    results = [
        ChatMessage("sunny", role=MessageRole.TOOL, additional_kwargs={"tool_call_id": call.tool_id}) for call in calls
    ]
    after = llm.chat([question, whole.message, *results])
    *_, last = llm.stream_chat_with_tools(chat_history=[question], **wanted)
    streamed = llm.get_tool_calls_from_response(last)
    return {
        "calls": [[call.tool_name, call.tool_kwargs] for call in calls],
        "streamed_calls": [[call.tool_name, call.tool_kwargs] for call in streamed],
        "after": after.message.content,
    }


def structured() -> Any:
    return model().as_structured_llm(Person).complete(INVENT).raw.model_dump()


def embeddings() -> Any:
    return OpenAILikeEmbedding(model_name=WAY.embedding_model, **SERVER).get_text_embedding_batch(TEXTS)


def error() -> Any:
    try:
        model(WAY.faulty_model).chat([ChatMessage(HELLO)])
    except APIStatusError as refused:
        return {"status": refused.status_code, "code": refused.code, "said": str(refused)}


report(chat=chat, stream=stream, tools=tools, structured=structured, embeddings=embeddings, error=error)
