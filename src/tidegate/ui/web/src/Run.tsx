import { type BatchAnswer, part, view } from "./api";
import { BatchDetails } from "./BatchDetails";
import { Asking, Page } from "./Page";
import { useAnswer } from "./useAnswer";

/** The batch of one DAG run. */
export function Run({ dagId = "", runId = "" }: { dagId?: string; runId?: string }) {
  const asked = useAnswer((signal) => view<BatchAnswer>(`dags/${part(dagId)}/runs/${part(runId)}`, signal), `${dagId}/${runId}`, 10);
  return (
    <Page title="Range">
      <Asking asked={asked} />
      {asked.answer?.batch === null && <p>This run has saved no range: it found nothing to read, or it has not planned yet.</p>}
      {asked.answer?.batch && <BatchDetails dagId={dagId} of={asked.answer} />}
    </Page>
  );
}
