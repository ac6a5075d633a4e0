// Lets an agent of the AI SDK work in a sandbox: `npm install ai zod` beside the package `ringfence`, `ringfence serve &`, then
// `node ai_agent.mjs`. The model is a script, so that it runs without a key; put yours in its place.

import { generateText, isStepCount } from "ai";
import { MockLanguageModelV4 } from "ai/test";
import { Sandbox } from "ringfence";
import { sandboxFailed, sandboxTools } from "ringfence/ai";

const CODE = `
import csv
rows = list(csv.DictReader(open("data.csv")))
print(len(rows), "rows, x sums to", sum(int(row["x"]) for row in rows))
`;

const rest = { usage: { inputTokens: {}, outputTokens: {} }, warnings: [] };
const use = (toolName, input) => ({
  content: [{ type: "tool-call", toolCallId: toolName, toolName, input: JSON.stringify(input) }],
  finishReason: { unified: "tool-calls" },
  ...rest,
});
const model = new MockLanguageModelV4({
  doGenerate: [
    use("runCommand", { command: "head -1 data.csv" }),
    use("runCode", { code: CODE }),
    { content: [{ type: "text", text: "Done." }], finishReason: { unified: "stop" }, ...rest },
  ],
});

const sandbox = await Sandbox.create({ memory: "512MiB", timeout: "10m" });
try {
  await sandbox.files.write("data.csv", "x,y\n1,2\n3,4\n");
  const { steps } = await generateText({
    model,
    tools: sandboxTools(sandbox),
    stopWhen: [isStepCount(10), sandboxFailed],
    prompt: "How many rows has data.csv, and what is the sum of x?",
  });
  const results = steps.flatMap(({ toolResults }) => toolResults);
  console.log(results.at(-1).output.stdout.trim());
} finally {
  await sandbox.kill();
}
