// Drives the official TypeScript client over HTTP: each line in is a call, each line out what came of it.
// A call after a lost one connects anew, as an application does; `close` closes the client under a call.
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, token] = process.argv.slice(-2);
const say = (told) => console.log(JSON.stringify(told));
let client;

async function connected() {
  if (!client) {
    const transport = new StreamableHTTPClientTransport(new URL(url), {
      requestInit: { headers: { Authorization: `Bearer ${token}` } },
    });
    const fresh = new Client({ name: "oncegate-tests", version: "1" });
    fresh.onerror = () => {};
    await fresh.connect(transport);
    // The client checks each answer against the schema that is listed here.
    await fresh.listTools();
    client = fresh;
  }
  return client;
}

async function call({ tool, arguments: given }) {
  try {
    const result = await (await connected()).callTool({ name: tool, arguments: given });
    say({ isError: result.isError, structuredContent: result.structuredContent, content: result.content });
  } catch (error) {
    const lost = client;
    client = undefined;
    await lost?.close().catch(() => {});
    say({ failed: `${error.name}: ${error.message}` });
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const told = JSON.parse(line);
  if (told.close) {
    await client.close();
  } else {
    // The next line may come before this one's answer.
    call(told);
  }
}
