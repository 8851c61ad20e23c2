// Vercel's AI SDK with its provider for OpenAI-compatible servers.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, embedMany, generateText, streamText, tool } from "ai";
import { z } from "zod";
import { HELLO, INVENT, TEXTS, WEATHER, report, way } from "./steps.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const provider = createOpenAICompatible({
  name: "tollhouse",
  baseURL: way.base_url,
  apiKey: way.key,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const model = provider(way.model);
const wanted = { model, temperature: 0, maxOutputTokens: 100, maxRetries: 0 };
const Person = z.object({ name: z.string().max(20), age: z.int().min(0).max(120) });
const weather = tool({
  description: "The weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  execute: async () => "sunny",
});
const must = {
  tools: { weather },
  toolChoice: "required",
  providerOptions: { tollhouse: { parallel_tool_calls: way.parallel } },
};

const callsOf = (calls) => calls.map(({ toolName, input }) => [toolName, input]);

async function chat() {
  return { text: (await generateText({ ...wanted, prompt: HELLO })).text };
}

async function stream() {
  const answer = streamText({ ...wanted, prompt: HELLO });
  const pieces = [];
  for await (const piece of answer.textStream) pieces.push(piece);
  const { outputTokens } = await answer.usage;
  return { pieces, output_tokens: outputTokens };
}

async function tools() {
  const whole = await generateText({ ...wanted, ...must, prompt: WEATHER });
  const messages = [{ role: "user", content: WEATHER }, ...whole.response.messages];
  const after = await generateText({ ...wanted, tools: { weather }, toolChoice: "none", messages });
  const streamed = streamText({ ...wanted, ...must, prompt: WEATHER });
  await streamed.consumeStream();
  return { calls: callsOf(whole.toolCalls), streamed_calls: callsOf(await streamed.toolCalls), after: after.text };
}

async function structured() {
  return (await generateText({ ...wanted, prompt: INVENT, output: Output.object({ schema: Person }) })).output;
}

async function embeddings() {
  const embedder = provider.embeddingModel(way.embedding_model);
  return (await embedMany({ model: embedder, values: TEXTS, maxRetries: 0 })).embeddings;
}

async function error() {
  try {
    await generateText({ ...wanted, model: provider(way.faulty_model), prompt: HELLO });
  } catch (refused) {
    return { status: refused.statusCode, said: refused.message };
  }
}

await report({ chat, stream, tools, structured, embeddings, error });
