// Compiles if the types of `ringfence/ai` are those of the AI SDK.

import { ToolLoopAgent, generateText, isStepCount, type Experimental_SandboxSession, type LanguageModel } from "ai";
import { Sandbox } from "ringfence";
import { sandboxFailed, sandboxSession, sandboxTools } from "ringfence/ai";

export async function check(model: LanguageModel): Promise<string> {
  await using sandbox = await Sandbox.create({ fence: "run", image: "a:1", onExpiry: "pause", ports: true });
  const session: Experimental_SandboxSession = sandboxSession(sandbox);
  const tools = sandboxTools(sandbox, { timeout: "1m", maxOutput: 1000 });
  const stopWhen = [isStepCount(9), sandboxFailed];
  const agent = new ToolLoopAgent({ model, tools, stopWhen });
  await agent.generate({ prompt: "", experimental_sandbox: session });
  const { steps } = await generateText({ model, tools, stopWhen, prompt: "", experimental_sandbox: session });
  for (const result of steps.flatMap((step) => step.toolResults)) {
    if (result.dynamic) continue;
    if (result.toolName === "runCode") return result.output.text ?? result.output.stdout;
    const status: number = result.output.exitCode;
    if (status !== 0) return result.output.stderr;
  }
  return "";
}
