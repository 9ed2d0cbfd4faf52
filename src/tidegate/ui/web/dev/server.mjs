// The pages without Airflow: `npm start` here, after `npm run build` one folder up. Served below a path, as Airflow may be.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";

import { build } from "vite";

import { answer } from "./answers.ts";

export const BASE = "/some/path/";
const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const PAGE = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Tidegate</title><meta name="viewport" content="width=device-width">
<base href="${BASE}"></head><body><div id="root"></div><script type="module" src="host.js"></script></body></html>`;

/** The server, once it listens on the port. */
export async function start(port) {
  await build({
    root: here("."),
    configFile: false,
    logLevel: "error",
    define: { "process.env.NODE_ENV": '"production"' },
    build: { outDir: here("node_modules/.host"), lib: { entry: here("host.jsx"), formats: ["es"], fileName: () => "host.js" } },
  });
  const server = createServer((request, response) => {
    void serve(request, response).catch((error) => response.writeHead(500).end(String(error)));
  });
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  return server;
}

async function serve(request, response) {
  const url = new URL(request.url, "http://localhost");
  const path = url.pathname.startsWith(BASE) ? url.pathname.slice(BASE.length) : null;
  const script = { "host.js": "node_modules/.host/host.js", "tidegate/bundle/tidegate.js": "../../bundle/tidegate.js" }[path];
  if (path === null) response.writeHead(404).end("outside of the base path");
  else if (script !== undefined) response.writeHead(200, { "Content-Type": "text/javascript" }).end(await readFile(here(script)));
  else if (/^(tidegate\/api|api\/v2)\//.test(path)) {
    let body = "";
    for await (const part of request) body += part;
    const [status, said] = answer(request.method, path, url.searchParams, body);
    response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(said));
  } else response.writeHead(200, { "Content-Type": "text/html" }).end(PAGE);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const port = Number(process.env.PORT ?? 5199);
  await start(port);
  console.log(`http://127.0.0.1:${port}${BASE}plugin/tidegate`);
}
