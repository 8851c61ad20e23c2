"""LangChain's ChatOpenAI and OpenAIEmbeddings."""

from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from openai import APIStatusError
from pydantic import BaseModel, Field
from steps import HELLO, INVENT, TEXTS, WEATHER, report, told

WAY = told()
SERVER = {"base_url": WAY.base_url, "api_key": WAY.key, "max_retries": 0}
model = ChatOpenAI(model=WAY.model, temperature=0, max_tokens=100, **SERVER)


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return "sunny"


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


def chat() -> Any:
    return {"text": model.invoke(HELLO).text}


def stream() -> Any:
    return {"pieces": [piece.text for piece in model.stream(HELLO) if piece.text]}


def tools() -> Any:
    bound = model.bind_tools([weather], tool_choice="required", parallel_tool_calls=WAY.parallel)
    question = HumanMessage(WEATHER)
    whole = bound.invoke([question])
    results = [ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]) for call in whole.tool_calls]
    after = model.bind_tools([weather], tool_choice="none").invoke([question, whole, *results])
    streamed, *others = bound.stream([question])
    for piece in others:
        streamed += piece
    return {
        "calls": [[call["name"], call["args"]] for call in whole.tool_calls],
        "streamed_calls": [[call["name"], call["args"]] for call in streamed.tool_calls],
        "after": after.text,
    }


def structured() -> Any:
    person = model.with_structured_output(Person, method="json_schema", strict=True).invoke(INVENT)
    return person.model_dump()


def embeddings() -> Any:
    # Without the last option it sends OpenAI's tokens, made by a tokenizer that it would have to fetch.
    embedder = OpenAIEmbeddings(model=WAY.embedding_model, check_embedding_ctx_length=False, **SERVER)
    return embedder.embed_documents(TEXTS)


def responses() -> Any:
    speaker = ChatOpenAI(model=WAY.model, temperature=0, max_tokens=100, use_responses_api=True, **SERVER)
    return {
        "text": speaker.invoke(HELLO).text,
        "pieces": [piece.text for piece in speaker.stream(HELLO) if piece.text],
    }


def error() -> Any:
    try:
        ChatOpenAI(model=WAY.faulty_model, **SERVER).invoke(HELLO)
    except APIStatusError as refused:
        return {"status": refused.status_code, "code": refused.code, "said": str(refused)}


report(
    chat=chat,
    stream=stream,
    tools=tools,
    structured=structured,
    embeddings=embeddings,
    responses=responses,
    error=error,
)
