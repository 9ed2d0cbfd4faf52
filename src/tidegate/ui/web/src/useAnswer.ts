import { useCallback, useEffect, useRef, useState } from "react";

import { RequestFailed } from "./api";

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

/**
 * An answer that is asked for again and again while the page is visible; the last one stays while the server is away. One
 * request at a time: a slow server is not asked more because it is slow, and no old answer comes after a new one.
 * With `everyS` null it is asked for once. An answer of which a part comes soon (`waits`) is asked for again after a second.
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
  const current = state.key === key;
  const pauseS = everyS !== null && current && state.answer !== undefined && waits(state.answer) ? SOON_S : everyS;
  const asking = useRef(ask);
  asking.current = ask;
  const again = useCallback(() => {
    setTurn((n) => n + 1);
  }, []);
  useEffect(() => {
    const leaving = new AbortController();
    let busy = false;
    const look = async () => {
      if (busy || document.visibilityState === "hidden") return;
      busy = true;
      try {
        const answer = await asking.current(leaving.signal);
        if (!leaving.signal.aborted) setState({ key, answer, atMs: Date.now(), error: undefined });
      } catch (error) {
        const failed = error instanceof RequestFailed ? error : new RequestFailed(String(error));
        // what another key was answered is nothing to show here
        if (!leaving.signal.aborted) setState((was) => (was.key === key ? { ...was, error: failed } : { key, answer: undefined, atMs: 0, error: failed }));
      }
      busy = false;
    };
    void look();
    const timer = pauseS === null ? undefined : setInterval(() => void look(), pauseS * 1000);
    const seen = () => void look();
    document.addEventListener("visibilitychange", seen);
    return () => {
      leaving.abort();
      clearInterval(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [key, pauseS, turn]);
  return {
    answer: current ? state.answer : undefined,
    atMs: current ? state.atMs : 0,
    error: current ? state.error : undefined,
    again,
  };
}

/** The time, epoch ms, once a second. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => {
      setNow(Date.now());
    }, 1000);
    return () => {
      clearInterval(timer);
    };
  }, []);
  return now;
}
