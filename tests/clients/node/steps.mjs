// What every script here shares: where to go, and a report of its steps as one line of JSON. Any Node client runs it.

export const HELLO = "Say hello in one short sentence.";
export const WEATHER = "What is the weather in Paris, Tokyo and Lima?";
export const INVENT = "Invent a person. Answer with JSON: name and age.";
export const TEXTS = ["a cat", "a kitten", "the stock market"];

/** { base_url, key, model, embedding_model, faulty_model, parallel, home } */
export const way = JSON.parse(process.argv[2]);

/** Every step is taken, whatever became of the others. */
export async function report(steps) {
  const outcomes = {};
  for (const [name, step] of Object.entries(steps)) {
    try {
      outcomes[name] = await step();
    } catch (error) {
      outcomes[name] = { failed: String(error.stack ?? error).slice(-2000) };
    }
  }
  console.log(JSON.stringify(outcomes));
}
