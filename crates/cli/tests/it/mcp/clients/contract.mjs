// The official TypeScript client against `ringfence mcp`. Prints one JSON object a check; the test judges them.
//
// Usage: contract.mjs BINARY MODE DIRECTORY, where DIRECTORY holds `one` and `two`.

import { readFileSync, readdirSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { join } from 'node:path';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import {
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  McpError,
} from '@modelcontextprotocol/sdk/types.js';

const [BINARY, , DIRECTORY] = process.argv.slice(2);
const CALLS = JSON.parse(readFileSync(0, 'utf8'));

const report = (check, facts) => console.log(JSON.stringify({ check, ...facts }));

async function connected(offered, work) {
  const capabilities = offered ? { roots: { listChanged: true } } : {};
  const client = new Client({ name: 'contract', version: '1' }, { capabilities });
  if (offered) {
    client.setRequestHandler(ListRootsRequestSchema, () => ({
      roots: offered.map((path) => ({ uri: pathToFileURL(path).href })),
    }));
  }
  await client.connect(
    new StdioClientTransport({ command: BINARY, args: ['mcp'], env: process.env, stderr: 'inherit' }),
  );
  try {
    await work(client);
  } finally {
    await client.close();
  }
}

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

const call = (client, tool, args, options) =>
  client.callTool({ name: tool, arguments: args }, undefined, options);

// Whether a process of this machine has the mark among its arguments.
function running(mark) {
  return readdirSync('/proc').some((process) => {
    try {
      return readFileSync(join('/proc', process, 'cmdline'), 'utf8').split('\0').includes(mark);
    } catch {
      return false;
    }
  });
}

async function until(holds) {
  const deadline = Date.now() + 20_000;
  while (!holds()) {
    if (Date.now() > deadline) return false;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  return true;
}

async function basics(client) {
  report('greeting', {
    protocol: client.transport._protocolVersion ?? null,
    server: client.getServerVersion().name,
    instructions: client.getInstructions() ?? '',
  });
  report('tools', { tools: (await client.listTools()).tools });
  for (const { check, tool, arguments: args } of CALLS) {
    report(check, await outcome(call(client, tool, args)));
  }
  await fifty(client);
  await progress(client);
  await cancel(client);
  await client.ping();
  report('ping', { answered: true });
}

async function fifty(client) {
  const numbers = Array.from({ length: 50 }, (_, n) => n);
  const results = await Promise.all(
    numbers.map((n) => call(client, 'run_python_code', { code: `print(${n} * ${n})` })),
  );
  const right = numbers.filter((n) => results[n].content[0].text === `${n * n}\n`);
  report('fifty', { right: right.length });
}

async function progress(client) {
  const heard = [];
  const code = "import time\nprint('half way', flush=True)\ntime.sleep(1.7)";
  const onprogress = ({ progress, message }) => heard.push([progress, message]);
  const result = await call(client, 'run_code', { code }, { onprogress });
  report('progress', { heard, error: Boolean(result.isError) });
}

async function cancel(client) {
  const mark = `86399.${process.pid}`;
  const change = new AbortController();
  const calling = call(client, 'shell', { command: 'sleep', args: [mark] }, { signal: change.signal }).then(
    () => false,
    () => true,
  );
  const started = await until(() => running(mark));
  change.abort();
  const cancelled = await calling;
  const gone = await until(() => !running(mark));
  const after = await outcome(call(client, 'run_python_code', { code: "print('still here')" }));
  report('cancel', { started, cancelled, gone, after: after.text });
}

async function roots() {
  const offered = [join(DIRECTORY, 'one')];
  await connected(offered, async (client) => {
    const write = { path: 'tool.txt', content: 'from a tool' };
    report('root_write', await outcome(call(client, 'file_write', write)));
    const code = "print(open('tool.txt').read()); open('code.txt', 'w').write('from code')";
    report('root_code', await outcome(call(client, 'run_python_code', { code })));
    offered[0] = join(DIRECTORY, 'two');
    await client.sendRootsListChanged();
    report('root_changed', await outcome(call(client, 'file_write', write)));
  });
}

async function log() {
  await connected(['/proc'], async (client) => {
    const heard = [];
    client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => {
      heard.push([params.level, String(params.data)]);
    });
    await client.setLoggingLevel('warning');
    const answer = await outcome(call(client, 'run_python_code', { code: "print('all the same')" }));
    await until(() => heard.length > 0);
    report('log', { heard, text: answer.text });
  });
}

await connected(null, basics);
await roots();
await log();
