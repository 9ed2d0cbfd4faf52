import { defineConfig } from "vite";

// One script without libraries: Airflow's UI has put its own into these globals.
const globals = {
  react: "React",
  "react-dom": "ReactDOM",
  "react/jsx-runtime": "ReactJSXRuntime",
  "react-router-dom": "ReactRouterDOM",
  "@chakra-ui/react": "ChakraUI",
  "@emotion/react": "EmotionReact",
};

export default defineConfig({
  define: { "process.env.NODE_ENV": '"production"' },
  build: {
    lib: { entry: "src/index.tsx", formats: ["iife"], name: "TidegatePages", fileName: () => "tidegate.js" },
    outDir: "../bundle",
    emptyOutDir: true,
    rollupOptions: { external: Object.keys(globals), output: { globals } },
  },
});
