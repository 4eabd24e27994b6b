// Uses the generated types as a program would: node client.ts STEP BASE_URL API_KEY PROJECT_ID prints what came back.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.ts";

declare const process: { argv: string[] };

const [, , step = "", baseUrl = "", apiKey = "", projectId = ""] = process.argv;
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${apiKey}` } });

type Memory = components["schemas"]["MemoryView"];

async function remember(narrative: string): Promise<Memory> {
  const { data, error } = await client.POST("/v1/memories", { body: { projectId, narrative } });
  if (error) throw new Error(error.message);
  return data.memory;
}

async function read(memoryId: string): Promise<Memory> {
  const { data, error } = await client.GET("/v1/memories/{memoryId}", { params: { path: { memoryId } } });
  if (error) throw new Error(error.message);
  return data.memory;
}

const steps: Record<string, () => Promise<unknown>> = {
  async read() {
    const written = await remember("The gateway timeout is three seconds.");
    return { written, read: await read(written.id) };
  },

  async search() {
    await remember("The gateway timeout is three seconds.");
    const { data } = await client.POST("/v1/search", { body: { projectId, query: "gateway timeout" } });
    return data?.memories.map((memory) => memory.content);
  },

  async page() {
    for (const narrative of ["one", "two", "three"]) await remember(narrative);
    const seen: (string | null)[] = [];
    let cursor: string | undefined;
    do {
      const { data } = await client.GET("/v1/memories", {
        params: { query: { projectId, limit: 2, orderBy: "oldest", ...(cursor ? { cursor } : {}) } },
      });
      seen.push(...(data?.memories ?? []).map((memory) => memory.content));
      cursor = data?.nextCursor ?? undefined;
    } while (cursor);
    return seen;
  },

  async error() {
    const { error, response } = await client.GET("/v1/memories/{memoryId}", { params: { path: { memoryId: "no-such" } } });
    return { status: response.status, code: error?.error };
  },

  async null() {
    const { data } = await client.POST("/v1/memories", { body: { projectId, title: "Timeouts", text: "Three seconds." } });
    const memoryId = data?.memory.id ?? "";
    // @ts-expect-error a title may be null, and the type says so
    data?.memory.title.length;
    await client.PATCH("/v1/memories/{memoryId}", { params: { path: { memoryId } }, body: { title: null } });
    return (await read(memoryId)).title;
  },
};

console.log(JSON.stringify(await steps[step]?.()));
