import { useCallback, useEffect, useRef, useState } from "react";

import { RequestFailed } from "./api";

export interface Asked<T> {
  /** The newest answer; undefined before the first one. */
  answer: T | undefined;
  /** When it came, epoch ms. */
  atMs: number;
  /** Why there is no newer one. */
  error: RequestFailed | undefined;
  again: () => void;
}

/** An answer that is asked for again and again while the page is visible; the last one stays while the server is away. */
export function useAnswer<T>(ask: () => Promise<T>, key: string, everyS: number): Asked<T> {
  const [state, setState] = useState<{ key: string; answer: T | undefined; atMs: number; error: RequestFailed | undefined }>({
    key,
    answer: undefined,
    atMs: 0,
    error: undefined,
  });
  const [turn, setTurn] = useState(0);
  const asking = useRef(ask);
  asking.current = ask;
  const again = useCallback(() => {
    setTurn((n) => n + 1);
  }, []);
  useEffect(() => {
    let live = true;
    const look = async () => {
      if (document.visibilityState === "hidden") return;
      try {
        const answer = await asking.current();
        if (live) setState({ key, answer, atMs: Date.now(), error: undefined });
      } catch (error) {
        const failed = error instanceof RequestFailed ? error : new RequestFailed(String(error));
        // what another key was answered is nothing to show here
        if (live) setState((was) => (was.key === key ? { ...was, error: failed } : { key, answer: undefined, atMs: 0, error: failed }));
      }
    };
    void look();
    const timer = setInterval(() => void look(), everyS * 1000);
    const seen = () => void look();
    document.addEventListener("visibilitychange", seen);
    return () => {
      live = false;
      clearInterval(timer);
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
