// LibreChat's own client, as LibreChat uses it: the tools that a model gets, with files of one call in the next.
'use strict';

const assert = require('node:assert');

const [modules, base, key] = process.argv.slice(2);
const tools = `${modules}/@librechat/agents/dist/cjs/tools`;
const { createCodeExecutionTool } = require(`${tools}/CodeExecutor.cjs`);
const { createBashProgrammaticToolCallingTool } = require(`${tools}/BashProgrammaticToolCalling.cjs`);
const { createProgrammaticToolCallingTool, fetchSessionFiles } = require(`${tools}/ProgrammaticToolCalling.cjs`);

const baseUrl = `http://${base}/librechat/v1`;
const authHeaders = { 'X-API-Key': key };
// LibreChat since 0.8.6 sends no key, so it has to be in the address.
const inUrl = `http://any:${encodeURIComponent(key)}@${base}/librechat/v1`;

/** A call of a tool, as a graph makes it: its answer has the tool's artifact. */
const call = (tool, args, more = {}) => tool.invoke({ name: tool.name, id: 'call', type: 'tool_call', args, ...more });

const asInput = (file) => ({ ...file, kind: 'user', resource_id: file.id });

async function main() {
  const execute = createCodeExecutionTool({ baseUrl, authHeaders });
  const made = await call(execute, { lang: 'py', code: "open('/mnt/data/a.csv', 'w').write('1,2')\nprint('made')" });
  assert.match(made.content, /stdout:\nmade\n/);
  assert.match(made.content, /1 persisted file/);
  const [file] = made.artifact.files;
  assert.strictEqual(file.name, 'a.csv');

  const withFile = { _injected_files: [asInput(file)] };
  const byUrl = createCodeExecutionTool({ baseUrl: inUrl });
  const read = await call(byUrl, { lang: 'bash', code: 'cat /mnt/data/a.csv; rm /mnt/data/a.csv' }, withFile);
  assert.match(read.content, /stdout:\n1,2/);
  assert.deepStrictEqual(read.artifact.deleted_files, ['a.csv']);

  const listed = await fetchSessionFiles(baseUrl, file.storage_session_id, { kind: 'user', id: 'me' }, authHeaders);
  assert.deepStrictEqual(
    listed.map(({ id, name, storage_session_id }) => ({ id, name, storage_session_id })),
    [{ id: file.id, name: 'a.csv', storage_session_id: file.storage_session_id }],
  );

  const definition = {
    name: 'get-weather',
    description: 'The weather.',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  };
  const weather = { name: 'get-weather', constructor: { name: 'T' }, schema: definition.parameters, mcp: false };
  weather.invoke = async ({ city }) => {
    if (city === 'Nowhere') throw new Error('no such city');
    return { city, degrees: city.length };
  };
  const context = { toolMap: new Map([['get-weather', weather]]), toolDefs: [definition], ...withFile };
  const python = createProgrammaticToolCallingTool({ baseUrl, authHeaders });
  const ran = await call(
    python,
    {
      code: `
a, b = await asyncio.gather(get_weather(city="SF"), get_weather(city="NYC"))
print(a["degrees"] + b["degrees"], open("/mnt/data/a.csv").read())
try:
    await get_weather(city="Nowhere")
except Exception as error:
    print(error)
open("/mnt/data/out.txt", "w").write("x")
`,
    },
    context,
  );
  assert.match(ran.content, /stdout:\n5 1,2\nno such city\n/);
  assert.deepStrictEqual(ran.artifact.files.map(({ name, inherited }) => [name, inherited]), [
    ['a.csv', true],
    ['out.txt', undefined],
  ]);

  const bash = createBashProgrammaticToolCallingTool({ baseUrl, authHeaders });
  const answered = await call(bash, { code: 'x=$(get_weather \'{"city": "Rome"}\')\necho "got $x"' }, context);
  assert.match(answered.content, /got \{"city":"Rome","degrees":4\}/);

  const wrong = createCodeExecutionTool({ baseUrl, authHeaders: { 'X-API-Key': 'wrong' } });
  await assert.rejects(wrong.invoke({ lang: 'py', code: '1' }), /not authorized/);
  await assert.rejects(execute.invoke({ lang: 'rs', code: '1' }), /was rejected/);
  console.log('all');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
