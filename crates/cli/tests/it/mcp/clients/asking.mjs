// The official TypeScript client, whose person is asked. Prints one JSON object a check; the test judges them.
//
// Usage: asking.mjs BINARY. On standard input: steps, each a call and what the person answers to the question that it
// raises, if any: {"answer": an ElicitResult} or {"wait": a file}; who waits does so until the question is taken back.

import { readFileSync } from 'node:fs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ElicitRequestSchema, McpError } from '@modelcontextprotocol/sdk/types.js';

const [BINARY] = process.argv.slice(2);
const STEPS = JSON.parse(readFileSync(0, 'utf8'));

// What a call came to, in the words that both clients use.
async function outcome(calling) {
  try {
    const result = await calling;
    return {
      error: Boolean(result.isError),
      text: result.content[0].text,
      structured: result.structuredContent ?? null,
    };
  } catch (error) {
    if (error instanceof McpError) return { protocol_error: error.code, message: error.message };
    throw error;
  }
}

async function until(holds) {
  const deadline = Date.now() + 20_000;
  while (!holds() && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 10));
}

async function take(steps, capabilities) {
  const client = new Client({ name: 'asking', version: '1' }, { capabilities });
  let now = null;
  if (capabilities.elicitation) {
    client.setRequestHandler(ElicitRequestSchema, async ({ params }, { signal }) => {
      now.asked.push(params);
      if (now.step.wait) {
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        now.taken_back = true;
      }
      return now.step.answer ?? { action: 'accept', content: { decision: 'approve once' } };
    });
  }
  await client.connect(
    new StdioClientTransport({
      command: BINARY,
      args: ['mcp', '--workspace', '.'],
      env: process.env,
      stderr: 'inherit',
    }),
  );
  try {
    for (const step of steps) {
      now = { step, asked: [], taken_back: false };
      const told = await outcome(client.callTool({ name: step.tool, arguments: step.arguments }));
      if (step.wait) await until(() => now.taken_back);
      const { asked, taken_back } = now;
      console.log(JSON.stringify({ check: step.check, asked, taken_back, ...told }));
    }
  } finally {
    await client.close();
  }
}

await take(
  STEPS.filter((step) => !step.plain),
  { elicitation: { form: {} } },
);
await take(
  STEPS.filter((step) => step.plain),
  {},
);
