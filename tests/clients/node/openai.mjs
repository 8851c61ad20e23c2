// OpenAI's own client for Node.

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { HELLO, INVENT, TEXTS, WEATHER, report, way } from "./steps.mjs";

const client = new OpenAI({ baseURL: way.base_url, apiKey: way.key, maxRetries: 0 });
const wanted = { model: way.model, temperature: 0, max_tokens: 100 };
const question = { role: "user", content: WEATHER };
const Person = z.object({ name: z.string().max(20), age: z.int().min(0).max(120) });
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tool = { type: "function", function: { name: "weather", description: "The weather of a city.", parameters } };
const must = { tools: [tool], tool_choice: "required", parallel_tool_calls: way.parallel };

const ask = (text) => [{ role: "user", content: text }];
const callsOf = (message) => message.tool_calls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]);

async function chat() {
  const answer = await client.chat.completions.create({ ...wanted, messages: ask(HELLO) });
  return { text: answer.choices[0].message.content };
}

async function stream() {
  const pieces = [];
  for await (const chunk of await client.chat.completions.create({ ...wanted, messages: ask(HELLO), stream: true })) {
    if (chunk.choices[0].delta.content) pieces.push(chunk.choices[0].delta.content);
  }
  return { pieces };
}

async function tools() {
  const whole = await client.chat.completions.create({ ...wanted, ...must, messages: [question] });
  const { message } = whole.choices[0];
  const results = message.tool_calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: "sunny" }));
  const messages = [question, message, ...results];
  const after = await client.chat.completions.create({ ...wanted, tools: [tool], tool_choice: "none", messages });
  const streamed = client.chat.completions.stream({ ...wanted, ...must, messages: [question] });
  return {
    calls: callsOf(message),
    streamed_calls: callsOf(await streamed.finalMessage()),
    after: after.choices[0].message.content,
  };
}

async function structured() {
  const response_format = zodResponseFormat(Person, "person");
  const answer = await client.chat.completions.parse({ ...wanted, messages: ask(INVENT), response_format });
  return answer.choices[0].message.parsed;
}

async function embeddings() {
  const answer = await client.embeddings.create({ model: way.embedding_model, input: TEXTS });
  return answer.data.map(({ embedding }) => embedding);
}

async function responses() {
  const wanted = { model: way.model, input: HELLO, temperature: 0, max_output_tokens: 100 };
  const whole = await client.responses.create(wanted);
  const pieces = [];
  for await (const event of await client.responses.create({ ...wanted, stream: true })) {
    if (event.type === "response.output_text.delta") pieces.push(event.delta);
  }
  return { text: whole.output_text, pieces };
}

async function error() {
  try {
    await client.chat.completions.create({ ...wanted, model: way.faulty_model, messages: ask(HELLO) });
  } catch (refused) {
    return { status: refused.status, code: refused.code, said: refused.message };
  }
}

await report({ chat, stream, tools, structured, embeddings, responses, error });
