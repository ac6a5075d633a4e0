// The official TypeScript client against `/mcp`. Prints one JSON object a check; the test judges them.
//
// Usage: over_http.mjs URL MODE KEY.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { McpError } from '@modelcontextprotocol/sdk/types.js';

const [URL_OF_SERVER, , KEY] = process.argv.slice(2);

const report = (check, facts) => console.log(JSON.stringify({ check, ...facts }));

async function connected(key) {
  const client = new Client({ name: 'over http', version: '1' });
  const requestInit = { headers: { Authorization: `Bearer ${key}` } };
  const transport = new StreamableHTTPClientTransport(new URL(URL_OF_SERVER), { requestInit });
  await client.connect(transport);
  return { client, transport };
}

const call = (client, tool, args, options) =>
  client.callTool({ name: tool, arguments: args }, undefined, options);

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

async function basics({ client, transport }) {
  report('greeting', { protocol: transport.protocolVersion, instructions: client.getInstructions() ?? '' });
  const { tools } = await client.listTools();
  report('tools', { names: tools.map((tool) => tool.name) });
  const code = { code: 'echo $((6 * 7)); exit 3', language: 'bash' };
  report('code', await outcome(call(client, 'run_code', code)));
  report('invalid_arguments', await outcome(call(client, 'run_code', { code: 5 })));
  report('permission_denied', await outcome(call(client, 'shell', { command: 'id' })));
  report('unknown', await outcome(call(client, 'no_such_tool', {})));
  const heard = [];
  const onprogress = ({ message }) => heard.push(message);
  const slow = { code: "import time\nprint('half way', flush=True)\ntime.sleep(1.2)" };
  await call(client, 'run_code', slow, { onprogress });
  report('progress', { heard });
}

const first = await connected(KEY);
const second = await connected(KEY);
await basics(first);
const numbers = Array.from({ length: 10 }, (_, number) => number);
const square = async ({ client }, number) => {
  const result = await call(client, 'run_python_code', { code: `print(${number} ** 2)` });
  return result.content[0].text === `${number ** 2}\n`;
};
const told = await Promise.all(numbers.flatMap((number) => [square(first, number), square(second, number)]));
report('two', { right: told.every(Boolean) });
for (const { client, transport } of [first, second]) {
  await transport.terminateSession();
  await client.close();
}
report('closed', { well: true });
const refused = await connected('wrong').then(
  () => false,
  () => true,
);
report('wrong', { refused });
