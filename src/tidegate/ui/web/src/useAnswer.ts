import { useCallback, useEffect, useRef, useState } from "react";

import { RequestFailed, nowMs } from "./api";

/** How often what may change is asked for, seconds; where a newer answer is on its way, sooner. */
export const EVERY_S = 10;
const SOON_S = 1;

export interface Asked<T> {
  /** The newest answer; undefined before the first one. */
  answer: T | undefined;
  /** When it came, epoch ms. */
  atMs: number;
  /** Why there is no newer one. */
  error: RequestFailed | undefined;
  again: () => void;
}

/** Whether a newer answer, or a part of it, is on its way. */
export const isSoon = (answer: { soon: boolean }): boolean => answer.soon;

/**
 * An answer that is asked for again and again while the page is visible; the last one stays while the server is away. One
 * request at a time: a slow server is not asked more because it is slow, and no old answer comes after a new one.
 * With `everyS` null it is asked for once. Where a newer one is on its way (`waits`), it is asked for again after a second.
 */
export function useAnswer<T>(
  ask: (signal: AbortSignal) => Promise<T>,
  key: string,
  everyS: number | null,
  waits: (answer: T) => boolean = () => false,
): Asked<T> {
  const [state, setState] = useState<{ key: string; answer: T | undefined; atMs: number; error: RequestFailed | undefined }>({
    key,
    answer: undefined,
    atMs: 0,
    error: undefined,
  });
  const [turn, setTurn] = useState(0);
  const asking = useRef({ ask, waits });
  asking.current = { ask, waits };
  const again = useCallback(() => {
    setTurn((n) => n + 1);
  }, []);
  useEffect(() => {
    const leaving = new AbortController();
    let busy = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = async () => {
      if (busy || document.visibilityState === "hidden") return;
      busy = true;
      clearTimeout(timer);
      let pauseS = everyS;
      try {
        const answer = await asking.current.ask(leaving.signal);
        if (!leaving.signal.aborted) setState({ key, answer, atMs: nowMs(), error: undefined });
        if (everyS !== null && asking.current.waits(answer)) pauseS = SOON_S;
      } catch (error) {
        const failed = error instanceof RequestFailed ? error : new RequestFailed(String(error));
        // what another key was answered is nothing to show here
        if (!leaving.signal.aborted) setState((was) => (was.key === key ? { ...was, error: failed } : { key, answer: undefined, atMs: 0, error: failed }));
      }
      busy = false;
      // a page that was hidden meanwhile looks again once it is seen
      if (pauseS !== null && !leaving.signal.aborted) timer = setTimeout(() => void look(), pauseS * 1000);
    };
    void look();
    const seen = () => void look();
    document.addEventListener("visibilitychange", seen);
    return () => {
      leaving.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [key, everyS, turn]);
  const current = state.key === key;
  return {
    answer: current ? state.answer : undefined,
    atMs: current ? state.atMs : 0,
    error: current ? state.error : undefined,
    again,
  };
}

/** The time by the server's clock, epoch ms, once a second. */
export function useNow(): number {
  const [now, setNow] = useState(nowMs);
  useEffect(() => {
    const timer = setInterval(() => {
      setNow(nowMs());
    }, 1000);
    return () => {
      clearInterval(timer);
    };
  }, []);
  return now;
}
