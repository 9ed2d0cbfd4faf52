// What Airflow's UI does for a page of a plugin: its globals, its provider, and the loader's rules, word for word where they matter.
import * as ChakraUI from "@chakra-ui/react";
import * as EmotionReact from "@emotion/react";
import React, { Suspense, lazy } from "react";
import * as ReactDOM from "react-dom";
import { createRoot } from "react-dom/client";
import * as ReactJSXRuntime from "react/jsx-runtime";
import * as ReactRouterDOM from "react-router-dom";

Object.assign(globalThis, { React, ReactDOM, ReactJSXRuntime, ReactRouterDOM, ChakraUI, EmotionReact });
globalThis.ChakraUISystem = ChakraUI.createSystem(ChakraUI.defaultConfig);

const APPS = [
  { name: "Tidegate", bundle_url: "tidegate/bundle/tidegate.js?app=nav", path: /\/plugin\/tidegate$/ },
  { name: "Tidegate ranges", bundle_url: "tidegate/bundle/tidegate.js?app=dag", path: /\/dags\/(?<dagId>[^/]+)\/plugin\/ranges$/ },
  { name: "Tidegate run", bundle_url: "tidegate/bundle/tidegate.js?app=run", path: /\/dags\/(?<dagId>[^/]+)\/runs\/(?<runId>[^/]+)\/plugin\/range$/ },
];

function load(app) {
  globalThis.AirflowPlugin = undefined;
  return import(/* @vite-ignore */ new URL(app.bundle_url, document.baseURI).href).then(() => {
    let component = globalThis[app.name];
    if (component === undefined) {
      component = globalThis.AirflowPlugin;
      globalThis[app.name] = component;
    }
    if (typeof component !== "function") throw new TypeError(`Expected function, got ${typeof component} for plugin ${app.name}`);
    return { default: component };
  });
}

const theme = localStorage.theme === "dark" ? "dark" : "light";
document.documentElement.className = theme;
document.documentElement.style.colorScheme = theme;
const app = APPS.find((each) => each.path.test(location.pathname)) ?? APPS[0];
const ids = Object.fromEntries(
  Object.entries(app.path.exec(location.pathname)?.groups ?? {}).map(([key, value]) => [key, decodeURIComponent(value)]),
);
const Component = lazy(() => load(app));

createRoot(document.getElementById("root")).render(
  <ChakraUI.ChakraProvider value={globalThis.ChakraUISystem}>
    <ReactRouterDOM.BrowserRouter basename={new URL(document.baseURI).pathname}>
      <ChakraUI.Flex>
        <ChakraUI.Box as="nav" aria-label="Airflow" width={{ base: "0", md: "64px" }} bg="bg.muted" minHeight="100vh" flexShrink={0} />
        <ChakraUI.Box flex="1" minWidth={0}>
          <Suspense fallback="…">
            <Component {...ids} />
          </Suspense>
        </ChakraUI.Box>
      </ChakraUI.Flex>
    </ReactRouterDOM.BrowserRouter>
  </ChakraUI.ChakraProvider>,
);
