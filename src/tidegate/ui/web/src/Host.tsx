import { Component, type ComponentType, type ReactNode } from "react";

import { Page } from "./Page";

/** What Airflow's UI puts into globals beside React; 3.1 does not have it yet. */
interface Lent {
  ChakraUI?: { ChakraProvider?: ComponentType<{ value: unknown; children: ReactNode }> };
  ChakraUISystem?: unknown;
}

/** A page in the host's theme. What it throws stays in it: the rest of the UI goes on. */
export function hosted<P extends object>(Shown: ComponentType<P>): (props: P) => ReactNode {
  return function Hosted(props: P) {
    // read now, and not when the script is run: the UI sets its theme as late as its first rendering
    const { ChakraUI, ChakraUISystem } = globalThis as Lent;
    const Provider = ChakraUI?.ChakraProvider;
    const page = (
      <Kept>
        <Shown {...props} />
      </Kept>
    );
    return Provider === undefined || ChakraUISystem === undefined ? page : <Provider value={ChakraUISystem}>{page}</Provider>;
  };
}

class Kept extends Component<{ children: ReactNode }, { error: string | undefined }> {
  override state: { error: string | undefined } = { error: undefined };

  static getDerivedStateFromError(error: unknown) {
    return { error: String(error) };
  }

  override render() {
    if (this.state.error === undefined) return this.props.children;
    return (
      <Page title="Tidegate">
        <div className="note bad" role="alert">
          The page cannot show what it was answered: {this.state.error}. Reload it; if it fails again, Airflow&apos;s API server and this
          page may be of different versions of Tidegate.
        </div>
      </Page>
    );
  }
}
