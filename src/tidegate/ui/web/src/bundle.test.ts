/// <reference types="vite/client" />
import { expect, it } from "vitest";

import script from "../../bundle/tidegate.js?raw";

/** Bytes. A library in the script that the host has as well would be more. */
const MOST = 20_000;

it("makes a script that is small on its way", async () => {
  const packed = new Blob([script]).stream().pipeThrough(new CompressionStream("gzip"));
  const { byteLength } = await new Response(packed).arrayBuffer();
  expect(byteLength).toBeGreaterThan(1000);
  expect(byteLength).toBeLessThan(MOST);
});
