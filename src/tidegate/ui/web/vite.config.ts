import { defineConfig } from "vite";

// One script without React: Airflow's UI has put its own React into these globals.
const globals = { react: "React", "react/jsx-runtime": "ReactJSXRuntime" };

export default defineConfig({
  define: { "process.env.NODE_ENV": '"production"' },
  build: {
    lib: { entry: "src/index.tsx", formats: ["iife"], name: "TidegatePages", fileName: () => "tidegate.js" },
    outDir: "../bundle",
    emptyOutDir: true,
    rollupOptions: { external: Object.keys(globals), output: { globals } },
  },
});
